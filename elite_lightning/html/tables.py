"""The page's tables as plain data: each cell with its value, and with the files that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elite_lightning.html.arms import Arm
from elite_lightning.html.estimates import Estimate, Estimates
from elite_lightning.html.reading import NAMES, numbers, verdict
from elite_lightning.html.sources import Sources


@dataclass(frozen=True)
class TableCell:
    """One number of a table.

    Args:
        text: The number as it is shown.
        below: A second line, such as the interval.
        third: A third line, such as the interval with seeds.
        value: The number in full; None for an empty cell.
        files: Ids of the files that it comes from.
        title: Shown under the pointer: the files' names, and what does not fit into the cell.
        tone: `more`, `less` or nothing: how the cell is coloured.
    """

    text: str
    below: str = ""
    third: str = ""
    value: float | None = None
    files: str = ""
    title: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a header column.

    Args:
        key: Short name within the page.
        columns: Heads of the columns, that of the header column first.
        rows: Head of each row and its cells.
        note: Below the table.
    """

    key: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[TableCell]]]
    note: str = ""


def figure_table(
    arms: Sequence[Arm], estimates: Estimates, files: Mapping[str, Sequence[Path]], at: Sources, names: Sequence[str]
) -> Table:
    """A row an arm, a column a figure.

    Args:
        arms: In the order of the rows.
        estimates: All figures.
        files: Name of each arm to the files that its figures come from.
        at: Names the files.
        names: Figures to show.
    """
    return _table("figures", arms, names, estimates.figures, _figure_cell, files, at)


def difference_table(
    arms: Sequence[Arm], estimates: Estimates, files: Mapping[str, Sequence[Path]], at: Sources, names: Sequence[str]
) -> Table:
    """A row an arm but the reference, a column a figure; arguments as in `figure_table`."""
    both = {arm.name: [*files[arm.name], *files.get(estimates.reference or "", ())] for arm in arms}
    others = [arm for arm in arms if arm.name != estimates.reference and estimates.differences.get(arm.name)]
    return _table("differences", others, names, estimates.differences, _difference_cell, both, at)


def ratio_table(
    arms: Sequence[Arm], estimates: Estimates, files: Mapping[str, Sequence[Path]], at: Sources, names: Sequence[str]
) -> Table:
    """A row an arm that a study has ratios of; arguments as in `figure_table`."""
    both = {arm.name: [*files[arm.name], *files.get(estimates.reference or "", ())] for arm in arms}
    others = [arm for arm in arms if estimates.ratios.get(arm.name)]
    known = {name for arm in others for name in estimates.ratios[arm.name]}
    names = [name for name in names if name in known]
    return _table("ratios", others, names, estimates.ratios, _figure_cell, both, at)


def seed_table(arms: Sequence[Arm], estimates: Estimates, at: Sources) -> Table:
    """A row a run: what each seed gives alone; arguments as in `figure_table`."""
    names = all_names(estimates)
    rows = []
    for arm in arms:
        figures = estimates.figures.get(arm.name, {})
        count = max((len(figure.by_seed) for figure in figures.values()), default=0)
        for number in range(count):
            path = arm.evaluations[number : number + 1]
            title, ids = at.names_of(path), " ".join(map(at.id_of, path))
            values = [next(iter(figures[n].by_seed[number:]), None) if n in figures else None for n in names]
            cells = [_value_cell(value, ids, title) for value in values]
            rows.append((f"{arm.label}: {title.rpartition('/eval/')[0] or number}", cells))
    return Table("seeds", ("run", *names), rows)


def all_names(estimates: Estimates) -> list[str]:
    """Names of all figures; strategies@1 aside, which is pass@1."""
    names = dict.fromkeys(name for figures in estimates.figures.values() for name in figures)
    return [name for name in names if name != "strategies@1"]


def main_names(estimates: Estimates) -> list[str]:
    """Those that a reader looks for first: at most four k of pass, strategies, and coverage of interpretations."""
    split = {name: name.split("@") for name in all_names(estimates) if "@" in name}
    ks = sorted({int(k) for _, k in split.values()})
    if len(ks) > 4:
        ks = [k for k in ks if k in (1, 8, 32, ks[-1])]
    return [name for name, (kind, k) in split.items() if kind in NAMES and int(k) in ks]


def _table(
    key: str,
    arms: Sequence[Arm],
    names: Sequence[str],
    estimates: Mapping[str, Mapping[str, Estimate]],
    cell: Callable[[Estimate], TableCell],
    files: Mapping[str, Sequence[Path]],
    at: Sources,
) -> Table:
    rows = []
    for arm in (arm for arm in arms if estimates.get(arm.name)):
        of_arm = estimates[arm.name]
        cells = [_sourced(cell(of_arm[n]), of_arm[n], files[arm.name], at) if n in of_arm else EMPTY for n in names]
        rows.append((arm.label, cells))
    return Table(key, ("arm", *names), rows)


EMPTY = TableCell("-", title="not measured")


def _sourced(cell: TableCell, estimate: Estimate, files: Sequence[Path], at: Sources) -> TableCell:
    over = f"{estimate.problems} problems; " if estimate.problems is not None else ""
    if estimate.seeds_above is not None:
        over += f"above the reference in {estimate.seeds_above} of {len(estimate.by_seed)} seeds; "
    ids, title = " ".join(map(at.id_of, files)), f"{over}from {at.names_of(files)}"
    return replace(cell, value=estimate.mean, files=ids, title=title)


def _figure_cell(estimate: Estimate) -> TableCell:
    return _cell(estimate, "")


def _difference_cell(estimate: Estimate) -> TableCell:
    return replace(_cell(estimate, "+"), tone={"more": "more", "less": "less"}.get(verdict(estimate), ""))


def _cell(estimate: Estimate, sign: str) -> TableCell:
    below, third = (
        "" if ends is None else "[{}, {}]".format(*numbers(*ends, sign=sign))
        for ends in ((estimate.low, estimate.high), estimate.with_seeds)
    )
    return TableCell(f"{estimate.mean:{sign}.3f}", below, f"seeds {third}" if third else "")


def _value_cell(value: float | None, ids: str, title: str) -> TableCell:
    return EMPTY if value is None else TableCell(f"{value:.3f}", value=value, files=ids, title=f"from {title}")
