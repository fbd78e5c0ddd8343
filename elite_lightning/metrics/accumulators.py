"""torchmetrics that collect samples over batches and ranks, and estimate per problem once all are there.

Samples are kept one by one and grouped by problem at the end. So it does not matter which rank drew which sample, in
which order, or that a distributed sampler gave a problem to two ranks to make them even.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from elite_lightning.metrics.estimators import chance_of_miss, pass_at_k, require_samples


def key_id(key: str) -> int:
    """Integer name of a text (a problem's id, a strategy's key) that tensors can carry and all ranks agree on.

    Args:
        key: Any text.

    Returns:
        A signed 64-bit integer; different texts give the same one with probability 2^-64.
    """
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)


class PerProblem(NamedTuple):
    """A metric before its mean over problems, for intervals and for comparing arms problem by problem.

    Args:
        problems: `[problems]`, int64, ascending.
        figures: Name such as `pass@8` to `[problems]`, float64, in the same order.
    """

    problems: NDArray[np.int64]
    figures: dict[str, NDArray[np.float64]]


class _SampleMetric(Metric):
    """Keeps samples as rows of int64, the problem first; a subclass turns them into figures per problem."""

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    name: ClassVar[str]
    columns: ClassVar[int]
    samples: list[Tensor]

    def __init__(self, ks: Sequence[int] = (1, 8, 32, 128), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not ks or min(ks) < 1:
            raise ValueError(f"ks must be one or more numbers of at least 1, got {tuple(ks)}")
        self.ks = tuple(sorted(set(ks)))
        self.add_state("samples", default=[], dist_reduce_fx="cat")
        self._start()

    def reset(self) -> None:
        """Forget all samples."""
        super().reset()
        self._start()

    def compute(self) -> dict[str, Tensor]:
        """Mean over problems by name, such as `pass@8`; scalar float32.

        Raises:
            ValueError: If there are no samples, or fewer than the largest k of some problem.
        """
        figures = self._per_problem().figures
        means = {name: values.mean() for name, values in figures.items()}
        return {name: torch.tensor(mean, dtype=torch.float32, device=self.device) for name, mean in means.items()}

    def per_problem(self) -> PerProblem:
        """Figures of every problem, over all ranks; to be called on every rank or none.

        Raises:
            ValueError: As in `compute`.
        """
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return self._per_problem()

    def _start(self) -> None:
        """Begin with a table of no rows: from an empty list torchmetrics would make up a table of another type."""
        self.samples.append(torch.empty(0, self.columns, dtype=torch.int64, device=self.device))

    def _add(self, *columns: Tensor) -> None:
        """Add rows given as columns."""
        shapes = {tuple(column.shape) for column in columns}
        if len(shapes) != 1 or columns[0].ndim != 1:
            raise ValueError(
                f"a sample metric takes one-dimensional tensors of one length, got shapes {sorted(shapes)}"
            )
        self.samples.append(torch.stack([column.to(self.device, torch.int64) for column in columns], dim=1))

    def _per_problem(self) -> PerProblem:
        """Group what was collected by problem, and estimate for each k."""
        rows = dim_zero_cat(self.samples).cpu().numpy()
        if len(rows) == 0:
            raise ValueError(f"{self.name}@k was asked for before any sample was given")
        problems, problem = np.unique(rows[:, 0], return_inverse=True)
        n = np.bincount(problem)
        for k in self.ks:
            require_samples(n, k)
        return PerProblem(problems, {f"{self.name}@{k}": self._estimate(problem, rows, n, k) for k in self.ks})

    @abstractmethod
    def _estimate(
        self, problem: NDArray[np.int64], rows: NDArray[np.int64], n: NDArray[np.int64], k: int
    ) -> NDArray[np.float64]:
        """Figures `[problems]` from each row's `problem` index, the rows, and each problem's number of samples `n`."""


class PassAtK(_SampleMetric):
    """Unbiased pass@k, averaged over problems; all k from the same samples.

    Source: Chen 2021, arXiv 2107.03374.

    Args:
        ks: Numbers of samples that the metric allows; each problem needs at least as many samples as the largest.
        kwargs: See `torchmetrics.Metric`.

    Raises:
        ValueError: If `ks` is empty or holds a number below 1.
    """

    name = "pass"
    columns = 2

    def update(self, problem: Tensor, correct: Tensor) -> None:
        """Add samples.

        Args:
            problem: `[samples]`, int64; which problem, by index or `key_id`.
            correct: `[samples]`, bool.

        Raises:
            ValueError: If the shapes differ.
        """
        self._add(problem, correct.bool())

    def _estimate(
        self, problem: NDArray[np.int64], rows: NDArray[np.int64], n: NDArray[np.int64], k: int
    ) -> NDArray[np.float64]:
        correct = np.bincount(problem[rows[:, 1] == 1], minlength=len(n))
        return pass_at_k(n, correct, k)


class DistinctStrategies(_SampleMetric):
    """Expected number of distinct correct strategies in k samples (rarefaction), averaged over problems.

    Source: Hurlbert 1971, Ecology 52(4).

    Args:
        ks: See `PassAtK`.
        kwargs: See `torchmetrics.Metric`.

    Raises:
        ValueError: If `ks` is empty or holds a number below 1.
    """

    name = "strategies"
    columns = 3

    def update(self, problem: Tensor, correct: Tensor, strategy: Tensor) -> None:
        """Add samples.

        Args:
            problem: `[samples]`, int64; which problem, by index or `key_id`.
            correct: `[samples]`, bool.
            strategy: `[samples]`, int64; `key_id` of the strategy's key. Not looked at where not correct.

        Raises:
            ValueError: If the shapes differ.
        """
        self._add(problem, correct.bool(), strategy)

    def _estimate(
        self, problem: NDArray[np.int64], rows: NDArray[np.int64], n: NDArray[np.int64], k: int
    ) -> NDArray[np.float64]:
        correct = rows[:, 1] == 1
        keys = np.stack([problem[correct], rows[correct, 2]], axis=1)
        found, counts = np.unique(keys, axis=0, return_counts=True)
        seen = 1.0 - chance_of_miss(n[found[:, 0]], counts, k)
        return np.asarray(np.bincount(found[:, 0], weights=seen, minlength=len(n)), dtype=np.float64)
