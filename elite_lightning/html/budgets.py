"""What each arm cost: from a study's results, or else from the runs' own summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.html.arms import Arm
from elite_lightning.html.sources import Sources
from elite_lightning.html.tables import EMPTY, Table, TableCell
from elite_lightning.run_folder import RunFolder

_COUNTS = ("generations", "verifier_calls", "generated_tokens", "seconds")
_SECONDS = ("search", "train", "rollout", "verify", "update", "evaluate")


def budget_table(
    arms: Sequence[Arm], results: Mapping[str, Any] | None, results_file: Path | None, at: Sources
) -> Table:
    """A row an arm.

    Args:
        arms: In the order of the rows; the base policy has no training to count and is left out.
        results: Content of a study's `results.json`.
        results_file: Where it lies.
        at: Names the files.
    """
    trained = [arm for arm in arms if not arm.is_base]
    known = {name: arm["budget"] for name, arm in (results or {}).get("arms", {}).items() if arm.get("budget")}
    if known:
        return _from_results([arm for arm in trained if arm.name in known], known, results_file, at)
    rows = [(arm.label, _from_summaries(arm, at)) for arm in trained]
    columns = ("arm", "search attempts", *(f"{name}, s" for name in _SECONDS))
    note = "Means over the runs of an arm. Rollout, verify and update are parts of train."
    return Table("budgets", columns, rows, note)


def _from_results(arms: Sequence[Arm], known: Mapping[str, Any], results_file: Path | None, at: Sources) -> Table:
    parts = [part for part in ("search", "train", "evaluate") if any(part in known[arm.name] for arm in arms)]
    columns = [(part, count) for part in parts for count in _COUNTS]
    files = [results_file] if results_file is not None else []
    ids, title = " ".join(map(at.id_of, files)), f"from {at.names_of(files) or 'results.json'}"
    rows = [
        (arm.label, [_cell((known[arm.name].get(part) or {}).get(count), ids, title) for part, count in columns])
        for arm in arms
    ]
    heads = [f"{part}: {count.replace('_', ' ')}" for part, count in columns]
    return Table("budgets", ("arm", *heads), rows)


def _from_summaries(arm: Arm, at: Sources) -> list[TableCell]:
    reports = _read([RunFolder(run).search_report for run in arm.runs])
    summaries = {
        path: content.get("seconds", {}) for path, content in _read([RunFolder(r).summary for r in arm.runs]).items()
    }
    return [_mean(reports, "attempts", at), *(_mean(summaries, name, at) for name in _SECONDS)]


def _read(paths: Sequence[Path]) -> dict[Path, Mapping[str, Any]]:
    try:
        return {path: json.loads(path.read_text()) for path in paths if path.is_file()}
    except ValueError as error:
        raise UsageError(f"one of {', '.join(map(str, paths))} is not JSON ({error}); make it again") from error


def _mean(contents: Mapping[Path, Mapping[str, Any]], name: str, at: Sources) -> TableCell:
    found = {path: content[name] for path, content in contents.items() if name in content}
    if not found:
        return EMPTY
    files = list(found)
    return _cell(sum(found.values()) / len(found), " ".join(map(at.id_of, files)), f"from {at.names_of(files)}")


def _cell(value: float | None, ids: str, title: str) -> TableCell:
    return EMPTY if value is None else TableCell(f"{value:,.0f}", value=value, files=ids, title=title)
