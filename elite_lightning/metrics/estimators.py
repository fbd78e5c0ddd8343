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
    return float(np.sum(1.0 - chance_of_miss(n, np.asarray(counts, dtype=np.int64), k)))


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
