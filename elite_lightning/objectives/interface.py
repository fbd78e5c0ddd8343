"""What an objective is: the one interface that the trainer knows and that every objective implements."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from elite_lightning.objectives.aggregate import MeanParts
from elite_lightning.similarity import Similarity


class LossOutput(NamedTuple):
    """A share of the loss, and what to log about it.

    Args:
        loss: Scalar, with a graph even when it is zero.
        metrics: Name to the parts of a mean, without gradient.
    """

    loss: Tensor
    metrics: dict[str, MeanParts]


@runtime_checkable
class Objective(Protocol):
    """From a group's rewards, strategies, log-probabilities and masks to a loss. Never sees text, SQL or a model.

    The trainer calls `advantages` once per step on whole groups, adds up `denominator` over all micro-batches and
    ranks, and then calls `loss` on each micro-batch. A response that must not take part at all (our verifier failed, or
    truncated ones when those are left out) has a row of `mask` without a True: it then leaves both numerator and
    denominator.
    """

    @property
    def needs_strategies(self) -> bool:
        """Whether `advantages` wants `strategies`; costs a strategy key per distinct correct solution."""
        ...

    @property
    def needs_reference(self) -> bool:
        """Whether `loss` wants `ref_logprobs`; costs a second model in memory and a forward pass."""
        ...

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,
        mean_logprobs: Tensor | None = None,
    ) -> Tensor:
        """Advantage of each response of each group.

        Args:
            rewards: `[problems, group]`, floating.
            counted: `[problems, group]`, bool; False where our verifier failed (or the group is shorter). Such a
                response enters no statistic and gets 0; its reward may be anything.
            strategies: `[problems, group]`, int64; equal exactly where two correct solutions of one problem have the
                same strategy, -1 where not correct. Given when `needs_strategies`.
            mean_logprobs: `[problems, group]`, floating; mean token log-probability under the sampling policy.

        Returns:
            `[problems, group]`, floating, without gradient.
        """
        ...

    def denominator(self, mask: Tensor) -> Tensor:
        """This micro-batch's part of the global count that `loss` divides by: responses, or tokens.

        Args:
            mask: `[batch, time]`, bool.

        Returns:
            Scalar float32, additive over micro-batches and ranks.
        """
        ...

    def loss(
        self,
        logprobs: Tensor,
        old_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        denominator: float | Tensor,
        *,
        ref_logprobs: Tensor | None = None,
    ) -> LossOutput:
        """This micro-batch's share of the loss.

        Args:
            logprobs: `[batch, time]`, floating, with a graph; log-probability of each token under the policy.
            old_logprobs: `[batch, time]`, floating; under the policy that sampled. Detached here.
            advantages: `[batch]`, floating. Detached here.
            mask: `[batch, time]`, bool; True on the response's tokens. What stands elsewhere does not matter.
            denominator: Sum of `denominator(mask)` over all micro-batches and ranks of the step.
            ref_logprobs: `[batch, time]`, floating; under the reference model. Given when `needs_reference`.

        Returns:
            Shares that add up, over micro-batches and ranks, to the loss of the step.
        """
        ...


@runtime_checkable
class ComparingObjective(Protocol):
    """What an objective offers besides if its advantages depend on how alike the responses of a group are.

    It names a kernel, which it never calls; the trainer does, and hands over numbers before it asks for `advantages`,
    whose arguments so stay those of every objective.
    """

    @property
    def kernel(self) -> Similarity | None:
        """What compares solutions; None if `advantages` can do without."""
        ...

    def with_similarity(self, similarity: Tensor) -> Objective:
        """This objective for the groups of one step.

        Args:
            similarity: `[problems, group, group]`, float32, symmetric, in [0, 1], ones on the diagonal; of all
                responses, right or wrong, counted or not.
        """
        ...


def kernel_of(objective: Objective) -> Similarity | None:
    """The kernel that an objective names, if it names one."""
    return objective.kernel if isinstance(objective, ComparingObjective) else None


def bound(objective: Objective, similarity: Tensor | None) -> Objective:
    """The objective with the similarities of a step; unchanged where there are none, or where it names no kernel."""
    if similarity is None or not isinstance(objective, ComparingObjective) or objective.kernel is None:
        return objective
    return objective.with_similarity(similarity)
