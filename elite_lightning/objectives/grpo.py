"""Group Relative Policy Optimization: advantages from a group's own rewards, and the clipped policy loss."""

from __future__ import annotations

import torch
from torch import Tensor

from elite_lightning.objectives.aggregate import MeanParts, count_responses, divide_by_total, response_means
from elite_lightning.objectives.interface import LossOutput

# exp(20) is about 5e8: beyond any useful ratio, and far from float32's overflow at exp(88).
MAX_LOG_RATIO = 20.0


def log_ratio(logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """Difference of log-probabilities, safe to exponentiate.

    Padding is cleared here, before any `exp`: there `exp` could overflow and turn the gradient into 0 * inf = NaN while
    the loss looks finite.

    Args:
        logprobs: `[batch, time]`, floating.
        other: `[batch, time]`, floating.
        mask: `[batch, time]`, bool.

    Returns:
        `logprobs - other` within +-20, 0 at padding; `[batch, time]`.
    """
    return torch.where(mask, logprobs - other, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


class Grpo:
    """GRPO with per-response normalisation, clipping, and an optional KL penalty.

    `A_i = (r_i - mean r) / (std r + epsilon)` within a group (sample standard deviation, ddof = 1), and per token
    `-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl_coefficient * k3` with `rho = exp(l - l_old)` and
    `k3 = exp(l_ref - l) - (l_ref - l) - 1`; averaged over each response's tokens first, over responses second.

    Sources: Shao 2024, arXiv 2402.03300 (objective); Schulman 2020, "Approximating KL divergence" (k3); Yu 2025, arXiv
    2503.14476 (separate upper clip).

    Args:
        clip_low: How far the probability ratio may fall below 1 before its gradient is cut.
        clip_high: How far the probability ratio may rise above 1 before its gradient is cut.
        kl_coefficient: Weight of the KL penalty towards the reference model; 0 needs no reference model. The penalty
            acts on every response, also in groups whose advantages are all 0.
        normalise_by_std: Divide advantages by the group's standard deviation.
        std_epsilon: Added to the standard deviation.

    Raises:
        ValueError: If a value is out of range.
    """

    needs_strategies = False

    def __init__(
        self,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        kl_coefficient: float = 0.0,
        normalise_by_std: bool = True,
        std_epsilon: float = 1e-4,
    ) -> None:
        if not 0.0 <= clip_low <= 1.0:
            raise ValueError(f"clip_low must lie in [0, 1], got {clip_low}: the ratio is clipped at 1 - clip_low")
        for name, value in {
            "clip_high": clip_high,
            "kl_coefficient": kl_coefficient,
            "std_epsilon": std_epsilon,
        }.items():
            if not value >= 0.0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.kl_coefficient = kl_coefficient
        self.normalise_by_std = normalise_by_std
        self.std_epsilon = std_epsilon

    @property
    def needs_reference(self) -> bool:
        """Whether the loss wants log-probabilities of a reference model."""
        return self.kl_coefficient > 0.0

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

    def denominator(self, mask: Tensor) -> Tensor:
        """Number of responses with at least one valid token; see `Objective.denominator`."""
        return count_responses(mask)

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
        """Clipped policy loss with an optional KL penalty; see `Objective.loss`.

        Raises:
            ValueError: If `kl_coefficient` is positive and `ref_logprobs` is missing.
        """
        ratio = log_ratio(logprobs, old_logprobs.detach(), mask).exp()
        scale = advantages.detach()[:, None]
        unclipped = ratio * scale
        clipped = ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high) * scale
        token_loss = -torch.minimum(unclipped, clipped)
        metrics = {
            "clip_fraction": MeanParts.over_tokens((clipped < unclipped).to(ratio.dtype), mask),
            "log_ratio_gap": MeanParts.over_tokens((logprobs - old_logprobs).abs(), mask),
        }
        if self.needs_reference:
            k3 = self._k3(logprobs, ref_logprobs, mask)
            token_loss = token_loss + self.kl_coefficient * k3
            metrics["reference_kl"] = MeanParts.over_tokens(k3, mask)
        return LossOutput(divide_by_total(response_means(token_loss, mask).sum(), denominator), metrics)

    def _k3(self, logprobs: Tensor, ref_logprobs: Tensor | None, mask: Tensor) -> Tensor:
        """Non-negative, unbiased estimate of KL(policy || reference) per token, `[batch, time]`; 0 at padding."""
        if ref_logprobs is None:
            raise ValueError(
                f"kl_coefficient is {self.kl_coefficient}, so ref_logprobs are needed: pass them or set it to 0"
            )
        gap = log_ratio(ref_logprobs.detach(), logprobs, mask)
        return gap.exp() - gap - 1.0
