"""What is logged about one training step, as means and totals over all ranks. `docs/metrics.md` explains every name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from elite_lightning.dynamic_sampling import Sampled
from elite_lightning.objectives import MeanParts
from elite_lightning.rollouts import Group
from elite_lightning.terms import GroupTensors
from elite_lightning.types import FinishReason
from elite_lightning.update import Term, TermResult


def rollout_metrics(tensors: GroupTensors, advantages: Tensor) -> dict[str, MeanParts]:
    """Metrics of a step's responses on this rank.

    Args:
        tensors: The judged groups.
        advantages: `[problems, group]`.
    """
    counted = tensors.counted
    completions = [c for group in tensors.groups for c in group.completions]
    logprobs = torch.tensor([logprob for c in completions for logprob in c.logprobs])
    return {
        "reward": _mean(tensors.rewards[counted]),
        "correct": _mean(tensors.correct[counted]),
        "groups_without_signal": _mean((advantages == 0).all(dim=-1)),
        "response_tokens": _mean(tensors.lengths),
        "truncated": _mean(torch.tensor([c.finish_reason is FinishReason.LENGTH for c in completions])),
        "verifier_failures": _mean(~counted),
        # The mean surprise of sampled tokens is an unbiased estimate of the policy's entropy, and costs nothing.
        "entropy": _mean(-logprobs),
    }


def sampling_metrics(sampled: Sampled) -> dict[str, MeanParts]:
    """What became of dynamic sampling in a step; nothing where there is none.

    Args:
        sampled: What the step sampled on this rank.
    """
    if sampled.chosen is None:
        return {}
    kept, groups = len(sampled.kept_groups), len(sampled.groups)
    return {
        "rounds": _mean(torch.tensor([len(sampled.rounds)])),
        "groups_kept": MeanParts(torch.tensor(float(kept)), torch.tensor(float(groups))),
        "groups_missing": _mean(torch.tensor([sampled.missing])),
    }


def rollout_counts(groups: Sequence[Group]) -> dict[str, int]:
    """What sampling and judging a step's responses took on this rank.

    A response has to have ended by itself and to hold a solution to be judged. A solution that several responses of a
    group share is one call of the verifier. (It may be none: the pool remembers what earlier steps asked. What it still
    remembers depends on the ranks and on the last restart, so that is not counted here.)

    Args:
        groups: This rank's judged groups.
    """
    lengths = [len(completion.token_ids) for group in groups for completion in group.completions]
    solutions = [[j.solution for j in group.judgements if j.solution is not None] for group in groups]
    return {
        "generations": len(lengths),
        "generated_tokens": sum(lengths),
        "prompt_tokens": sum(len(group.prompt_ids) for group in groups),
        "judged_responses": sum(map(len, solutions)),
        "verifier_calls": sum(len(set(of_group)) for of_group in solutions),
    }


def update_counts(terms: Sequence[Term]) -> dict[str, int]:
    """What this rank scores and differentiates in a step, response by response; prompts are not counted.

    Args:
        terms: The terms of the loss.
    """
    counts = {}
    for term in terms:
        done = {"policy": "scored", "replay": "replayed"}[term.name]
        counts[f"{done}_responses"] = len(term.rows)
        counts[f"{done}_tokens"] = sum(len(row.response_ids) for row in term.rows)
    return counts


def update_metrics(results: Mapping[str, TermResult], stepped: Mapping[str, float]) -> dict[str, MeanParts]:
    """Metrics of the update on this rank, except the losses, which are totals.

    Args:
        results: Term to what became of it.
        stepped: What the optimizer's step reports, the same on every rank.
    """
    merged = {name: parts for result in results.values() for name, parts in result.metrics.items()}
    return merged | {name: _mean(torch.tensor([value])) for name, value in stepped.items()}


def seconds_metrics(seconds: Mapping[str, float]) -> dict[str, MeanParts]:
    """Seconds of the step's parts on this rank."""
    return {f"seconds/{name}": _mean(torch.tensor([value])) for name, value in seconds.items()}


def over_ranks(
    means: Mapping[str, MeanParts], sums: Mapping[str, Tensor | float], reduce_sum: Callable[[Tensor], Tensor]
) -> tuple[dict[str, float], dict[str, float]]:
    """Bring all ranks' numbers together in one exchange.

    Args:
        means: Parts of means on this rank; the same names on every rank.
        sums: Shares of losses, and counts, on this rank; the same names on every rank.
        reduce_sum: Element-wise sum over ranks.

    Returns:
        Means, and sums, over all ranks.
    """
    rows = [[float(p.total), float(p.count)] for p in means.values()] + [[float(v), 1.0] for v in sums.values()]
    table = reduce_sum(torch.tensor(rows)).tolist()
    averaged = {name: total / max(count, 1e-9) for name, (total, count) in zip(means, table, strict=False)}
    return averaged, {name: total for name, (total, _) in zip(sums, table[len(means) :], strict=True)}


def _mean(values: Tensor) -> MeanParts:
    values = values.to(torch.float32)
    return MeanParts(values.sum(), torch.tensor(float(values.numel())))
