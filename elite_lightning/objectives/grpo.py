"""Group Relative Policy Optimization: advantages from a group's own rewards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elite_lightning.objectives.policy_gradient import PolicyGradient


class Grpo(PolicyGradient):
    """GRPO: a reward counts by how far it stands above the rest of its group.

    `A_i = (r_i - mean r) / (std r + epsilon)` over a group's counted responses (sample standard deviation, ddof = 1).

    Source: Shao 2024, arXiv 2402.03300. The paper has no epsilon; TRL's code has 1e-4 as here, verl's 1e-6. Without the
    standard deviation and with `aggregation: constant` it is Dr. GRPO (Liu 2025, arXiv 2503.20783); with
    `aggregation: token` and `clip_high: 0.28` it is DAPO (Yu 2025, arXiv 2503.14476); its dynamic
    sampling is `model.dynamic_sampling`, and its penalty on overlong responses is not here.

    Args:
        normalise_by_std: Divide advantages by the group's standard deviation.
        std_epsilon: Added to the standard deviation.
        **loss: See `PolicyGradient`.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(self, *, normalise_by_std: bool = True, std_epsilon: float = 1e-4, **loss: Any) -> None:
        super().__init__(**loss)
        if not std_epsilon >= 0.0:
            raise ValueError(f"std_epsilon must be at least 0, got {std_epsilon}")
        self.normalise_by_std = normalise_by_std
        self.std_epsilon = std_epsilon

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,  # noqa: ARG002 - the interface offers more than GRPO looks at
        mean_logprobs: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Rewards relative to the rest of the group; see `Objective.advantages`.

        A group with fewer than two counted responses, or with equal rewards, has no signal: exactly 0.
        """
        rewards = torch.where(counted, rewards.detach(), 0.0)
        count = counted.sum(dim=-1, keepdim=True)
        centred = torch.where(counted, rewards - rewards.sum(dim=-1, keepdim=True) / count.clamp(min=1), 0.0)
        if self.normalise_by_std:
            variance = centred.square().sum(dim=-1, keepdim=True) / (count - 1).clamp(min=1)
            centred = centred / (variance.sqrt() + self.std_epsilon)
        # Asked of the rewards and not of the variance: rounding in the mean must not turn equal rewards into a signal.
        lowest = torch.where(counted, rewards, torch.inf).amin(dim=-1, keepdim=True)
        highest = torch.where(counted, rewards, -torch.inf).amax(dim=-1, keepdim=True)
        return torch.where(counted & (highest > lowest), centred, 0.0)
