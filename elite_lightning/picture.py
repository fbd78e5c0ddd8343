"""The effect in one picture: pass@k and distinct correct strategies over k, each arm a line with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")  # a run has no screen

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from elite_lightning.evaluation import ProblemCounts, figures_of

# Told apart by eyes that see few colours, and by line style in print (Wong 2011, doi 10.1038/nmeth.1618).
_STYLES = (("#555555", "--"), ("#0072B2", "-"), ("#D55E00", "-."), ("#009E73", ":"), ("#CC79A7", "-"))


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4, ... up to and including `largest`."""
    ks = [2**exponent for exponent in range(largest.bit_length()) if 2**exponent <= largest]
    return ks if ks[-1] == largest else [*ks, largest]


def draw_over_k(arms: Mapping[str, Mapping[str, ProblemCounts]], path: Path, title: str = "") -> None:
    """Draw both metrics over k and write a PNG.

    Args:
        arms: Name of each arm to its counts by problem, in the order of the legend.
        path: The PNG file.
        title: Above the picture.

    Raises:
        ValueError: If there is no arm, or one of them has no sample.
    """
    samples = min((c.samples for counts in arms.values() for c in counts.values()), default=0)
    if not all(arms.values()) or samples < 1:
        raise ValueError("nothing to draw: every arm needs evaluated problems, each with at least one judged sample")
    ks = powers_of_two(samples)
    figure = Figure(figsize=(9.0, 3.8), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, counts), (colour, line) in zip(arms.items(), _STYLES, strict=False):
        figures = figures_of(counts, ks)
        for axes, metric in ((left, "pass"), (right, "strategies")):
            means, lows, highs = (np.array([figures[f"{metric}@{k}"][part] for k in ks]) for part in range(3))
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
