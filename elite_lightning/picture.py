"""The effect in one picture: pass@k and distinct correct strategies over k, each arm a line with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")  # a run has no screen

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elite_lightning.evaluation import ProblemCounts, per_problem
from elite_lightning.metrics import bootstrap_interval, powers_of_two

# Told apart by eyes that see few colours, and by line style in print (Wong 2011, doi 10.1038/nmeth.1618).
_STYLES = (("#555555", "--"), ("#0072B2", "-"), ("#D55E00", "-."), ("#009E73", ":"), ("#CC79A7", "-"))


def draw_over_k(arms: Mapping[str, Sequence[Mapping[str, ProblemCounts]]], path: Path, title: str = "") -> None:
    """Draw both metrics over k, with 95 % intervals over problems, and write a PNG.

    Args:
        arms: Name of each arm to the counts by problem of each of its runs, in the order of the legend. Runs of an arm
            have the same problems in the same order; each problem counts with its mean over them.
        path: The PNG file.
        title: Above the picture.

    Raises:
        ValueError: If there is no arm, or one of them has no sample.
    """
    runs = [run for of_arm in arms.values() for run in of_arm]
    samples = min((counts.samples for run in runs for counts in run.values()), default=0)
    if not all(arms.values()) or not all(runs) or samples < 1:
        raise ValueError("nothing to draw: every arm needs evaluated problems, each with at least one judged sample")
    ks = powers_of_two(samples)
    figure = Figure(figsize=(9.0, 3.8), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, of_arm), (colour, line) in zip(arms.items(), _STYLES, strict=False):
        tables = [per_problem(run, ks) for run in of_arm]
        for axes, metric in ((left, "pass"), (right, "strategies")):
            by_problem = [np.mean([table[f"{metric}@{k}"] for table in tables], axis=0) for k in ks]
            means = [values.mean() for values in by_problem]
            lows, highs = zip(*map(bootstrap_interval, by_problem), strict=True)
            axes.plot(ks, means, line, color=colour, label=name)
            axes.fill_between(ks, lows, highs, color=colour, alpha=0.15, linewidth=0)
    _label(left, "pass@k", ks)
    _label(right, "distinct correct strategies", ks)
    left.legend(frameon=False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _label(axes: Axes, what: str, ks: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, [str(k) for k in ks])
    axes.set_xlabel("k samples a problem")
    axes.set_title(what, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)
