"""Means over problems and seeds with intervals, by drawing both anew.

Every figure has two intervals, which answer two questions.

- *Over problems* (`low`, `high`): had other problems been asked of the same trained policies, where would the mean have
  come out? Problems are drawn anew, each with its mean over seeds. It knows nothing of other training runs: two runs
  of one arm can lie further apart than it is wide.
- *Over problems and seeds* (`low_with_seeds`, `high_with_seeds`): and had training been repeated with other seeds?
  Seeds and problems are drawn anew, independently of each other, for every run has the same problems (the pigeonhole
  bootstrap, Owen 2007, Annals of Applied Statistics 1(2)). A claim about an objective, and not about these runs, needs
  this one. With few seeds it is still too short where seeds differ much: `benchmarks/interval_coverage.py` simulates
  it. With five seeds, 95 % intervals held the truth in 95 % of its studies where seeds differ little, as they do in
  strategies on the bundled benchmark, and in 91 % where they differ three times as much (those over problems alone:
  92 % and 76 %). A single seed has no such interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
"""A metric of one arm, `[seeds, problems]`; NaN where it is not defined."""


@dataclass(frozen=True)
class Figure:
    """A number of an arm, or of two arms compared. NaN where it is not defined.

    Args:
        mean: The mean over problems of each problem's mean over seeds (or what is computed of such means).
        low: Lower end of the interval over problems.
        high: Its upper end.
        low_with_seeds: Lower end of the interval over problems and seeds.
        high_with_seeds: Its upper end.
        by_seed: The same number from each seed alone. Where problems are missing, their mean need not be `mean`.
        seed_deviation: Standard deviation between seeds, with one degree of freedom taken off.
        problems: How many problems have a value in at least one seed.
        pairs: How many (seed, problem) pairs have one.
    """

    mean: float
    low: float
    high: float
    low_with_seeds: float
    high_with_seeds: float
    by_seed: tuple[float, ...]
    seed_deviation: float
    problems: int
    pairs: int


def weighted_means(table: Table, seeds: NDArray[np.float64], problems: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over problems of means over seeds, under weights such as how often each was drawn.

    A (seed, problem) pair without a value takes no part; nor does a problem without any, under these weights.

    Args:
        table: `[seeds, problems]`; NaN where there is no value.
        seeds: `[draws or 1, seeds]`; weights.
        problems: `[draws or 1, problems]`; weights.

    Returns:
        `[draws]`; NaN where nothing is left.
    """
    known = ~np.isnan(table)
    of_problem = seeds @ known
    sums = seeds @ np.where(known, table, 0.0)
    means = np.divide(sums, of_problem, out=np.zeros_like(sums), where=of_problem > 0)
    weights = problems * (of_problem > 0)
    total = weights.sum(axis=1)
    nothing = np.full(total.shape, np.nan)
    return np.asarray(np.divide((weights * means).sum(axis=1), total, out=nothing, where=total > 0))


class Bootstrap:
    """Draws that all figures of a study share, so that they are comparable and are made once.

    Args:
        level: Share of resampled means within an interval.
        resamples: Number of draws.
        seed: Of the draws; equal seeds give equal intervals, for problems those of `metrics.bootstrap_interval`.

    Raises:
        ValueError: If `level` or `resamples` is out of range.
    """

    def __init__(self, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> None:
        if not 0.0 < level < 1.0 or resamples < 1:
            raise ValueError(f"level must lie between 0 and 1 and resamples be at least 1, got {level}, {resamples}")
        self.level, self.resamples, self.seed = level, resamples, seed
        self._draws = cache(self._drawn)

    def figure(self, *tables: Table, of: Callable[..., NDArray[np.float64]] = np.positive) -> Figure:
        """A number of one or more tables of the same seeds and problems.

        Args:
            tables: Each `[seeds, problems]`. Only pairs that have a value in all of them count.
            of: From the tables' means, each `[draws]`, to the number, `[draws]`. It comes after the means, so that a
                ratio is one of means.
        """
        known = ~np.isnan(np.stack(tables)).any(axis=0)
        paired = [np.where(known, table, np.nan) for table in tables]
        (seeds, problems), number = known.shape, _Of(paired, of)
        once, every = np.ones((1, seeds)), np.ones((1, problems))
        drawn = self._draws(problems, 0)
        by_seed = number(np.eye(seeds), every)
        several = seeds > 1  # drawing one seed out of one would pass the interval over problems off as more
        return Figure(
            float(number(once, every)[0]),
            *self._ends(number(once, drawn)),
            *(self._ends(number(self._draws(seeds, 1), drawn)) if several else (np.nan, np.nan)),
            tuple(map(float, by_seed)),
            float(np.std(by_seed, ddof=1)) if several and np.isfinite(by_seed).all() else np.nan,
            int(known.any(axis=0).sum()),
            int(known.sum()),
        )

    def _drawn(self, size: int, stream: int) -> NDArray[np.float64]:
        """`[resamples, size]`; how often each of `size` things was drawn in `size` draws with replacement."""
        generator = np.random.default_rng([self.seed, stream] if stream else self.seed)
        rows = generator.integers(size, size=(self.resamples, size)) + size * np.arange(self.resamples)[:, np.newaxis]
        counts = np.bincount(rows.ravel(), minlength=size * self.resamples)
        return counts.reshape(self.resamples, size).astype(np.float64)

    def _ends(self, numbers: NDArray[np.float64]) -> tuple[float, float]:
        """Of the percentile interval. A draw that has no such number, for want of problems, is left out."""
        told = numbers[~np.isnan(numbers)]
        if not told.size:
            return np.nan, np.nan
        tail = (1.0 - self.level) / 2.0
        with np.errstate(invalid="ignore"):  # an end between two infinite numbers is undefined
            low, high = np.quantile(told, [tail, 1.0 - tail])
        return float(low), float(high)


@dataclass(frozen=True)
class _Of:
    """A number of the means of several tables under given weights."""

    tables: Sequence[Table]
    of: Callable[..., NDArray[np.float64]]

    def __call__(self, seeds: NDArray[np.float64], problems: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.of(*(weighted_means(table, seeds, problems) for table in self.tables))
