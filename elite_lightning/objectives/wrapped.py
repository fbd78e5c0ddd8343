"""Objectives that change the advantages of another one and leave its loss as it is."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from elite_lightning.objectives.interface import LossOutput, Objective


class OnTop(ABC):
    """An objective over a base: own advantages by strategy, the base's clipping, aggregation and KL penalty.

    Args:
        base: Gives the loss.
    """

    needs_strategies = True

    def __init__(self, base: Objective) -> None:
        self.base = base

    @property
    def needs_reference(self) -> bool:
        """Whether the base wants log-probabilities of a reference model."""
        return self.base.needs_reference

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,
        mean_logprobs: Tensor | None = None,
    ) -> Tensor:
        """See `Objective.advantages`.

        Raises:
            ValueError: If `strategies` is missing.
        """
        if strategies is None:
            raise ValueError(f"{type(self).__name__} compares strategies, so they are needed: pass them")
        return self.with_strategies(rewards, counted, strategies, mean_logprobs)

    @abstractmethod
    def with_strategies(
        self, rewards: Tensor, counted: Tensor, strategies: Tensor, mean_logprobs: Tensor | None
    ) -> Tensor:
        """Advantages `[problems, group]`; shapes as in `Objective.advantages`."""

    def denominator(self, mask: Tensor) -> Tensor:
        """The base's; see `Objective.denominator`."""
        return self.base.denominator(mask)

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
        """The base's; see `Objective.loss`."""
        return self.base.loss(logprobs, old_logprobs, advantages, mask, denominator, ref_logprobs=ref_logprobs)
