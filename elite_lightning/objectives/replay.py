"""The replay term: how unlikely the policy finds stored, verified responses. It needs no ratio and no advantage."""

from __future__ import annotations

from torch import Tensor

from elite_lightning.objectives.aggregate import divide_by_total, response_means


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
    per_response = -response_means(logprobs, mask)
    if weights is not None:
        per_response = per_response * weights
    return divide_by_total(per_response.sum(), num_responses)
