"""The two terms of the loss, built from what a rank has at hand: judged groups, and responses to replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from elite_lightning.batching import TokenBatch, TokenRow
from elite_lightning.objectives import LossOutput, Objective, ReplayObjective, bound, kernel_of
from elite_lightning.rollouts import Group
from elite_lightning.types import Domain
from elite_lightning.update import Term


@dataclass(frozen=True)
class GroupTensors:
    """Judged groups as tensors `[problems, group]`; none of them has a gradient.

    Args:
        groups: Groups of one size.
    """

    groups: Sequence[Group]

    @cached_property
    def rewards(self) -> Tensor:
        """Float32."""
        return self._table(lambda group, j: group.judgements[j].verdict.reward, torch.float32)

    @cached_property
    def counted(self) -> Tensor:
        """Bool; False where our own verifier failed."""
        return self._table(lambda group, j: group.judgements[j].verdict.counted, torch.bool)

    @cached_property
    def correct(self) -> Tensor:
        """Bool."""
        return self._table(lambda group, j: group.judgements[j].verdict.correct, torch.bool)

    @cached_property
    def lengths(self) -> Tensor:
        """Int64; tokens of each response."""
        return self._table(lambda group, j: len(group.completions[j].token_ids), torch.int64)

    @cached_property
    def mean_logprobs(self) -> Tensor:
        """Float32; mean log-probability of each response's tokens under the sampling policy."""
        return self._table(lambda g, j: sum(g.completions[j].logprobs) / len(g.completions[j].logprobs), torch.float32)

    @cached_property
    def strategies(self) -> Tensor:
        """Int64; equal exactly where two correct solutions of one problem share a strategy, -1 where not correct."""
        rows = []
        for group in self.groups:
            names: dict[str | None, int] = {None: -1}
            rows.append([names.setdefault(j.strategy, len(names) - 1) for j in group.judgements])
        return _table(rows, torch.int64)

    def _table(self, value: Callable[[Group, int], float], dtype: torch.dtype) -> Tensor:
        return _table([[value(group, j) for j in range(len(group.completions))] for group in self.groups], dtype)


def _table(rows: list[list[float]] | list[list[int]], dtype: torch.dtype) -> Tensor:
    return torch.tensor(rows, dtype=dtype) if rows else torch.zeros(0, 0, dtype=dtype)


def similarity_of(objective: Objective, groups: Sequence[Group], domain: Domain, device: torch.device) -> Tensor | None:
    """What the objective's kernel says of the groups, `[problems, group, group]`; None if it has no kernel.

    Args:
        objective: Names the kernel.
        groups: Judged groups of one size.
        domain: What their solutions are of.
        device: Where a model may compute.
    """
    kernel = kernel_of(objective)
    if kernel is None:
        return None
    return kernel.of([[judgement.solution for judgement in group.judgements] for group in groups], domain, device)


def advantages_of(objective: Objective, tensors: GroupTensors, similarity: Tensor | None = None) -> Tensor:
    """Advantages `[problems, group]`; empty when there are no groups.

    Args:
        objective: What decides.
        tensors: The judged groups.
        similarity: What `similarity_of` says of them.
    """
    if not tensors.groups:
        return torch.zeros(0, 0)
    return bound(objective, similarity).advantages(
        tensors.rewards,
        tensors.counted,
        strategies=tensors.strategies if objective.needs_strategies else None,
        mean_logprobs=tensors.mean_logprobs,
    )


def policy_count(objective: Objective, tensors: GroupTensors) -> Tensor:
    """This rank's part of the policy term's denominator, float32.

    It counts responses without advantage too, although they are not scored: their loss is 0, their place in the mean
    is not.
    """
    return objective.denominator(_mask(tensors.lengths[tensors.counted].tolist()))


def policy_term(
    objective: Objective,
    groups: Sequence[Group],
    advantages: Tensor,
    denominator: Tensor,
    weight: float,
    reference: Callable[[TokenBatch], Tensor] | None = None,
) -> Term:
    """The policy term over the responses that can move the policy.

    Args:
        objective: Turns log-probabilities and advantages into a loss.
        groups: Judged groups.
        advantages: `[problems, group]`.
        denominator: Global count, scalar.
        weight: Share of this term in the mixture.
        reference: Scores a micro-batch under the reference model; given when the objective needs it. The penalty acts
            on every counted response, so all of them are then scored.
    """
    kept = [
        (group, j, float(advantages[i, j]))
        for i, group in enumerate(groups)
        for j in range(len(group.completions))
        if group.judgements[j].verdict.counted and (reference is not None or advantages[i, j] != 0)
    ]
    rows = [TokenRow(group.prompt_ids, group.completions[j].token_ids) for group, j, _ in kept]

    def loss(batch: TokenBatch, logprobs: Tensor, indices: list[int]) -> LossOutput:
        mask = batch.response_mask
        old = _padded(mask, [kept[i][0].completions[kept[i][1]].logprobs for i in indices])
        # An empty micro-batch has one row, without a response.
        advantage = torch.tensor([kept[i][2] for i in indices] or [0.0], device=logprobs.device)
        ref_logprobs = reference(batch) if reference is not None else None
        return objective.loss(logprobs, old, advantage, mask, denominator, ref_logprobs=ref_logprobs)

    return Term("policy", weight, rows, loss)


def replay_total(objective: ReplayObjective, rows: Sequence[TokenRow], weights: Sequence[float]) -> Tensor:
    """This rank's part of the replay term's denominator, float32."""
    return objective.denominator(_mask([len(row.response_ids) for row in rows]), torch.tensor([*map(float, weights)]))


def replay_term(
    objective: ReplayObjective,
    rows: Sequence[TokenRow],
    weights: Sequence[float],
    denominator: Tensor,
    weight: float,
    base_logprobs: Sequence[Sequence[float]] | None = None,
) -> Term:
    """The replay term over stored responses.

    Args:
        objective: Turns log-probabilities of stored responses into a loss.
        rows: Plain prompts and stored responses of this rank.
        weights: Relative weight of each.
        denominator: Global total, scalar.
        weight: Share of this term in the mixture.
        base_logprobs: Log-probabilities of each response's tokens under the base policy; given when the objective
            needs them.
    """

    def loss(batch: TokenBatch, logprobs: Tensor, indices: list[int]) -> LossOutput:
        mask = batch.response_mask
        # An empty micro-batch has one row, without a response.
        relative = torch.tensor([weights[i] for i in indices] or [0.0], device=logprobs.device)
        base = None if base_logprobs is None else _padded(mask, [base_logprobs[i] for i in indices])
        return objective.loss(logprobs, mask, relative, denominator, base_logprobs=base)

    return Term("replay", weight, rows, loss)


def _mask(lengths: Sequence[int]) -> Tensor:
    """Bool `[rows, longest]`: True on each row's tokens."""
    return torch.arange(max(lengths, default=0))[None, :] < torch.tensor(lengths, dtype=torch.int64)[:, None]


def _padded(mask: Tensor, rows: Sequence[Sequence[float]]) -> Tensor:
    """Float32, of the mask's shape: the rows' values where it is True, 0 elsewhere."""
    padded = torch.zeros(mask.shape, device=mask.device)
    padded[mask] = torch.tensor([value for row in rows for value in row], device=mask.device)
    return padded
