"""The page's pictures: each is drawn once, for the page as SVG and for slides as PNG."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")  # a report has no screen

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from elite_lightning.html.curves import Curve
from elite_lightning.html.estimates import Estimate
from elite_lightning.html.svg import svg_of

# The base policy's colour, then those of the arms; told apart by eyes that see few colours (Wong 2011, doi
# 10.1038/nmeth.1618), and by line style besides. The page's style sheet has a second set for dark mode.
COLOURS = ("#5c6066", "#0072b2", "#d55e00", "#009e73", "#b8558f", "#b07800", "#3a9bd0", "#6a51a3", "#8c564b")
_LINES = ("--", "-", "-.", "-", "--", "-", "-.", "-", "--")
INK, FAINT = "#1b1c1f", "#d4d7dc"
_VARIABLES = {INK: "--ink", FAINT: "--grid"} | {colour: f"--arm-{i}" for i, colour in enumerate(COLOURS)}
WIDTH = 4.4  # inches: the letters of a picture as wide as a phone are then as large as the page's
_SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "text.parse_math": False,  # a label with dollar signs is a label
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
}


@dataclass(frozen=True)
class Picture:
    """A picture in the page.

    Args:
        key: Short name: of the PNG file, and within the page.
        title: What it shows.
        caption: How it is to be read.
        files: Names of the files that it is made of.
        svg: The `<svg>` element.
        png: Name of the PNG file, from the page's folder.
    """

    key: str
    title: str
    caption: str
    svg: str
    png: str
    files: Sequence[str]


@dataclass(frozen=True)
class Style:
    """How one arm is drawn, the same in every picture."""

    colour: str
    line: str


def style_of(number: int) -> Style:
    """The style of an arm.

    Args:
        number: 0 for the base policy, then 1, 2, ...; beyond the last colour they begin again, without the base's.
    """
    number = number if number < len(COLOURS) else 1 + (number - 1) % (len(COLOURS) - 1)
    return Style(COLOURS[number], _LINES[number])


def picture(figure: Figure, key: str, title: str, caption: str, folder: Path, files: Sequence[str]) -> Picture:
    """Write the PNG, and make the SVG of the page.

    Args:
        figure: What was drawn.
        key: Name of the picture.
        title: What it shows.
        caption: How it is to be read.
        folder: Where the PNG goes.
        files: Names of the files that it is made of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(folder / f"{key}.png", dpi=200)
        figure.set_layout_engine("none")  # the PNG's layout stays, which takes as long as all the rest
        svg = svg_of(figure, key, title, _VARIABLES)
    return Picture(key, title, caption, svg, f"{folder.name}/{key}.png", files)


def draw_kept(
    panels: Mapping[str, Mapping[str, Estimate]], labels: Mapping[str, str], styles: Mapping[str, Style], line: str
) -> Figure:
    """The decisive picture: a row an arm, a panel a figure, each with its interval.

    Args:
        panels: Title of each panel to the arms' figures.
        labels: Name of each arm to what people call it, from the top down.
        styles: Name of each arm to its style.
        line: Name of the arm whose figures are drawn through as a line, to be compared to.
    """
    with _figure(0.45 * len(labels) + 1.2) as figure:
        many = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for axes, (title, figures) in zip(many, panels.items(), strict=True):
            axes.set_title(title, linespacing=1.3)
            axes.grid(axis="y", visible=False)
            if line in figures:
                ends, mean = (list(labels).index(line), len(labels) - 0.5), figures[line].mean
                axes.plot((mean, mean), ends, color=styles[line].colour, linestyle=":", linewidth=1.2)
            for row, name in enumerate(labels):
                if name in figures:
                    _draw_row(axes, row, figures[name], styles[name])
            axes.margins(x=0.12)
            axes.xaxis.set_major_locator(MaxNLocator(4))
        many[0].set_yticks(range(len(labels)), [textwrap.fill(label, 16) for label in labels.values()])
        many[0].set_ylim(len(labels) - 0.5, -0.65)
        return figure


def _draw_row(axes: Axes, row: int, estimate: Estimate, style: Style) -> None:
    """Thick for the interval over problems, thin for the one over problems and seeds."""
    axes.plot(estimate.widest, (row, row), color=style.colour, linewidth=1.2)
    axes.plot((estimate.low, estimate.high), (row, row), color=style.colour, linewidth=3.0)
    axes.plot([estimate.mean], [row], "o", color=style.colour, markersize=6)
    offset: dict[str, Any] = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 9}
    axes.annotate(f"{estimate.mean:.2f}", (estimate.mean, row), **offset)


def draw_over_k(
    arms: Mapping[str, Sequence[Estimate]], ks: Sequence[int], labels: Mapping[str, str], styles: Mapping[str, Style]
) -> Figure:
    """A figure over k, each arm a line with its interval.

    Args:
        arms: Name of each arm to its figures, one a k.
        ks: Numbers of samples.
        labels: Name of each arm to what people call it.
        styles: Name of each arm to its style.
    """
    curves = {name: _over(ks, figures) for name, figures in arms.items()}
    with _figure(3.1, len(labels)) as figure:
        axes = _draw_curves(figure, curves, labels, styles, "k samples a problem", "." if len(ks) > 1 else "o")
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.minorticks_off()
        return figure


def _over(ks: Sequence[int], figures: Sequence[Estimate]) -> Curve:
    table = np.array([(figure.mean, figure.low, figure.high) for figure in figures])
    return Curve(np.array(ks, dtype=np.float64), *table.T)


def draw_curves(
    curves: Mapping[str, Curve], labels: Mapping[str, str], styles: Mapping[str, Style], below: str
) -> Figure:
    """Curves over steps or attempts, each with its band.

    Args:
        curves: Name of each arm to its curve.
        labels: Name of each arm to what people call it.
        styles: Name of each arm to its style.
        below: What the horizontal axis counts.
    """
    shown = {name: label for name, label in labels.items() if name in curves}
    with _figure(2.7, len(shown)) as figure:
        axes = _draw_curves(figure, curves, shown, styles, below, "")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        return figure


@contextmanager
def _figure(height: float, in_legend: int = 0) -> Iterator[Figure]:
    with matplotlib.rc_context(_SETTINGS):
        yield Figure(figsize=(WIDTH, height + 0.2 * ((in_legend + 1) // 2)), layout="constrained")


def _draw_curves(
    figure: Figure,
    curves: Mapping[str, Curve],
    labels: Mapping[str, str],
    styles: Mapping[str, Style],
    below: str,
    marker: str,
) -> Axes:
    axes: Axes = figure.subplots()
    for name, label in labels.items():
        curve, style = curves[name], styles[name]
        axes.fill_between(curve.at, curve.low, curve.high, color=style.colour, alpha=0.16, linewidth=0)
        shape: dict[str, Any] = {"linestyle": style.line, "marker": marker, "linewidth": 1.8}
        axes.plot(curve.at, curve.mean, color=style.colour, label=textwrap.shorten(label, 26, placeholder="…"), **shape)
    axes.set_xlabel(below)
    figure.legend(loc="outside lower center", ncols=min(2, len(labels)), handlelength=2.6, columnspacing=1.2)
    return axes
