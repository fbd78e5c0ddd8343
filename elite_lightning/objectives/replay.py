"""The replay term: how the policy relates to stored, verified responses. It needs no advantage and no sampler."""

from __future__ import annotations

from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from elite_lightning.objectives.aggregate import divide_by_total, response_means
from elite_lightning.objectives.interface import LossOutput

ReplayAggregation = Literal["response", "token"]
"""How values per token become one scalar: `response` averages over each response's own tokens first and over responses
second, `token` over all tokens, so that a long response has more say. The weights of responses count in both."""


@runtime_checkable
class ReplayObjective(Protocol):
    """From stored responses' log-probabilities to the replay loss. Never sees text, SQL or a model.

    The trainer adds up `denominator` over all micro-batches and ranks, and then calls `loss` on each micro-batch.
    """

    @property
    def needs_base_logprobs(self) -> bool:
        """Whether `loss` wants `base_logprobs`; costs one forward pass over all that is stored, before training."""
        ...

    def denominator(self, mask: Tensor, weights: Tensor) -> Tensor:
        """This micro-batch's part of the global total that `loss` divides by.

        Args:
            mask: `[batch, time]`, bool; True on the response's tokens.
            weights: `[batch]`, float32; relative weight of each response.

        Returns:
            Scalar float32, additive over micro-batches and ranks.
        """
        ...

    def loss(
        self,
        logprobs: Tensor,
        mask: Tensor,
        weights: Tensor,
        denominator: float | Tensor,
        *,
        base_logprobs: Tensor | None = None,
    ) -> LossOutput:
        """This micro-batch's share of the loss.

        Args:
            logprobs: `[batch, time]`, floating, with a graph; log-probability of each token under the policy.
            mask: `[batch, time]`, bool; True on the response's tokens. What stands elsewhere does not matter.
            weights: `[batch]`, floating; relative weight of each response.
            denominator: Sum of `denominator(mask, weights)` over all micro-batches and ranks of the step.
            base_logprobs: `[batch, time]`, floating; under the policy as it was before training. Given when
                `needs_base_logprobs`.

        Returns:
            Shares that add up, over micro-batches and ranks, to the replay loss of the step.
        """
        ...


def check_aggregation(aggregation: str) -> None:
    """Refuse an aggregation that replay does not have.

    Args:
        aggregation: The name.

    Raises:
        ValueError: If it is none of `ReplayAggregation`.
    """
    if aggregation not in get_args(ReplayAggregation):
        raise ValueError(f"aggregation must be one of {', '.join(get_args(ReplayAggregation))}, got {aggregation!r}")


def weighted_total(mask: Tensor, weights: Tensor, aggregation: ReplayAggregation) -> Tensor:
    """Sum of the weights, of responses or of all their tokens: the denominator that goes with `weighted_share`.

    Args:
        mask: `[batch, time]`, bool.
        weights: `[batch]`, floating.
        aggregation: See `ReplayAggregation`.

    Returns:
        Scalar float32; add it up over micro-batches and ranks.
    """
    total = weights.sum() if aggregation == "response" else (weights * mask.sum(dim=-1)).sum()
    return total.to(torch.float32)


def weighted_share(
    values: Tensor, mask: Tensor, weights: Tensor, denominator: float | Tensor, aggregation: ReplayAggregation
) -> Tensor:
    """A micro-batch's share of the weighted mean of values per token.

    Args:
        values: `[batch, time]`, floating; anything at all where `mask` is False.
        mask: `[batch, time]`, bool.
        weights: `[batch]`, floating.
        denominator: Sum of `weighted_total` over micro-batches and ranks; 0 gives a zero with a graph.
        aggregation: See `ReplayAggregation`.

    Returns:
        Scalar.
    """
    if aggregation == "response":
        per_response = response_means(values, mask)
    else:
        per_response = torch.where(mask, values, 0.0).sum(dim=-1)
    return divide_by_total((per_response * weights).sum(), denominator)


def length_normalised_nll(
    logprobs: Tensor, mask: Tensor, num_responses: float | Tensor, weights: Tensor | None = None
) -> Tensor:
    """Negative log-likelihood, averaged over each response's own tokens first and over responses second.

    `-(1 / num_responses) * sum_i w_i * (1 / |y_i|) * sum_t log pi(y_it | x_i, y_i<t)`

    It is not the mean over all tokens: a long response has no more say than a short one.

    Source: EliteReplay, arXiv 2610.22290, L_replay.

    Args:
        logprobs: `[batch, time]`, floating; natural log-probability of each response token. What stands under the
            padding does not matter.
        mask: `[batch, time]`, bool; True on the response's tokens. A row without any counts as 0.
        num_responses: Number of replayed responses in the whole optimizer step, over all micro-batches and ranks, so
            that the shares of micro-batches add up to the whole. For a weighted mean pass the sum of the weights. A
            total of 0 gives a zero with a graph.
        weights: `[batch]`; relative weight of each response, or None for 1 each.

    Returns:
        Scalar share of the loss.
    """
    each = logprobs.new_ones(len(logprobs)) if weights is None else weights
    return weighted_share(-logprobs, mask, each, num_responses, "response")


class ReplayNll:
    """Negative log-likelihood of what is stored: imitation.

    `L_replay = -(1 / R) * sum_i (1 / |y_i|) * sum_t log pi(y_it | x_i, y_i<t)`, R stored responses in the step.

    Source: EliteReplay, arXiv 2610.22290, L_replay. How IID replay is normalised there is not known; here it is the
    same, so that the two differ in what is stored and in nothing else.

    Args:
        aggregation: `response` (EliteReplay), or `token`: one mean over all tokens of the step.

    Raises:
        ValueError: If the aggregation is unknown.
    """

    needs_base_logprobs = False

    def __init__(self, aggregation: ReplayAggregation = "response") -> None:
        check_aggregation(aggregation)
        self.aggregation: ReplayAggregation = aggregation

    def denominator(self, mask: Tensor, weights: Tensor) -> Tensor:
        """See `ReplayObjective.denominator`."""
        return weighted_total(mask, weights, self.aggregation)

    def loss(
        self,
        logprobs: Tensor,
        mask: Tensor,
        weights: Tensor,
        denominator: float | Tensor,
        *,
        base_logprobs: Tensor | None = None,  # noqa: ARG002 - imitation needs none
    ) -> LossOutput:
        """See `ReplayObjective.loss`."""
        return LossOutput(weighted_share(-logprobs, mask, weights, denominator, self.aggregation), {})
