"""From judged groups to a file of samples, and from that file to figures with intervals.

The file is the truth: whatever is shown about an evaluation can be computed from it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elite_lightning.errors import UsageError
from elite_lightning.metrics import bootstrap_interval, pass_at_k, rarefied_strategies
from elite_lightning.rollouts import Group
from elite_lightning.run_folder import write_atomically


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


def sample_records(group: Group) -> list[dict[str, Any]]:
    """One record a response, JSON-serialisable.

    Args:
        group: A judged group.
    """
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
    """

    samples: int
    correct: int
    strategies: tuple[int, ...]


def read_counts(path: Path) -> dict[str, ProblemCounts]:
    """Counts by problem from a file of samples, in the file's order.

    Args:
        path: The JSON Lines file.

    Raises:
        UsageError: If a line is broken; names it.
    """
    verdicts: dict[str, list[str | None]] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            record = json.loads(line)
            of_problem = verdicts.setdefault(record["problem_id"], [])
            if record["reason"] != "verifier_failure":
                of_problem.append((record["strategy"] or "") if record["correct"] else None)
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a sample ({error}); evaluate again") from error
    return {problem_id: _count(found) for problem_id, found in verdicts.items()}


def _count(found: Sequence[str | None]) -> ProblemCounts:
    strategies = Counter(strategy for strategy in found if strategy is not None)
    return ProblemCounts(len(found), strategies.total(), tuple(sorted(strategies.values(), reverse=True)))


def per_problem(counts: Mapping[str, ProblemCounts], ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """`pass@k` and `strategies@k` of every problem, in the order of `counts`.

    A problem of which the verifier could not judge at least k samples has no figure: NaN.

    Args:
        counts: Counts by problem.
        ks: Numbers of samples.

    Returns:
        Name to `[problems]`, float64.
    """
    solved = {f"pass@{k}": np.array([_pass_at_k(c, k) for c in counts.values()]) for k in ks}
    return solved | {f"strategies@{k}": np.array([_strategies_at_k(c, k) for c in counts.values()]) for k in ks}


def _pass_at_k(counts: ProblemCounts, k: int) -> float:
    return float(pass_at_k(counts.samples, counts.correct, k)) if counts.samples >= k else float("nan")


def _strategies_at_k(counts: ProblemCounts, k: int) -> float:
    return rarefied_strategies(counts.strategies, counts.samples, k) if counts.samples >= k else float("nan")


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
