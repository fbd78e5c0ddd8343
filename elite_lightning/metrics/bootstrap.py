"""Percentile bootstrap over problems: how far a mean over problems might have come out otherwise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Interval(NamedTuple):
    """An interval.

    Args:
        low: Lower end.
        high: Upper end.
    """

    low: float
    high: float


class Difference(NamedTuple):
    """A difference of two means with its interval.

    Args:
        mean: First minus second.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


def bootstrap_interval(values: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Percentile interval of the mean, by drawing problems anew with replacement.

    It covers the choice of problems, not the training run: several seeds are a separate question.

    Source: Efron 1979, Annals of Statistics 7(1).

    Args:
        values: `[problems]`; one figure per problem.
        level: Share of resampled means within the interval.
        resamples: Number of resampled means.
        seed: Of the draws; equal seeds give equal intervals.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: If there are no values, one is not finite, or `level` or `resamples` is out of range.
    """
    figures = np.asarray(values, dtype=np.float64)
    _check(figures, level, resamples)
    generator = np.random.default_rng(seed)
    # One resample at a time: a [resamples, problems] table of indices would be large for nothing.
    means = [figures[generator.integers(figures.size, size=figures.size)].mean() for _ in range(resamples)]
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(float(low), float(high))


def paired_bootstrap_difference(
    first: ArrayLike, second: ArrayLike, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Difference:
    """Difference of two arms' means on the same problems, with its percentile interval.

    Each resample draws the same problems for both arms. That removes the problems' own spread, which two separate
    intervals would count twice.

    Args:
        first: `[problems]`; the first arm's figure per problem.
        second: `[problems]`; the second arm's, problem by problem in the same order.
        level: See `bootstrap_interval`.
        resamples: See `bootstrap_interval`.
        seed: See `bootstrap_interval`.

    Returns:
        `mean(first) - mean(second)` and the ends of its interval.

    Raises:
        ValueError: If the arms differ in their number of problems, or as in `bootstrap_interval`.
    """
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape:
        raise ValueError(f"paired arms need the same problems, got {one.size} and {other.size} figures")
    gaps = one - other
    interval = bootstrap_interval(gaps, level, resamples, seed)
    return Difference(float(gaps.mean()), interval.low, interval.high)


def _check(figures: NDArray[np.float64], level: float, resamples: int) -> None:
    """Refuse input that would give NaN or nonsense."""
    if figures.ndim != 1 or figures.size == 0:
        raise ValueError(f"a bootstrap needs one figure per problem and at least one, got shape {figures.shape}")
    if not np.isfinite(figures).all():
        raise ValueError("a bootstrap needs finite figures: leave out problems without one, and say how many")
    if not 0.0 < level < 1.0 or resamples < 1:
        raise ValueError(f"level must lie between 0 and 1 and resamples be at least 1, got {level} and {resamples}")
