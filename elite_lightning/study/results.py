"""From counts to `results.json`: every arm's figures, and its differences and ratios to a reference arm."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.metrics import powers_of_two
from elite_lightning.run_folder import write_atomically
from elite_lightning.study.counts import StudyCounts
from elite_lightning.study.counts_file import write_counts
from elite_lightning.study.resampling import Bootstrap, Figure
from elite_lightning.study.statistics import differences, figures, per_problem, ratios


def results_of(
    counts: StudyCounts,
    reference: str,
    ks: Sequence[int] | None = None,
    correct_ks: Sequence[int] = (2, 4, 8),
    labels: Mapping[str, str] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """All figures of a study, JSON-serialisable; `study.resampling` says what its two intervals are.

    Args:
        counts: What was measured.
        reference: Name of the arm that the others are compared with.
        ks: Numbers of samples; None for the powers of two up to the most that every run has.
        correct_ks: Numbers of correct samples, for the strategies among them.
        labels: Name of each arm to how tables call it; its name if it is not there.
        level: Share of resampled means within an interval.
        resamples: Number of resampled means.
        seed: Of the resampling.

    Returns:
        `reference`, `settings`, `arms` (each with `label`, `runs`, `evaluations`, `seeds`, `paired_seeds`: those that
        it shares with the reference, `figures`), and by arm and metric `differences` (with `seeds_above`: in how many
        paired seeds the arm is above the reference) and `ratios`. null is a number that is not defined.

    Raises:
        UsageError: If the reference is not among the arms, or an arm shares no seed with it.
        ValueError: If `level`, `resamples` or some k is out of range.
    """
    if reference not in counts.arms:
        raise UsageError(f"the reference {reference} is no arm of this study: choose one of {', '.join(counts.arms)}")
    ks, correct_ks = sorted(set(ks or powers_of_two(counts.largest_k))), sorted(set(correct_ks))
    bootstrap = Bootstrap(level, resamples, seed)
    settings = {"level": level, "resamples": resamples, "seed": seed, "ks": ks, "correct_ks": correct_ks}
    arms: dict[str, Any] = {}
    compared: dict[str, dict[str, Any]] = {"differences": {}, "ratios": {}}
    for arm, runs in counts.arms.items():
        paired = _shared_seeds(counts, arm, reference)
        arms[arm] = {
            "label": (labels or {}).get(arm, arm),
            "runs": [run.run for run in runs.values()],
            "evaluations": [run.evaluation for run in runs.values()],
            "seeds": list(runs),
            "paired_seeds": paired,
            "figures": _entries(figures(per_problem(*counts.tables(arm, list(runs)), ks, correct_ks), bootstrap)),
        }
        if arm != reference:
            one, other = (per_problem(*counts.tables(name, paired), ks, correct_ks) for name in (arm, reference))
            compared["differences"][arm] = _with_seeds_above(differences(one, other, bootstrap))
            compared["ratios"][arm] = _entries(ratios(one, other, bootstrap))
    settings |= {"problems": len(counts.problems)}
    return {"reference": reference, "settings": settings, "arms": arms, **compared}


def write_results(study_dir: str | Path, counts: StudyCounts, results: Mapping[str, Any]) -> None:
    """Write `results.json`, and `counts.csv`, from which `read_study_counts` and `results_of` give the same again.

    Args:
        study_dir: The study's folder.
        counts: What was measured.
        results: What `results_of` returned, with whatever was added.
    """
    write_counts(Path(study_dir) / "counts.csv", counts)
    write_atomically(Path(study_dir) / "results.json", json.dumps(results, indent=2, allow_nan=False) + "\n")


def _shared_seeds(counts: StudyCounts, arm: str, reference: str) -> list[int]:
    one, other = counts.arms[arm], counts.arms[reference]
    shared = [seed for seed in one if seed in other]
    if not shared:
        raise UsageError(
            f"arm {arm} and the reference {reference} share no seed (they have {list(one)} and {list(other)}): "
            f"run one of them with the other's seeds"
        )
    return shared


def _with_seeds_above(gaps: Mapping[str, Figure]) -> dict[str, dict[str, Any]]:
    above = {name: sum(gap > 0 for gap in figure.by_seed) for name, figure in gaps.items()}
    return {name: entry | {"seeds_above": above[name]} for name, entry in _entries(gaps).items()}


def _entries(named: Mapping[str, Figure]) -> dict[str, dict[str, Any]]:
    """Figures as JSON: JSON has no NaN and no infinity."""
    return {name: {key: _told(value) for key, value in vars(figure).items()} for name, figure in named.items()}


def _told(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_told(item) for item in value]
    return value if math.isfinite(value) else None
