"""Two ways to train for pass@k, the chance that at least one of k responses is right."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from elite_lightning.errors import UsageError
from elite_lightning.objectives.outcomes import advantages_by_outcome, subset_share
from elite_lightning.objectives.policy_gradient import PolicyGradient


def _check_k(k: int) -> int:
    if k < 2:
        raise ValueError(f"k must be at least 2, got {k}: pass@1 is what Grpo with normalise_by_std=false trains for")
    return k


def _check_group(k: int, group: int) -> None:
    if k > group:
        raise UsageError(f"k is {k}, but groups have {group} responses: lower k, or raise responses_per_problem")


class Pkpo(PolicyGradient):
    """PKPO: the unbiased gradient of the expected best reward of k responses, which for rewards in {0, 1} is pass@k.

    `A_i = k * mean over all (k-1)-subsets U of the other n - 1 responses of max(r_i - max_U r, 0)`

    which for rewards in {0, 1} and c right ones is `k C(n-c, k-1) / C(n-1, k-1)` for right ones and 0 for wrong ones;
    it is 0 for all once c > n - k + 1. The mean of `A_i grad log pi(y_i)` over the n counted responses is the
    estimator; it is that of whole sequences with `aggregation: constant` and `constant_length: 1`.

    Source: Walder and Karkhanis 2025, arXiv 2505.15201, the recommended baseline `s^(loo-1)`: what response i adds to
    the k - 1 others. The paper sums over responses where this loss takes the mean, so `A_i` here is n times the paper's
    `s_i`. Annealing of k is left to the user.

    Args:
        k: Responses of which the best counts; from 2 to the group's size. A group with fewer counted responses has no
            estimate and gets 0.
        **loss: See `PolicyGradient`.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(self, k: int = 4, **loss: Any) -> None:
        super().__init__(**loss)
        self.k = _check_k(k)

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,  # noqa: ARG002 - the interface offers more than PKPO looks at
        mean_logprobs: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """What each response adds to the best of k - 1 others; see `Objective.advantages`.

        Raises:
            UsageError: If groups are smaller than `k`.
        """
        group = rewards.shape[-1]
        _check_group(self.k, group)
        # Sorted, the best of a subset is its last: the response at place j is it in C(j, k-2) of the subsets.
        values, order = torch.where(counted, rewards.detach(), torch.inf).sort(dim=-1)
        table = [[self._is_best(place, n) for place in range(group)] for n in counted.sum(dim=-1).tolist()]
        shares = torch.tensor(table, dtype=rewards.dtype, device=rewards.device).reshape(-1, 1, group)
        gain = torch.where(torch.isfinite(values)[:, :, None], values[:, :, None] - values[:, None, :], 0.0)
        ordered = self.k * (gain.clamp(min=0.0) * shares).sum(dim=-1)
        return torch.zeros_like(ordered).scatter(-1, order, ordered)

    def _is_best(self, place: int, responses: int) -> float:
        """Share of (k-1)-subsets of `responses - 1` others whose highest is the one at `place` from below."""
        if responses < self.k:
            return 0.0
        return math.comb(place, self.k - 2) / math.comb(responses - 1, self.k - 1)


class PassAtK(PolicyGradient):
    """Pass@k training: the advantage of a random k-subset's success, shared out to its members, in closed form.

    With n counted responses of which c are right (rewards above 0.5), `R = 1 - C(n-c, k) / C(n, k)` the mean and
    `s = sqrt(R (1 - R))` the standard deviation of a subset's success:
    `A = (1 - R) / s` for right ones, `A = (1 - R - C(n-c-1, k-1) / C(n-1, k-1)) / s` for wrong ones; all 0 if R is 0
    or 1.

    Source: Chen 2025, arXiv 2508.10751. The released code divides by `s + 1e-6`, the paper and this one by s.

    Args:
        k: Responses of a subset; from 2 to the group's size. A group with fewer counted responses gets 0.
        **loss: See `PolicyGradient`.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(self, k: int = 4, **loss: Any) -> None:
        super().__init__(**loss)
        self.k = _check_k(k)

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,  # noqa: ARG002 - the interface offers more than pass@k training looks at
        mean_logprobs: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """Advantages by outcome; see `Objective.advantages`.

        Raises:
            UsageError: If groups are smaller than `k`.
        """
        _check_group(self.k, rewards.shape[-1])
        return advantages_by_outcome(rewards, counted, self._values)

    def _values(self, responses: int, right: int) -> tuple[float, float]:
        wrong = responses - right
        if right == 0 or wrong < self.k:
            return 0.0, 0.0
        failure = subset_share(wrong, self.k, responses)
        deviation = math.sqrt(failure * (1.0 - failure))
        return failure / deviation, (failure - subset_share(wrong - 1, self.k - 1, responses - 1)) / deviation
