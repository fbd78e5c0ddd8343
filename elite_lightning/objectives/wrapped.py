"""Objectives that change the advantages of another one and leave its loss as it is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Self

from torch import Tensor

from elite_lightning.objectives.interface import LossOutput, Objective, bound, kernel_of
from elite_lightning.similarity import Similarity


class OnTop(ABC):
    """An objective over a base: own advantages by strategy, the base's clipping, aggregation and KL penalty.

    Args:
        base: Gives the loss.
        own_kernel: What compares solutions for this objective itself; None where strategies are enough.

    Raises:
        ValueError: If the base has a kernel as well.
    """

    needs_strategies = True

    def __init__(self, base: Objective, own_kernel: Similarity | None = None) -> None:
        if own_kernel is not None and kernel_of(base) is not None:
            raise ValueError(
                f"{type(self).__name__} and its base {type(base).__name__} both have a kernel, and a step computes one "
                "similarity: leave one kernel out"
            )
        self.base = base
        self.own_kernel = own_kernel
        self.similarity: Tensor | None = None

    @property
    def kernel(self) -> Similarity | None:
        """What compares solutions, for this objective or its base."""
        return self.own_kernel if self.own_kernel is not None else kernel_of(self.base)

    def with_similarity(self, similarity: Tensor) -> Self:
        """See `ComparingObjective.with_similarity`; this object itself does not change."""
        for_step = copy.copy(self)
        if self.own_kernel is not None:
            for_step.similarity = similarity
        else:
            for_step.base = bound(self.base, similarity)
        return for_step

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
