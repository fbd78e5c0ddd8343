"""What a run of each arm has spent: from a study's results, or else from the runs' own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elite_lightning.budget import mean_budget
from elite_lightning.html.arms import Arm
from elite_lightning.html.sources import Sources
from elite_lightning.html.tables import EMPTY, Table, TableCell
from elite_lightning.run_folder import RunFolder

_COUNTS = ("generations", "verifier_calls", "generated_tokens", "seconds")
_COLUMNS = (
    *(("search", count) for count in _COUNTS),
    *(("train", count) for count in (*_COUNTS, "replayed_responses")),
    *(("evaluate", count) for count in _COUNTS),
)
# The files that each part of a run is counted from.
_FILES: Mapping[str, Callable[[RunFolder], Sequence[Path]]] = {
    "search": lambda run: [run.search_report],
    "train": lambda run: [run.metrics],
    "evaluate": lambda run: [*run.evaluations, run.summary],
}


def budget_table(
    arms: Sequence[Arm], results: Mapping[str, Any] | None, results_file: Path | None, at: Sources
) -> Table:
    """A row an arm, as means over its runs.

    Args:
        arms: In the order of the rows; the base policy has no training to count and is left out.
        results: Content of a study's `results.json`, which knows of shared searches.
        results_file: Where it lies.
        at: Names the files.
    """
    known = {name: arm["budget"] for name, arm in (results or {}).get("arms", {}).items() if arm.get("budget")}
    taken = [results_file] if results_file is not None else []
    rows = [
        (arm.label, _row(known.get(arm.name) or mean_budget(arm.runs), arm, taken if arm.name in known else None, at))
        for arm in arms
        if not arm.is_base
    ]
    heads = [f"{part}: {count.replace('_', ' ')}" for part, count in _COLUMNS]
    return Table("budgets", ("arm", *heads), rows, "Means over the runs of an arm. Seconds are wall-clock.")


def _row(
    budget: Mapping[str, Mapping[str, float | None]], arm: Arm, taken: Sequence[Path] | None, at: Sources
) -> list[TableCell]:
    cells = []
    for part, count in _COLUMNS:
        own = [path for run in arm.runs for path in _FILES[part](RunFolder(run)) if path.is_file()]
        files = own if taken is None else taken
        cells.append(_cell(budget.get(part, {}).get(count), files, at))
    return cells


def _cell(value: float | None, files: Sequence[Path], at: Sources) -> TableCell:
    """Empty where nothing is known, and where there is no file that would say so."""
    if value is None or not files:
        return EMPTY
    return TableCell(
        f"{value:,.0f}", value=value, files=" ".join(map(at.id_of, files)), title=f"from {at.names_of(files)}"
    )
