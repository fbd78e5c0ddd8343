"""DPH-RL: stay near the base policy on what it could do already, by a divergence on its own stored successes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor

from elite_lightning.objectives.aggregate import MeanParts
from elite_lightning.objectives.interface import LossOutput
from elite_lightning.objectives.replay import (
    ReplayAggregation,
    check_aggregation,
    weighted_share,
    weighted_total,
)

Form = Literal["k3", "log"]

# Above it exp is cut off, as in the released code: a policy 5e8 times as sure of a token as the base is sure enough.
_LARGEST_LOG_RATIO = 20.0


class DivergenceReplay(ABC):
    """A divergence from the base policy, token by token, over responses that the base policy wrote itself.

    `L = mean over stored tokens of f(u)`, `u = pi(y_t | x, y_<t) / pi_base(y_t | x, y_<t)`, where `f` is convex with
    `f(1) = 0`. The base policy's log-probabilities are stored, so no second model is held.

    Source: DPH-RL, Li 2025, arXiv 2509.07430, eq. 7: `L = L_exp + eta * L_pef`. In this package eta is `model.mu`, and
    `model.policy_weight: 1` leaves the other term unscaled. Near-perfect problems, which are replayed and not sampled
    any more, are `callbacks.IidPreSearch`'s `near_perfect` with `data.exclude_replayed`. The paper takes problems with
    6 of 8 correct samples for text-to-SQL, draws one more and stores that one, if it is correct; its ablation with 8 of
    8 stores all. Here all correct samples are stored. Paper and released code differ in more than one place; the
    subclasses say where. Both take a mean over tokens, so does the default here; the released code mixes stored
    sequences into the batch that the policy term is averaged over, which weighs them less, while eq. 7, and this,
    averages both terms apart.

    Args:
        aggregation: `token` (DPH-RL), or `response`: over each response's own tokens first.
        value_clamp: Largest absolute value of f on a token; beyond it there is no gradient. The released code has 10,
            which lets go of just those tokens that are most forgotten. Null is no limit.

    Raises:
        ValueError: If an argument is out of range.
    """

    needs_base_logprobs = True

    def __init__(self, aggregation: ReplayAggregation = "token", value_clamp: float | None = None) -> None:
        check_aggregation(aggregation)
        if value_clamp is not None and not value_clamp > 0:
            raise ValueError(f"value_clamp must be positive or null, got {value_clamp}")
        self.aggregation: ReplayAggregation = aggregation
        self.value_clamp = value_clamp

    @abstractmethod
    def divergence(self, log_ratio: Tensor) -> Tensor:
        """The value `f(u)` at `u = exp(log_ratio)`, element by element.

        Args:
            log_ratio: Any shape, floating; `log pi - log pi_base`.
        """

    def denominator(self, mask: Tensor, weights: Tensor) -> Tensor:
        """See `ReplayObjective.denominator`."""
        return weighted_total(mask, weights, self.aggregation)

    def loss(
        self,
        logprobs: Tensor,
        mask: Tensor,
        weights: Tensor,
        denominator: float | Tensor,
        *,
        base_logprobs: Tensor | None = None,
    ) -> LossOutput:
        """See `ReplayObjective.loss`.

        Raises:
            ValueError: If `base_logprobs` is missing.
        """
        if base_logprobs is None:
            raise ValueError(f"{type(self).__name__} compares to the base policy: pass base_logprobs")
        # Cleared before anything is exponentiated: what stands under the padding may be anything.
        log_ratio = torch.where(mask, logprobs - base_logprobs.detach(), 0.0)
        values = self.divergence(log_ratio.clamp(max=_LARGEST_LOG_RATIO))
        if self.value_clamp is not None:
            values = values.clamp(-self.value_clamp, self.value_clamp)
        share = weighted_share(values, mask, weights, denominator, self.aggregation)
        return LossOutput(share, {"replay_log_ratio": MeanParts.over_tokens(log_ratio, mask)})


class DphForwardKl(DivergenceReplay):
    """DPH-F: the forward Kullback-Leibler divergence `KL(pi_base || pi)`, estimated on the base policy's responses.

    `k3`: `f(u) = u - 1 - log u`, never negative; its derivative by the log-probability is `u - 1`: nothing where the
    policy agrees with the base, up where it is less sure, down where it is surer. `log`: `f(u) = -log u`, whose
    derivative is -1 everywhere, which is replay of the negative log-likelihood up to a constant.

    Source: DPH-RL, Li 2025, arXiv 2509.07430. The paper has `log` (and says in its appendix D.1 that it is likelihood
    replay), the released code `k3`, the default here; the code also clamps the log-ratio below -20, this does not. The
    coefficient (`model.mu` here) is 0.01 in the paper.

    Args:
        form: `k3` or `log`.
        aggregation: `token` (DPH-RL), or `response`: over each response's own tokens first.
        value_clamp: Largest absolute value of f on a token; the released code has 10. Null is no limit.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, form: Form = "k3", aggregation: ReplayAggregation = "token", value_clamp: float | None = None
    ) -> None:
        if form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}, got {form!r}")
        super().__init__(aggregation, value_clamp)
        self.form: Form = form

    def divergence(self, log_ratio: Tensor) -> Tensor:
        """See `DivergenceReplay.divergence`."""
        # expm1 keeps the digits of a small log-ratio, where u - 1 would cancel them.
        return -log_ratio if self.form == "log" else log_ratio.expm1() - log_ratio


class DphJensenShannon(DivergenceReplay):
    """DPH-JS: the Jensen-Shannon divergence between policy and base, on the base policy's responses.

    `f(u) = u log u - (u + 1) log((u + 1) / 2)`, times 1/2 where `halved`; its derivative by the log-probability is
    `u log(2u / (u + 1))`, times 1/2 where `halved`. It forgives what the base policy wrote and the policy has given
    up: the pull goes to 0 with u.

    Source: DPH-RL, Li 2025, arXiv 2509.07430. The paper halves it, the released code does not, and neither does the
    default here; the coefficient 0.2 (`model.mu` here) goes with the code.

    Args:
        halved: Whether the paper's factor 1/2 is there.
        aggregation: `token` (DPH-RL), or `response`: over each response's own tokens first.
        value_clamp: Largest absolute value of f on a token; the released code has 10. Null is no limit.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, halved: bool = False, aggregation: ReplayAggregation = "token", value_clamp: float | None = None
    ) -> None:
        super().__init__(aggregation, value_clamp)
        self.halved = halved

    def divergence(self, log_ratio: Tensor) -> Tensor:
        """See `DivergenceReplay.divergence`."""
        ratio = log_ratio.exp()
        # log((u + 1) / 2) without the loss of digits near u = 1.
        middle = torch.log1p(log_ratio.expm1() / 2)
        value = ratio * log_ratio - (ratio + 1) * middle
        return value / 2 if self.halved else value
