"""Metrics of arms problem by problem, their figures, and arms compared. Plain numpy: counts in, numbers out.

Arms are compared pair by pair, same seed and same problem, and both arms are drawn together. There is no sign-flip or
permutation test over seeds: with five seeds its smallest possible two-sided p is 1/16, so it could not reject anything
at 5 %. In how many of the seeds an arm is above is reported instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from elite_lightning.metrics import effective_strategies, gini_simpson, pass_at_k, rarefaction
from elite_lightning.study.resampling import Bootstrap, Figure, Table


def per_problem(
    samples: NDArray[np.int64], strategies: NDArray[np.int64], ks: Sequence[int], correct_ks: Sequence[int]
) -> dict[str, Table]:
    """Every metric of every seed and problem, NaN where there are too few samples, or too few correct ones, for it.

    - `pass@k`, `strategies@k` and `extra_strategies@k`, their difference: from problems with at least k samples.
    - `strategies_among_correct@k`: from those with at least k correct samples.
    - `gini_simpson`: from those with at least 2 correct samples.

    Args:
        samples: `[seeds, problems]`; judged samples.
        strategies: `[seeds, problems, strategies]`; correct samples of each strategy, filled up with zeros.
        ks: Numbers of samples.
        correct_ks: Numbers of correct samples.

    Returns:
        Name to `[seeds, problems]`.
    """
    correct = strategies.sum(axis=-1)
    at = {k: samples >= k for k in ks}
    solved = {k: _fill(at[k], pass_at_k(samples[at[k]], correct[at[k]], k)) for k in ks}
    found = {k: _fill(at[k], rarefaction(strategies[at[k]], samples[at[k]], k)) for k in ks}
    enough = {k: correct >= k for k in {2, *correct_ks}}
    among = {k: _fill(enough[k], rarefaction(strategies[enough[k]], correct[enough[k]], k)) for k in correct_ks}
    return {
        **{f"pass@{k}": table for k, table in solved.items()},
        **{f"strategies@{k}": table for k, table in found.items()},
        **{f"extra_strategies@{k}": found[k] - solved[k] for k in ks},
        **{f"strategies_among_correct@{k}": table for k, table in among.items()},
        "gini_simpson": _fill(enough[2], gini_simpson(strategies[enough[2]])),
    }


def _fill(where: NDArray[np.bool_], values: NDArray[np.float64]) -> Table:
    table = np.full(where.shape, np.nan)
    table[where] = values
    return table


CONVERSIONS: dict[str, tuple[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]]] = {
    "effective_strategies": ("gini_simpson", effective_strategies),
}
"""Figures made of another metric's mean, and not problem by problem: name to that metric and the conversion."""


def figures(tables: dict[str, Table], bootstrap: Bootstrap) -> dict[str, Figure]:
    """Figures of one arm.

    Args:
        tables: What `per_problem` returns.
        bootstrap: The draws.
    """
    means = {name: bootstrap.figure(table) for name, table in tables.items()}
    return means | {name: bootstrap.figure(tables[source], of=of) for name, (source, of) in CONVERSIONS.items()}


def differences(arm: dict[str, Table], reference: dict[str, Table], bootstrap: Bootstrap) -> dict[str, Figure]:
    """Arm minus reference, from the (seed, problem) pairs where both have a value.

    Args:
        arm: What `per_problem` returns.
        reference: The same of the reference, with the same seeds and problems in the same order.
        bootstrap: The draws.
    """
    means = {name: bootstrap.figure(arm[name], reference[name], of=np.subtract) for name in arm}
    for name, (source, convert) in CONVERSIONS.items():
        means[name] = bootstrap.figure(
            arm[source], reference[source], of=lambda one, other, convert=convert: convert(one) - convert(other)
        )
    return means


def ratios(arm: dict[str, Table], reference: dict[str, Table], bootstrap: Bootstrap) -> dict[str, Figure]:
    """Arm over reference, means over means, of the numbers of strategies; else as in `differences`."""
    names = [name for name in arm if name.startswith("strategies")]
    return {name: bootstrap.figure(arm[name], reference[name], of=np.divide) for name in names}
