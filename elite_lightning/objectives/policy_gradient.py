"""From advantages to a loss, shared by every objective that differs from GRPO in its advantages alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor

from elite_lightning.objectives.aggregate import (
    Aggregation,
    MeanParts,
    aggregate_count,
    aggregate_sum,
    divide_by_total,
    response_means,
)
from elite_lightning.objectives.interface import LossOutput

# exp(20) is about 5e8: beyond any useful ratio, and far from float32's overflow at exp(88).
MAX_LOG_RATIO = 20.0

Ratio = Literal["token", "sequence"]
Surrogate = Literal["clip", "cispo"]


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


class PolicyGradient(ABC):
    """A policy loss with importance ratio, and an optional KL penalty. A subclass says what the advantages are.

    So an objective of your own is a subclass in a file of your own with one method; pass `**loss` on where it has
    settings, and repeat the type annotations of `advantages`, by which the command line knows an objective.

    With `l` the token's log-probability under the policy, `l_old` under the one that sampled, and A the response's
    advantage, the loss of a token is `-w surrogate + kl_coefficient k3`, aggregated over tokens and responses:

    * `ratio`: `token` is `rho = exp(l - l_old)`; `sequence` is `rho = exp(mean over its tokens of l - l_old)`
      for a whole response (GSPO: Zheng 2025, arXiv 2507.18071, with clip_low 3e-4 and clip_high 4e-4). The paper
      differentiates this `rho`, verl's code a token-wise form of equal value and gradient; this one is the paper's.
    * `surrogate`: `clip` is `min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)` (Schulman 2017, arXiv 1707.06347; a
      higher clip_high, such as 0.28, is DAPO's clip-higher: Yu 2025, arXiv 2503.14476). `cispo` is
      `sg(min(rho, 1 + clip_high)) A l`, where no token loses its gradient (MiniMax 2025, arXiv 2506.13585, with
      `aggregation: token`). The paper's formula has a lower clip too, which it leaves inactive; TRL's code and this one
      have none, so clip_low is not looked at.
    * `w`: 1, or with `importance_cap` C truncated importance sampling, `sg(min(exp(l_now - l_old), C))` per token, with
      `rho` then relative to the trainer's own `l_now = sg(l)` (verl's "decoupled" mode; `l_old` is the sampler's). A
      step makes one update with what it sampled, so this `rho` is 1 and nothing is clipped. Without it the ratio to the
      sampler does the correction, and weights on top would correct twice. verl's C is 2.
    * `k3 = exp(l_ref - l) - (l_ref - l) - 1` (Schulman 2020, "Approximating KL divergence"), not weighted by `w`. It
      acts on every response, also in groups whose advantages are all 0.

    Shapes are those of `Objective`: advantages `[problems, group]`, tokens `[batch, time]`.

    Args:
        clip_low: How far the probability ratio may fall below 1 before its gradient is cut.
        clip_high: How far the probability ratio may rise above 1 before its gradient is cut.
        kl_coefficient: Weight of the KL penalty towards the reference model; 0 needs no reference model.
        aggregation: `response`, `token` or `constant`; see `aggregate.Aggregation`.
        constant_length: Tokens that `constant` divides every response by; null with the others.
        ratio: `token`, or `sequence`, which is defined per response and wants `aggregation: response`.
        surrogate: `clip` or `cispo`.
        importance_cap: Upper limit of the importance weight from sampler to trainer; null for no weights.

    Raises:
        ValueError: If a value is out of range, or two do not go together.
    """

    needs_strategies = False

    def __init__(
        self,
        clip_low: float = 0.2,
        clip_high: float = 0.2,
        kl_coefficient: float = 0.0,
        aggregation: Aggregation = "response",
        constant_length: int | None = None,
        ratio: Ratio = "token",
        surrogate: Surrogate = "clip",
        importance_cap: float | None = None,
    ) -> None:
        _check_numbers(clip_low, clip_high, kl_coefficient, importance_cap)
        _check_choices(aggregation, constant_length, ratio, surrogate)
        self.clip_low = clip_low
        self.clip_high = clip_high
        self.kl_coefficient = kl_coefficient
        self.aggregation = aggregation
        self.constant_length = constant_length
        self.ratio = ratio
        self.surrogate = surrogate
        self.importance_cap = importance_cap

    @property
    def needs_reference(self) -> bool:
        """Whether the loss wants log-probabilities of a reference model."""
        return self.kl_coefficient > 0.0

    @abstractmethod
    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,
        mean_logprobs: Tensor | None = None,
    ) -> Tensor:
        """Advantage of each response of each group, `[problems, group]`; see `Objective.advantages`."""

    def denominator(self, mask: Tensor) -> Tensor:
        """What the aggregation divides by; see `Objective.denominator`."""
        return aggregate_count(mask, self.aggregation, self.constant_length)

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
        """The policy loss with an optional KL penalty; see `Objective.loss`.

        Raises:
            ValueError: If `kl_coefficient` is positive and `ref_logprobs` is missing.
        """
        scale = advantages.detach()[:, None]
        old = old_logprobs.detach() if self.importance_cap is None else logprobs.detach()
        token_loss, cut = self._surrogate(logprobs, log_ratio(logprobs, old, mask), scale, mask)
        metrics = {
            "clip_fraction": MeanParts.over_tokens(cut.to(token_loss.dtype), mask),
            "log_ratio_gap": MeanParts.over_tokens((logprobs - old_logprobs).abs(), mask),
        }
        if self.importance_cap is not None:
            weight = log_ratio(logprobs.detach(), old_logprobs.detach(), mask).exp()
            token_loss = token_loss * weight.clamp(max=self.importance_cap)
            metrics["importance_capped"] = MeanParts.over_tokens((weight > self.importance_cap).to(weight.dtype), mask)
        if self.needs_reference:
            k3 = self._k3(logprobs, ref_logprobs, mask)
            token_loss = token_loss + self.kl_coefficient * k3
            metrics["reference_kl"] = MeanParts.over_tokens(k3, mask)
        return LossOutput(divide_by_total(aggregate_sum(token_loss, mask, self.aggregation), denominator), metrics)

    def _surrogate(self, logprobs: Tensor, log_rho: Tensor, scale: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Loss per token, and where the ratio's limit is felt; both `[batch, time]`."""
        if self.ratio == "sequence":
            log_rho = response_means(log_rho, mask)[:, None].expand_as(log_rho)
        rho = log_rho.exp()
        if self.surrogate == "cispo":
            weight = rho.detach().clamp(max=1.0 + self.clip_high)
            return -weight * scale * logprobs, rho > 1.0 + self.clip_high
        unclipped = rho * scale
        clipped = rho.clamp(1.0 - self.clip_low, 1.0 + self.clip_high) * scale
        return -torch.minimum(unclipped, clipped), clipped < unclipped

    def _k3(self, logprobs: Tensor, ref_logprobs: Tensor | None, mask: Tensor) -> Tensor:
        """Non-negative, unbiased estimate of KL(policy || reference) per token, `[batch, time]`; 0 at padding."""
        if ref_logprobs is None:
            raise ValueError(
                f"kl_coefficient is {self.kl_coefficient}, so ref_logprobs are needed: pass them or set it to 0"
            )
        gap = log_ratio(ref_logprobs.detach(), logprobs, mask)
        return gap.exp() - gap - 1.0


def _check_numbers(clip_low: float, clip_high: float, kl_coefficient: float, importance_cap: float | None) -> None:
    if not 0.0 <= clip_low <= 1.0:
        raise ValueError(f"clip_low must lie in [0, 1], got {clip_low}: the ratio is clipped at 1 - clip_low")
    for name, value in {"clip_high": clip_high, "kl_coefficient": kl_coefficient}.items():
        if not value >= 0.0:
            raise ValueError(f"{name} must be at least 0, got {value}")
    if importance_cap is not None and not importance_cap > 0.0:
        raise ValueError(f"importance_cap must be positive, got {importance_cap}; null leaves the weights out")


def _check_choices(aggregation: Aggregation, constant_length: int | None, ratio: Ratio, surrogate: Surrogate) -> None:
    for name, value, choices in (
        ("aggregation", aggregation, get_args(Aggregation)),
        ("ratio", ratio, get_args(Ratio)),
        ("surrogate", surrogate, get_args(Surrogate)),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value}")
    if (aggregation == "constant") != (constant_length is not None):
        raise ValueError(
            f"constant_length goes with aggregation=constant, got {constant_length} with aggregation={aggregation}"
        )
    if constant_length is not None and constant_length < 1:
        raise ValueError(f"constant_length must be at least 1 token, got {constant_length}")
    if ratio == "sequence" and aggregation != "response":
        raise ValueError(f"ratio=sequence is defined per response: set aggregation to response, not {aggregation}")
