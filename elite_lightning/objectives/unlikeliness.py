"""Unlikeliness reward: among right responses, the ones that the policy finds likely earn less."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elite_lightning.objectives.grpo import Grpo


class UnlikelinessReward(Grpo):
    """GRPO on rewards that fall with how likely a response was: `r_i <- r_i (1 - penalty rank_i / n)`.

    `rank_i` in {0, ..., n-1} orders the n counted responses of a group by mean token log-probability under the policy
    that sampled, 0 for the least likely. A group that is all right then has signal too.

    Source: He 2025, arXiv 2506.02355, as in its released code. Responses of equal log-probability, such as copies of
    one text, share their mean rank here; the code breaks such ties by position.

    Args:
        penalty: How much of its reward the likeliest response loses at most; in [0, 1].
        **grpo: See `Grpo`. The paper adds `kl_coefficient: 0.1`.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(self, *, penalty: float = 0.25, **grpo: Any) -> None:
        super().__init__(**grpo)
        if not 0.0 <= penalty <= 1.0:
            raise ValueError(f"penalty must lie in [0, 1], got {penalty}: it is a share of the reward")
        self.penalty = penalty

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,
        mean_logprobs: Tensor | None = None,
    ) -> Tensor:
        """GRPO's advantages of the lowered rewards; see `Objective.advantages`.

        Raises:
            ValueError: If `mean_logprobs` is missing.
        """
        if mean_logprobs is None:
            raise ValueError("the unlikeliness reward ranks responses by mean_logprobs: pass them")
        others = counted[:, None, :]
        less = (others & (mean_logprobs[:, None, :] < mean_logprobs[:, :, None])).sum(dim=-1)
        equal = (others & (mean_logprobs[:, None, :] == mean_logprobs[:, :, None])).sum(dim=-1)
        rank = (less + (equal - 1) / 2).to(rewards.dtype)
        count = counted.sum(dim=-1, keepdim=True).clamp(min=1)
        lowered = torch.where(counted, rewards.detach() * (1.0 - self.penalty * rank / count), 0.0)
        return super().advantages(lowered, counted, strategies=strategies, mean_logprobs=mean_logprobs)
