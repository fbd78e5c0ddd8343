"""The results of a study for people: Markdown for a page, and the same for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

# Below it, intervals over seeds are markedly too short (`benchmarks/interval_coverage.py`).
_FEW_SEEDS = 5


class Column(NamedTuple):
    """What a column shows.

    Args:
        metric: Name of the figure.
        title: Head of the column.
        places: Decimal places.
        part: `figures`, `differences` or `ratios`.
    """

    metric: str
    title: str
    places: int
    part: str


def markdown(results: Mapping[str, Any], with_seeds: bool | None = None) -> str:
    """Two tables, arms as rows: figures, and differences to the reference; what they mean stands below each.

    Args:
        results: What `results_of` returned or `results.json` holds.
        with_seeds: Whether intervals are those over problems and seeds, or over problems alone. None for the first
            wherever every arm has two seeds or more. The text says which.
    """
    if with_seeds is None:
        with_seeds = has_seeds(results)
    figures = [_row(results, arm, columns(results, "figures"), with_seeds) for arm in results["arms"]]
    blocks = [_lines(["arm", *(c.title for c in columns(results, "figures"))], figures), _about(results, with_seeds)]
    if results["differences"]:
        compared = columns(results, "differences")
        rows = [_row(results, arm, compared, with_seeds) for arm in results["differences"]]
        blocks += [_lines([f"minus {_label(results)}", *(c.title for c in compared)], rows), _compared(results)]
    return "\n\n".join(blocks) + "\n"


def show(results: Mapping[str, Any], console: Console | None = None, with_seeds: bool | None = None) -> None:
    """Print the tables of `markdown`, each interval below its mean.

    Args:
        results: See `markdown`.
        console: Where to print; the terminal if None.
        with_seeds: See `markdown`.
    """
    console = console or Console()
    if with_seeds is None:
        with_seeds = has_seeds(results)
    console.print(_terminal_table("arm", results, "figures", results["arms"], with_seeds))
    console.print(_about(results, with_seeds), highlight=False)
    if results["differences"]:
        head = f"minus {_label(results)}"
        console.print(_terminal_table(head, results, "differences", results["differences"], with_seeds))
        console.print(_compared(results), highlight=False)


def has_seeds(results: Mapping[str, Any]) -> bool:
    """Whether every arm, and every comparison, has two seeds or more."""
    return all(len(arm["paired_seeds"]) > 1 for arm in results["arms"].values())


def columns(results: Mapping[str, Any], part: str) -> list[Column]:
    """The columns of a table: few k of pass@k, and the strategies of the largest.

    Args:
        results: See `markdown`.
        part: `figures` or `differences`.
    """
    ks, correct_ks = results["settings"]["ks"], results["settings"]["correct_ks"]
    shown = [k for k in ks if k in {1, 8, ks[-1]}]
    strategies = f"strategies@{ks[-1]}"
    ratio = [Column(strategies, f"ratio of {strategies}", 2, "ratios")] if part == "differences" else []
    middle = correct_ks[len(correct_ks) // 2 :][:1]
    return [
        *(Column(f"pass@{k}", f"pass@{k}", 3, part) for k in shown),
        Column(strategies, strategies, 2, part),
        *ratio,
        *(Column(f"strategies_among_correct@{k}", f"strategies in {k} correct", 2, part) for k in middle),
    ]


def _label(results: Mapping[str, Any], arm: str | None = None) -> str:
    return str(results["arms"][arm or results["reference"]]["label"])


def _row(results: Mapping[str, Any], arm: str, shown: Iterable[Column], with_seeds: bool) -> list[str]:
    cells = (_cell(results, arm, column, with_seeds) for column in shown)
    return [_label(results, arm), *(" ".join(filter(None, (c.mean, c.interval, c.above))) for c in cells)]


class Cell(NamedTuple):
    """The parts of a cell.

    Args:
        mean: The mean.
        interval: In brackets.
        above: Of a difference, in how many of the seeds the arm is above, such as `(2/3)`; else empty.
    """

    mean: str
    interval: str
    above: str


def _cell(results: Mapping[str, Any], arm: str, column: Column, with_seeds: bool, is_narrow: bool = False) -> Cell:
    figures = results["arms"][arm]["figures"] if column.part == "figures" else results[column.part][arm]
    figure = figures[column.metric]
    if figure["mean"] is None:
        return Cell("-", "", "")
    is_difference = column.part == "differences"
    ends = [figure[f"{end}_with_seeds" if with_seeds else end] for end in ("low", "high")]
    places, comma = (2, ",") if is_narrow else (column.places, ", ")
    shown = comma.join("-" if end is None else number(end, places) for end in ends)
    seeds = sum(gap is not None for gap in figure["by_seed"])
    above = f"({figure['seeds_above']}/{seeds})" if is_difference else ""
    return Cell(number(figure["mean"], column.places, "+" if is_difference else ""), f"[{shown}]", above)


def number(value: float, places: int, sign: str = "") -> str:
    """A number without a zero before the point, such as -.005.

    Args:
        value: The number.
        places: Decimal places.
        sign: `+` to show it for positive numbers too.
    """
    rounded = round(value, places) + 0.0  # no minus before a zero
    text = f"{rounded:{sign}.{places}f}"
    return text.replace("0.", ".", 1) if abs(rounded) < 1 else text


def _lines(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _terminal_table(head: str, results: Mapping[str, Any], part: str, arms: Iterable[str], with_seeds: bool) -> Table:
    """Two lines an arm: means, and intervals with fewer decimal places. Ratios would not fit."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(head, overflow="fold")
    shown = [column for column in columns(results, part) if column.part == part]
    for column in shown:
        table.add_column(column.title.replace("strategies", "strategies\n", 1), justify="right", no_wrap=True)
    for arm in arms:
        cells = [_cell(results, arm, column, with_seeds, is_narrow=True) for column in shown]
        table.add_row(_label(results, arm), *(f"{c.mean} {c.above}".strip() + f"\n{c.interval}" for c in cells))
    return table


def _about(results: Mapping[str, Any], with_seeds: bool) -> str:
    settings, arms = results["settings"], results["arms"]
    seeds = _range([len(arm["seeds"]) for arm in arms.values()])
    over = "problems and seeds" if with_seeds else "problems of the means over seeds, which know nothing of other seeds"
    eligible = _eligible(results, {name: arm["figures"] for name, arm in arms.items()}, "an arm")
    return (
        f"Means over {settings['problems']} problems and {seeds} {'seed' if seeds == '1' else 'seeds'}, with "
        f"{100 * settings['level']:g} % bootstrap intervals over {over}.{eligible}{_limits(results, with_seeds)}"
    )


def _limits(results: Mapping[str, Any], with_seeds: bool) -> str:
    """What the intervals do not cover, and other things to know before believing them."""
    settings, arms = results["settings"], results["arms"]
    said = []
    if with_seeds and min(len(arm["seeds"]) for arm in arms.values()) < _FEW_SEEDS:
        said.append("With so few seeds, intervals are too short where seeds differ much.")
    shared = [arm["label"] for arm in arms.values() if arm.get("search") is not None]
    if shared:
        said.append(
            f"All seeds of {', '.join(shared)} start from one search (seed {settings['search_seed']}); "
            "no interval covers another search."
        )
    if len(settings.get("code", [])) > 1:
        said.append(
            f"The runs were made by {len(settings['code'])} versions of the code: {', '.join(settings['code'])}."
        )
    return "".join(f" {sentence}" for sentence in said)


def _eligible(results: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]], who: str) -> str:
    """How many problems the last column is made of, where it is about correct samples."""
    metric = columns(results, "figures")[-1].metric
    if not metric.startswith("strategies_among_correct"):
        return ""
    problems = _range([of_arm[metric]["problems"] for of_arm in figures.values()])
    apart = "; rows are of different problems, so compare them below" if who == "an arm" else ""
    return f" The last column is of the {problems} problems of which {who} had so many correct samples{apart}."


def _compared(results: Mapping[str, Any]) -> str:
    comparisons = sum(column.part == "differences" for column in columns(results, "differences"))
    count = comparisons * len(results["differences"])
    return (
        f"Differences to {_label(results)}, paired by seed and problem, with intervals of the same kind; in round "
        f"brackets, in how many of the seeds the arm is above. These are {count} comparisons, ratios aside, and the "
        f"intervals are not corrected for their number.{_eligible(results, results['differences'], 'both arms')}"
    )


def _range(numbers: list[int]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"
