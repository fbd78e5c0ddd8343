"""Unbiased estimates of what k samples would give, from n >= k samples. Plain numpy in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def chance_of_miss(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    """Probability that k of n items, drawn without replacement, contain none of c marked ones: C(n-c, k) / C(n, k).

    Computed as the product over i < k of (n - c - i) / (n - i), which neither overflows nor cancels, and is exactly 0
    once fewer than k unmarked items exist.

    Args:
        n: Number of items, integers of any shape.
        c: Number of marked items, broadcast against `n`.
        k: Number of draws.

    Returns:
        Float64 of the broadcast shape.

    Raises:
        ValueError: If k is below 1 or above some n, or some c is not within 0..n.
    """
    items, marked = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64))
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if np.any(items < k):
        raise ValueError(
            f"k={k} needs at least {k} samples of every problem, got {int(items.min())}: draw more samples"
        )
    if np.any((marked < 0) | (marked > items)):
        raise ValueError("a count lies outside 0..n: more correct samples than samples, or a negative number")
    miss = np.ones(items.shape, dtype=np.float64)
    for drawn in range(k):
        miss *= (items - marked - drawn) / (items - drawn)  # 0 when the unmarked run out, and 0 from then on
    return miss


def require_samples(n: ArrayLike, k: int) -> None:
    """Refuse a k that the samples cannot answer.

    Args:
        n: Number of samples of each problem, integers of any shape.
        k: Number of samples that the metric allows.

    Raises:
        ValueError: If k is below 1 or above some n.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    fewest = int(np.min(n, initial=k))
    if fewest < k:
        raise ValueError(
            f"k={k} needs at least {k} samples of every problem, got {fewest}: draw more, or ask a smaller k"
        )


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]:
    """Unbiased estimate of the probability that at least one of k samples is correct: 1 - C(n-c, k) / C(n, k).

    Source: Chen 2021, arXiv 2107.03374.

    Args:
        n: Samples per problem, integers of any shape.
        c: Correct samples per problem, broadcast against `n`.
        k: Number of samples that the metric allows.

    Returns:
        Float64 of the broadcast shape.

    Raises:
        ValueError: If k is below 1 or above some n, or some c is not within 0..n.
    """
    return 1.0 - chance_of_miss(n, c, k)


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to and including `largest`."""
    ks = [2**exponent for exponent in range(largest.bit_length()) if 2**exponent <= largest]
    return ks if ks[-1] == largest else [*ks, largest]


def rarefaction(counts: ArrayLike, n: ArrayLike, k: int) -> NDArray[np.float64]:
    """Expected number of kinds among k of n items, without replacement: sum over s of 1 - C(n - n_s, k) / C(n, k).

    The one formula behind `rarefied_strategies` (items are samples) and `strategies_among_correct` (items are correct
    samples), for many problems at once.

    Source: rarefaction, Hurlbert 1971, Ecology 52(4).

    Args:
        counts: `[..., kinds]`; how many of the n items are of each kind. Zeros are allowed and add nothing.
        n: `[...]`; number of items, those of no kind included.
        k: Number of draws.

    Returns:
        `[...]`, float64.

    Raises:
        ValueError: If k is below 1 or above some n, or some count is not within 0..n.
    """
    items = np.asarray(n, dtype=np.int64)[..., np.newaxis]
    return np.asarray(np.sum(1.0 - chance_of_miss(items, counts, k), axis=-1), dtype=np.float64)


def rarefied_strategies(counts: Sequence[int], n: int, k: int) -> float:
    """Unbiased estimate of the number of distinct correct strategies in k samples.

    The sum over strategies s of 1 - C(n - n_s, k) / C(n, k). For k = n it is the plain count, for k = 1 the accuracy.
    It rises with accuracy; `strategies_among_correct` does not.

    Source: rarefaction, Hurlbert 1971, Ecology 52(4).

    Args:
        counts: How many of the n samples are correct and use each strategy; zeros are allowed.
        n: Number of samples, wrong ones included.
        k: Number of samples that the metric allows.

    Returns:
        Expected number of strategies, at most `min(k, len(counts))`.

    Raises:
        ValueError: If k is not within 1..n, or the counts are negative or sum to more than n.
    """
    require_samples(n, k)  # asked here as well, for a problem without any strategy has no count to ask it of
    if sum(counts) > n:
        raise ValueError(f"the strategies' counts sum to {sum(counts)}, more than the {n} samples")
    return float(rarefaction(counts, n, k))


def extra_strategies(counts: Sequence[int], n: int, k: int) -> float:
    """Strategies in k samples beyond the first: `strategies@k - pass@k`, the expected number of further right ways.

    Never below 0, and 0 where every right sample goes the same way. ModeBench calls it extra modes.

    Args:
        counts: See `rarefied_strategies`.
        n: See `rarefied_strategies`.
        k: See `rarefied_strategies`.

    Returns:
        The difference of two unbiased estimates, itself unbiased.

    Raises:
        ValueError: As in `rarefied_strategies`.
    """
    return rarefied_strategies(counts, n, k) - float(pass_at_k(n, sum(counts), k))


def strategies_among_correct(counts: Sequence[int], k: int) -> float:
    """Unbiased estimate of the number of distinct strategies in k correct samples: diversity apart from accuracy.

    Source: rarefaction, Hurlbert 1971, Ecology 52(4), over the correct samples alone.

    Args:
        counts: How many correct samples use each strategy.
        k: Number of correct samples.

    Returns:
        Expected number of strategies.

    Raises:
        ValueError: If there are fewer than k correct samples: leave such a problem out, and report how many remain.
    """
    return rarefied_strategies(counts, int(sum(counts)), k)


def gini_simpson(counts: ArrayLike) -> NDArray[np.float64]:
    """Unbiased estimate of the chance that two correct samples go different ways: 1 - sum n_s (n_s - 1) / (c (c - 1)).

    c is the number of correct samples, n_s how many of them use strategy s. 0 where all go one way, 1 where no two go
    the same. Diversity apart from accuracy, like `strategies_among_correct`, of which it is the figure at k = 2 less 1.
    ModeBench calls it PCMD.

    Source: Simpson 1949, Nature 163.

    Args:
        counts: `[..., strategies]`; how many correct samples use each strategy. Zeros are allowed.

    Returns:
        `[...]`, float64, within 0..1.

    Raises:
        ValueError: If a problem has fewer than 2 correct samples, or a count is negative: leave such a problem out, and
            report how many remain.
    """
    of_strategy = np.asarray(counts, dtype=np.int64)
    correct = of_strategy.sum(axis=-1)
    if np.any(of_strategy < 0) or np.any(correct < 2):
        raise ValueError(
            f"the Gini-Simpson index needs at least 2 correct samples of every problem and no negative count, "
            f"got {int(np.min(correct))} correct: leave that problem out"
        )
    same = (of_strategy * (of_strategy - 1)).sum(axis=-1)
    return np.asarray(1.0 - same / (correct * (correct - 1)), dtype=np.float64)


def effective_strategies(diversity: ArrayLike) -> NDArray[np.float64]:
    """How many equally frequent strategies have this Gini-Simpson index: 1 / (1 - index).

    Infinite at 1, which few samples reach easily: two correct ones that differ are enough. So a mean over problems of
    this number is rarely of use; take the mean of the index first, and this of the mean.

    Source: Hill 1973, Ecology 54(2), order 2; Jost 2007, Ecology 88(10), for averaging before the conversion.

    Args:
        diversity: Of any shape; indices within 0..1. NaN stays NaN.

    Returns:
        Float64 of the same shape, at least 1; infinite where the index is 1.

    Raises:
        ValueError: If an index lies outside 0..1.
    """
    index = np.asarray(diversity, dtype=np.float64)
    if np.any((index < 0) | (index > 1)):
        raise ValueError("a Gini-Simpson index lies within 0..1")
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / (1.0 - index), dtype=np.float64)
