"""From judged groups to a file of samples, and from that file to figures with intervals.

The file is the truth: whatever is shown about an evaluation can be computed from it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elite_lightning.errors import UsageError
from elite_lightning.metrics import bootstrap_interval, both_at_k, either_at_k, pass_at_k, rarefied_strategies
from elite_lightning.rollouts import Group
from elite_lightning.run_folder import write_atomically
from elite_lightning.types import AmbiguousDomain, Domain, Problem


class Figure(NamedTuple):
    """A mean over problems and its interval.

    Args:
        mean: The mean.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    mean: float
    low: float
    high: float


def interpretation_count(domain: Domain, problem: Problem) -> int:
    """How many interpretations of a problem are measured; 0 if it is not ambiguous."""
    return domain.interpretation_count(problem) if isinstance(domain, AmbiguousDomain) else 0


def sample_records(group: Group, interpretations: int = 0) -> list[dict[str, Any]]:
    """One record a response, JSON-serialisable.

    Args:
        group: A judged group.
        interpretations: How many the problem has; a response that could not be judged or run answers none of them.
    """
    none = (False,) * interpretations
    return [
        {
            "index": group.index,
            "problem_id": group.problem.id,
            "sample": number,
            "response": completion.text,
            "solution": judgement.solution,
            "correct": judgement.verdict.correct,
            "reward": judgement.verdict.reward,
            "reason": judgement.verdict.reason,
            "strategy": judgement.strategy,
            **({"interpretations": list(judgement.hits or none)} if interpretations else {}),
            "tokens": len(completion.token_ids),
        }
        for number, (completion, judgement) in enumerate(zip(group.completions, group.judgements, strict=True))
    ]


def write_samples(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records sorted by problem and sample, whole or not at all.

    Args:
        path: The JSON Lines file.
        records: Records of all ranks.
    """
    ordered = sorted(records, key=lambda record: (record["index"], record["sample"]))
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in ordered))


@dataclass(frozen=True)
class ProblemCounts:
    """What an evaluation found out about one problem.

    Args:
        samples: Samples that the verifier could judge.
        correct: How many of them are right.
        strategies: How many right ones use each strategy.
        hits: Of an ambiguous problem the interpretations that each sample answers; empty for any other.
    """

    samples: int
    correct: int
    strategies: tuple[int, ...]
    hits: tuple[tuple[bool, ...], ...] = ()


def read_counts(path: Path) -> dict[str, ProblemCounts]:
    """Counts by problem from a file of samples, in the file's order.

    Args:
        path: The JSON Lines file.

    Raises:
        UsageError: If a line is broken; names it.
    """
    found: dict[str, list[_Sample]] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
            of_problem = found.setdefault(record["problem_id"], [])
            if record["reason"] != "verifier_failure":
                strategy = (record["strategy"] or "") if record["correct"] else None
                of_problem.append(_Sample(strategy, tuple(record.get("interpretations", ()))))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a sample ({error}); evaluate again") from error
    return {problem_id: _count(samples) for problem_id, samples in found.items()}


class _Sample(NamedTuple):
    """A judged sample: its strategy, None if it is wrong, and the interpretations that it answers."""

    strategy: str | None
    hits: tuple[bool, ...]


def _count(samples: Sequence[_Sample]) -> ProblemCounts:
    strategies = Counter(sample.strategy for sample in samples if sample.strategy is not None)
    hits = tuple(sample.hits for sample in samples if sample.hits)
    in_order = tuple(sorted(strategies.values(), reverse=True))
    return ProblemCounts(len(samples), strategies.total(), in_order, hits)


def per_problem(counts: Mapping[str, ProblemCounts], ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """`pass@k` and `strategies@k` of every problem, in the order of `counts`.

    If some are ambiguous, also `either@k` and `both@k`, of which the others have no figure. A problem of which the
    verifier could not judge at least k samples has none either: NaN.

    Args:
        counts: Counts by problem.
        ks: Numbers of samples.

    Returns:
        Name to `[problems]`, float64.
    """
    is_ambiguous = any(c.hits for c in counts.values())
    return {
        f"{name}@{k}": np.array([estimate(c, k) if len(samples_of(c)) >= k else np.nan for c in counts.values()])
        for name, (estimate, samples_of) in _FIGURES.items()
        for k in ks
        if is_ambiguous or samples_of is not _ambiguous_samples
    }


def _samples(counts: ProblemCounts) -> Sequence[Any]:
    return range(counts.samples)


def _ambiguous_samples(counts: ProblemCounts) -> Sequence[Any]:
    return counts.hits


_FIGURES: dict[str, tuple[Callable[[ProblemCounts, int], float], Callable[[ProblemCounts], Sequence[Any]]]] = {
    "pass": (lambda c, k: float(pass_at_k(c.samples, c.correct, k)), _samples),
    "strategies": (lambda c, k: rarefied_strategies(c.strategies, c.samples, k), _samples),
    "either": (lambda c, k: either_at_k(c.hits, k), _ambiguous_samples),
    "both": (lambda c, k: both_at_k(c.hits, k), _ambiguous_samples),
}
"""Name to what is estimated, and from which of a problem's samples."""


def figures_of(counts: Mapping[str, ProblemCounts], ks: Sequence[int]) -> dict[str, Figure]:
    """Means over problems with 95 % bootstrap intervals over problems.

    Args:
        counts: Counts by problem.
        ks: Numbers of samples.

    Returns:
        Name such as `pass@8` to its figure; without those that no problem has enough samples for.
    """
    figures = {}
    for name, values in per_problem(counts, ks).items():
        known = values[~np.isnan(values)]
        if known.size:
            figures[name] = Figure(float(known.mean()), *bootstrap_interval(known))
    return figures
