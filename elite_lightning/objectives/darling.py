"""DARLING: rewards multiplied by how rare a correct response's kind is within its group."""

from __future__ import annotations

import torch
from torch import Tensor

from elite_lightning.objectives.grpo import Grpo
from elite_lightning.objectives.interface import Objective
from elite_lightning.objectives.wrapped import OnTop


def rarity(strategies: Tensor, counted: Tensor, floor: float) -> Tensor:
    """Share of the other correct responses of a group that have another strategy.

    `d_i = max(floor, (c - c_i) / (c - 1))` with `c` correct responses, `c_i` of them of the response's own strategy;
    `floor` for a response that is wrong, and where `c <= 1`.

    Source: DARLING, Li 2025, arXiv 2509.02534, the released code's form.

    Args:
        strategies: `[problems, group]`, int64; -1 where not correct.
        counted: `[problems, group]`, bool; others enter nothing.
        floor: Least value.

    Returns:
        `[problems, group]`, float64.
    """
    correct = counted & (strategies >= 0)
    same = (strategies[:, :, None] == strategies[:, None, :]) & correct[:, None, :]
    total = correct.sum(dim=-1, keepdim=True).double()
    others = (total - same.sum(dim=-1)) / (total - 1).clamp(min=1)
    return torch.where(correct & (total > 1), others, 0.0).clamp(min=floor)


class Darling(OnTop):
    """A base objective on rewards `r_i * d_i`, where `d_i` is the `rarity` of a response's strategy.

    The base then compares the rewards within the group; clipping, aggregation and KL penalty are the base's.

    Source: DARLING, Li 2025, arXiv 2509.02534; code facebookresearch/darling. The paper multiplies the reward with its
    diversity normalised over the group; the released code counts among the correct responses only and never goes
    below 0.1, also for a lone correct one, whose reward so becomes 0.1. This is the code's form. In both, a trained
    classifier decides which responses are of one class; here it is the strategy key, the canonical syntax tree. Both
    average over all tokens; the default base here averages per response first, and another base changes that.

    Args:
        base: Turns rewards into advantages and the loss; null is GRPO without the standard deviation, as there.
        floor: Least factor, in [0, 1].

    Raises:
        ValueError: If `floor` is out of range.
    """

    def __init__(self, base: Objective | None = None, floor: float = 0.1) -> None:
        if not 0.0 <= floor <= 1.0:
            raise ValueError(f"floor must lie in [0, 1], got {floor}: it is the least factor of a reward")
        super().__init__(base if base is not None else Grpo(normalise_by_std=False))
        self.floor = floor

    def with_strategies(
        self, rewards: Tensor, counted: Tensor, strategies: Tensor, mean_logprobs: Tensor | None
    ) -> Tensor:
        """The base's advantages of the rarer strategies' higher rewards."""
        scaled = rewards.detach() * rarity(strategies, counted, self.floor).to(rewards.dtype)
        return self.base.advantages(scaled, counted, strategies=strategies, mean_logprobs=mean_logprobs)
