"""MaxRL: from reinforcement learning to maximum likelihood of the right answer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from elite_lightning.errors import UsageError
from elite_lightning.objectives.outcomes import advantages_by_outcome, subset_share
from elite_lightning.objectives.policy_gradient import PolicyGradient


class MaxRl(PolicyGradient):
    """Maximises `log p`, p being the chance of a right answer, instead of p: `log p = -sum_k (1 - p)^k / k`.

    With n counted responses of which c are right, each right or wrong (rewards above 0.5 are right):

    * without `order`, Algorithm 1: `A_i = r_i n / c - 1` if c > 0, else 0. So a group without signal is exactly 0.
    * with `order` T, the series cut after T terms: `A = 1` for right ones, and for wrong ones
      `A = -sum_{k=2..min(T, n-c)} C(n-c-1, k-1) / C(n-1, k-1)`. Unbiased for the gradient of the truncated objective;
      T = 1 is REINFORCE. There is no baseline, so groups all right and all wrong move the policy too.

    The mean of `A_i grad log pi(y_i)` is the estimator. It is that of whole sequences with `aggregation: constant` and
    `constant_length: 1`; other aggregations normalise by length, as the paper's runs do (`token`). The default is
    GRPO's, so that a comparison with GRPO differs in advantages alone.

    Source: Tajwar 2026, arXiv 2602.02710. Its text's estimator of order n keeps `-1/n` when c = 0; Algorithm 1, which
    the authors ran and this one follows, drops it, and is then unbiased for order n - 1. The released code divides by
    `mean + 1e-6`; this one has no epsilon. `order` follows the released `maclaurin_weights`, times n.

    Args:
        order: Terms of the series, at most the group's size; null for Algorithm 1. A group that failed verifiers make
            smaller than that is cut after as many terms as it has responses.
        **loss: See `PolicyGradient`.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(self, *, order: int | None = None, **loss: Any) -> None:
        super().__init__(**loss)
        if order is not None and order < 1:
            raise ValueError(f"order must be at least 1, got {order}; null takes all terms that a group allows")
        self.order = order

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,  # noqa: ARG002 - the interface offers more than MaxRL looks at
        mean_logprobs: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Advantages by outcome; see `Objective.advantages`.

        Raises:
            UsageError: If groups are smaller than `order`.
        """
        order = self.order
        if order is None:
            return advantages_by_outcome(rewards, counted, _algorithm_1)
        if order > rewards.shape[-1]:
            raise UsageError(
                f"order is {order}, but groups have {rewards.shape[-1]} responses: raise responses_per_problem"
            )
        return advantages_by_outcome(rewards, counted, lambda n, c: (1.0, _failure(n, n - c, order)))


def _algorithm_1(responses: int, right: int) -> tuple[float, float]:
    return (responses / right - 1.0, -1.0) if right else (0.0, 0.0)


def _failure(responses: int, wrong: int, order: int) -> float:
    """Each term: the chance that k - 1 of the others, drawn without replacement, are wrong too."""
    return -sum(subset_share(wrong - 1, k - 1, responses - 1) for k in range(2, min(order, wrong) + 1))
