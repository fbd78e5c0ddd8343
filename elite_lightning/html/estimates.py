"""Figures with intervals, and differences to a reference: from a study's results, or else from the samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
        by_seed: The figure of each run alone; None for a run without one.
        problems: Problems that have the figure.
        seeds_above: Of a difference, in how many seeds the arm lies above the reference.
    """

    mean: float
    low: float
    high: float
    with_seeds: tuple[float, float] | None = None
    by_seed: tuple[float | None, ...] = ()
    problems: int | None = None
    seeds_above: int | None = None

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
    known = _of_results(given, "figures", tables)
    compares = compared is not None and given.get("reference") == compared
    gaps, ratios = (_of_results(given, part, tables) if compares else {} for part in ("differences", "ratios"))
    interval, against = partial(_difference, level=level, resamples=resamples), tables.get(compared or "", {})
    return Estimates(
        figures={
            arm.name: known.get(arm.name, {})
            | _figures(arm, _without(tables[arm.name], known.get(arm.name, {})), ks, level, resamples)
            for arm in arms
            if arm.counts
        },
        differences={
            name: interval(_without(table, gaps.get(name, {})), against) | gaps.get(name, {})
            for name, table in tables.items()
            if name != compared
        },
        ratios=ratios,
        reference=compared,
        level=level,
        resamples=resamples,
        from_results=frozenset(known),
        disagreeing=_disagreeing(tables, known),
    )


def _of_results(results: Mapping[str, Any], part: str, arms: Iterable[str]) -> dict[str, dict[str, Estimate]]:
    """Figures, differences or ratios of the arms that have some there."""
    if part == "figures":
        by_arm = {name: arm.get("figures", {}) for name, arm in results.get("arms", {}).items()}
    else:
        by_arm = results.get(part, {})
    return {name: parsed for name in arms if (parsed := _parsed(by_arm.get(name, {})))}


def _without(table: PerProblem, names: Iterable[str]) -> PerProblem:
    """What is still to be computed."""
    return {name: values for name, values in table.items() if name not in set(names)}


def mean_over_runs(arm: Arm, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Each problem's figures, averaged over the runs that have one: a further seed is no further problem.

    Args:
        arm: With counts.
        ks: Numbers of samples.

    Returns:
        Name to `[problems]`, float64.
    """
    of_runs = [per_problem(counts, ks) for counts in arm.counts]
    return {name: _mean_of_known(np.array([table[name] for table in of_runs])) for name in of_runs[0]}


def _mean_of_known(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the first axis of what is no NaN; NaN where there is nothing."""
    known = ~np.isnan(table)
    means: NDArray[np.float64] = np.full(table.shape[1:], np.nan)
    np.divide(np.where(known, table, 0.0).sum(axis=0), known.sum(axis=0), out=means, where=known.any(axis=0))
    return means


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
            alone = [float(_mean_of_known(of_run[name])) for of_run in of_runs]
            by_seed = tuple(None if np.isnan(mean) else mean for mean in alone)
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
            seeds_above=figure.get("seeds_above"),
        )
        for name, figure in figures.items()
        if None not in (figure.get("mean"), figure.get("low"), figure.get("high"))
    }


def _pair(low: float | None, high: float | None) -> tuple[float, float] | None:
    return None if low is None or high is None else (low, high)


def _disagreeing(
    tables: Mapping[str, PerProblem], known: Mapping[str, Mapping[str, Estimate]]
) -> list[tuple[str, str]]:
    """Arms and figures of which the samples give another mean."""
    means = {arm: {name: float(_mean_of_known(v)) for name, v in tables[arm].items()} for arm in known}
    return [
        (arm, name)
        for arm, figures in known.items()
        for name, figure in figures.items()
        if abs(means[arm].get(name, figure.mean) - figure.mean) > 1e-6
    ]
