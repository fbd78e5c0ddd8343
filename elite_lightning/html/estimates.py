"""Figures with intervals, and differences to a reference: from a study's results, or else from the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elite_lightning.evaluation import per_problem
from elite_lightning.html.arms import Arm
from elite_lightning.metrics import bootstrap_interval, paired_bootstrap_difference

PerProblem = Mapping[str, NDArray[np.float64]]
"""Name of a figure, such as `pass@8`, to `[problems]`: each problem's mean over the runs; NaN where there is none."""


@dataclass(frozen=True)
class Estimate:
    """A figure and how sure it is.

    Args:
        mean: The figure: over problems, and over seeds.
        low: Lower end of the interval over problems.
        high: Upper end of the interval over problems.
        with_seeds: The wider interval, over problems and seeds, where it is known.
        by_seed: The figure of each run alone.
        problems: Problems that have the figure.
    """

    mean: float
    low: float
    high: float
    with_seeds: tuple[float, float] | None = None
    by_seed: tuple[float, ...] = ()
    problems: int | None = None

    @property
    def widest(self) -> tuple[float, float]:
        """The interval that covers most: with seeds where that is known."""
        return self.with_seeds or (self.low, self.high)


@dataclass(frozen=True)
class Estimates:
    """All that the tables show, by arm and name of the figure.

    Args:
        figures: Of each arm.
        differences: Of each arm to the reference.
        ratios: Of each arm to the reference, where a study has them.
        reference: Name of the arm that others are compared to; None with a single arm.
        level: Share of resampled means within an interval.
        resamples: Number of resampled means.
        from_results: Names of arms whose figures are those of `results.json`.
        disagreeing: Arms and figures of which `results.json` holds another mean than the samples give.
    """

    figures: Mapping[str, Mapping[str, Estimate]]
    differences: Mapping[str, Mapping[str, Estimate]]
    ratios: Mapping[str, Mapping[str, Estimate]]
    reference: str | None
    level: float
    resamples: int
    from_results: frozenset[str] = field(default_factory=frozenset)
    disagreeing: Sequence[tuple[str, str]] = ()


def estimates_of(
    arms: Sequence[Arm], ks: Sequence[int], reference: str | None, results: Mapping[str, Any] | None
) -> Estimates:
    """Take over what a study has, and compute the rest.

    Args:
        arms: With counts.
        ks: Numbers of samples.
        reference: Name or label of the arm that others are compared to; None is the study's, else the first arm.
        results: Content of a study's `results.json`.
    """
    given = results or {}
    settings = given.get("settings", {})
    level, resamples = settings.get("level", 0.95), settings.get("resamples", 2000)
    compared = _reference(arms, reference or given.get("reference"))
    tables = {arm.name: mean_over_runs(arm, ks) for arm in arms if arm.counts}
    computed = {arm.name: _figures(arm, tables[arm.name], ks, level, resamples) for arm in arms if arm.counts}
    known = {name: _parsed(arm.get("figures", {})) for name, arm in given.get("arms", {}).items() if name in tables}
    interval = partial(_difference, level=level, resamples=resamples)
    against = tables.get(compared or "", {})
    differences = {name: interval(table, against) for name, table in tables.items() if name != compared}
    return Estimates(
        figures=computed | {name: figures for name, figures in known.items() if figures},
        differences=differences
        | ({n: _parsed(d) for n, d in given.get("differences", {}).items()} if _is_of(given, compared) else {}),
        ratios={n: _parsed(d) for n, d in given.get("ratios", {}).items()} if _is_of(given, compared) else {},
        reference=compared,
        level=level,
        resamples=resamples,
        from_results=frozenset(name for name, figures in known.items() if figures),
        disagreeing=_disagreeing(computed, known),
    )


def mean_over_runs(arm: Arm, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Each problem's figures, averaged over the arm's runs: a further seed is no further problem.

    Args:
        arm: With counts.
        ks: Numbers of samples.

    Returns:
        Name to `[problems]`, float64.
    """
    of_runs = [per_problem(counts, ks) for counts in arm.counts]
    return {name: np.mean([table[name] for table in of_runs], axis=0) for name in of_runs[0]}


def with_interval(values: NDArray[np.float64], level: float, resamples: int) -> Estimate | None:
    """Mean and interval over the problems that have a figure; None if none has."""
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    return Estimate(float(known.mean()), *bootstrap_interval(known, level, resamples), problems=known.size)


def _figures(arm: Arm, table: PerProblem, ks: Sequence[int], level: float, resamples: int) -> dict[str, Estimate]:
    of_runs = [per_problem(counts, ks) for counts in arm.counts]
    found = {}
    for name, values in table.items():
        if (estimate := with_interval(values, level, resamples)) is not None:
            by_seed = tuple(float(np.nanmean(of_run[name])) for of_run in of_runs)
            found[name] = Estimate(estimate.mean, estimate.low, estimate.high, None, by_seed, estimate.problems)
    return found


def _difference(table: PerProblem, reference: PerProblem, level: float, resamples: int) -> dict[str, Estimate]:
    """Paired by problem, over the problems that have both figures."""
    found = {}
    for name in (name for name in table if name in reference):
        both = ~(np.isnan(table[name]) | np.isnan(reference[name]))
        if both.any():
            ends = paired_bootstrap_difference(table[name][both], reference[name][both], level, resamples)
            found[name] = Estimate(*ends, problems=int(both.sum()))
    return found


def _reference(arms: Sequence[Arm], asked: str | None) -> str | None:
    measured = [arm for arm in arms if arm.counts]
    found = next((arm.name for arm in measured if asked in (arm.name, arm.label)), None)
    return found or (measured[0].name if len(measured) > 1 else None)


def _is_of(results: Mapping[str, Any], reference: str | None) -> bool:
    """Whether the study's differences are to the arm that the page compares to."""
    return reference is not None and results.get("reference") == reference


def _parsed(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    """Figures of `results.json`; those without an interval are left out, for nothing can be said with them."""
    return {
        name: Estimate(
            mean=figure["mean"],
            low=figure["low"],
            high=figure["high"],
            with_seeds=_pair(figure.get("low_with_seeds"), figure.get("high_with_seeds")),
            by_seed=tuple(figure.get("by_seed") or ()),
            problems=figure.get("problems"),
        )
        for name, figure in figures.items()
        if None not in (figure.get("mean"), figure.get("low"), figure.get("high"))
    }


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _disagreeing(
    computed: Mapping[str, Mapping[str, Estimate]], known: Mapping[str, Mapping[str, Estimate]]
) -> list[tuple[str, str]]:
    return [
        (arm, name)
        for arm, figures in known.items()
        for name, figure in figures.items()
        if name in computed[arm] and abs(computed[arm][name].mean - figure.mean) > 1e-6
    ]
