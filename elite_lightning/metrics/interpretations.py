"""Coverage of an ambiguous question's interpretations: either@k and both@k, unbiased from n >= k samples.

With n samples, of which the set H_i answers interpretation i, and k of the n drawn without replacement, every subset
of size k is equally likely, and C(n - h, k) of the C(n, k) subsets avoid a given set of h samples. Hence

    either@k = P(some interpretation is answered) = 1 - C(n - |H_1 u ... u H_m|, k) / C(n, k)
    both@k   = P(every interpretation is answered)
             = sum over subsets S of {1..m} of (-1)^|S| C(n - |union of H_i for i in S|, k) / C(n, k)

the second by inclusion and exclusion over the events "no sample of H_i is drawn". For m = 2 and disjoint H_1, H_2 it
is 1 - C(n-a,k)/C(n,k) - C(n-b,k)/C(n,k) + C(n-a-b,k)/C(n,k). Averaging over all subsets of n i.i.d. samples is what
makes both unbiased for k i.i.d. samples (a U-statistic, Hoeffding 1948), as for pass@k (Chen 2021, arXiv 2107.03374).
The metric is AmbiQT's coverage (Bhaskar 2023, arXiv 2310.13659), which looks at the first k of a beam instead.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import combinations
from math import comb
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from elite_lightning.metrics.accumulators import _SampleMetric
from elite_lightning.metrics.estimators import require_samples

MAX_INTERPRETATIONS = 16


def either_at_k(hits: ArrayLike, k: int) -> float:
    """Unbiased estimate of the probability that k samples answer at least one interpretation.

    Args:
        hits: `[samples, interpretations]`, bool; which interpretations each sample answers.
        k: Number of samples that the metric allows.

    Returns:
        A float64, correctly rounded.

    Raises:
        ValueError: If k is not within 1..samples, or `hits` is not of that shape.
    """
    answered = _checked(hits, k)
    n, missing = len(answered), int((~answered.any(axis=1)).sum())
    return (comb(n, k) - comb(missing, k)) / comb(n, k)


def both_at_k(hits: ArrayLike, k: int) -> float:
    """Unbiased estimate of the probability that k samples answer every interpretation, however many there are.

    The alternating sum is taken over integers, so that nothing cancels.

    Args:
        hits: See `either_at_k`; at most 16 interpretations.
        k: See `either_at_k`.

    Returns:
        A float64, correctly rounded.

    Raises:
        ValueError: As in `either_at_k`, or if there are too many interpretations.
    """
    answered = _checked(hits, k)
    n, m = answered.shape
    drawn = 0
    for size in range(m + 1):
        for some in combinations(range(m), size):
            drawn += (-1) ** size * comb(n - int(answered[:, some].any(axis=1).sum()), k)
    return drawn / comb(n, k)


def _checked(hits: ArrayLike, k: int) -> NDArray[np.bool_]:
    answered = np.asarray(hits, dtype=bool)
    if answered.ndim != 2 or not 0 < answered.shape[1] <= MAX_INTERPRETATIONS:
        raise ValueError(
            f"hits must be [samples, interpretations] with 1 to {MAX_INTERPRETATIONS} interpretations, "
            f"got shape {answered.shape}"
        )
    require_samples([len(answered)], k)
    return answered


class _CoverageMetric(_SampleMetric):
    """Keeps which interpretations each sample answers, as the bits of an integer beside their number."""

    columns = 3

    def update(self, problem: Tensor, hits: Tensor) -> None:
        """Add samples.

        Args:
            problem: `[samples]`, int64; which problem, by index or `key_id`.
            hits: `[samples, interpretations]`, bool; problems with another number of interpretations come in
                another call.

        Raises:
            ValueError: If the shapes do not fit, or there are more than 16 interpretations.
        """
        if hits.ndim != 2 or not 0 < hits.shape[1] <= MAX_INTERPRETATIONS:
            raise ValueError(f"hits must be [samples, 1 to {MAX_INTERPRETATIONS}], got shape {tuple(hits.shape)}")
        bits = 2 ** torch.arange(hits.shape[1], device=hits.device)
        self._add(problem, (hits.long() * bits).sum(dim=1), torch.full_like(problem, hits.shape[1]))

    def _estimate(
        self, problem: NDArray[np.int64], rows: NDArray[np.int64], n: NDArray[np.int64], k: int
    ) -> NDArray[np.float64]:
        figures = []
        for index in range(len(n)):
            own = rows[problem == index]
            bits = np.arange(own[:, 2].max())
            figures.append(self._of_problem((own[:, 1:2] >> bits) & 1, k))
        return np.array(figures, dtype=np.float64)

    @abstractmethod
    def _of_problem(self, hits: NDArray[np.int64], k: int) -> float:
        """One problem's figure from `hits`, `[samples, interpretations]`."""


class EitherAtK(_CoverageMetric):
    """Unbiased either@k, averaged over problems; all k from the same samples.

    Args:
        ks: Numbers of samples that the metric allows; each problem needs at least as many samples as the largest.
        kwargs: See `torchmetrics.Metric`.

    Raises:
        ValueError: If `ks` is empty or holds a number below 1.
    """

    name: ClassVar[str] = "either"

    def _of_problem(self, hits: NDArray[np.int64], k: int) -> float:
        return either_at_k(hits, k)


class BothAtK(_CoverageMetric):
    """Unbiased both@k, averaged over problems; all k from the same samples.

    Args:
        ks: See `EitherAtK`.
        kwargs: See `torchmetrics.Metric`.

    Raises:
        ValueError: If `ks` is empty or holds a number below 1.
    """

    name: ClassVar[str] = "both"

    def _of_problem(self, hits: NDArray[np.int64], k: int) -> float:
        return both_at_k(hits, k)
