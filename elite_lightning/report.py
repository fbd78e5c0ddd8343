"""The end of a run: `summary.json`, and the table on the terminal, base beside trained, with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from elite_lightning.budget import samples_spent
from elite_lightning.evaluation import figures_of, per_problem, read_counts
from elite_lightning.metrics import paired_bootstrap_difference
from elite_lightning.picture import draw_over_k
from elite_lightning.run_folder import RunFolder, write_atomically


def summarise(folder: RunFolder, steps: int, ks: Sequence[int], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Compute the summary from the run's files, and write `summary.json`.

    Args:
        folder: The run.
        steps: Optimizer steps of the trained policy.
        ks: Numbers of samples.
        seconds: Seconds by part of the run.

    Returns:
        What was written: means under `base` and `trained`, their intervals, the paired change, archive and seconds.
    """
    arms = {"base": folder.samples("test", 0), "trained": folder.samples("test", steps)}
    counts = {arm: read_counts(path) for arm, path in arms.items() if path.is_file()}
    figures = {arm: figures_of(of_arm, ks) for arm, of_arm in counts.items()}
    summary: dict[str, Any] = {arm: {k: f.mean for k, f in named.items()} for arm, named in figures.items()}
    summary["intervals"] = {arm: {k: [f.low, f.high] for k, f in named.items()} for arm, named in figures.items()}
    if len(counts) == 2:
        summary["change"] = _changes(per_problem(counts["base"], ks), per_problem(counts["trained"], ks))
    if folder.search_report.is_file():
        report = json.loads(folder.search_report.read_text())
        seconds = {"search": report.pop("seconds"), **seconds}
        summary["archive"] = report
    summary |= {"evaluated_problems": {arm: len(of_arm) for arm, of_arm in counts.items()}}
    spent = {arm: samples_spent(path) for arm, path in arms.items() if path.is_file()}
    summary["generations"] = {arm: of_arm.generations for arm, of_arm in spent.items()}
    summary["generated_tokens"] = {arm: of_arm.generated_tokens for arm, of_arm in spent.items()}
    summary |= {"steps": steps, "seconds": dict(seconds)}
    write_atomically(folder.summary, json.dumps(summary, indent=2) + "\n")
    return summary


def draw(folder: RunFolder, steps: int) -> None:
    """Draw base and trained policy over k into the run folder, those of them that were measured.

    Args:
        folder: The run.
        steps: Optimizer steps of the trained policy.
    """
    arms = {"base": folder.samples("test", 0), "trained": folder.samples("test", steps)}
    counts = {arm: [read_counts(path)] for arm, path in arms.items() if path.is_file()}
    draw_over_k(counts, folder.picture, f"{folder.path.name}: test problems, 95 % intervals")


def _changes(base: Mapping[str, Any], trained: Mapping[str, Any]) -> dict[str, list[float]]:
    """Trained minus base, paired by problem: name to mean, low, high."""
    changes = {}
    for name, before in base.items():
        both = ~(np.isnan(before) | np.isnan(trained[name]))
        if both.any():
            changes[name] = list(paired_bootstrap_difference(trained[name][both], before[both]))
    return changes


def show(summary: Mapping[str, Any], folder: Path, console: Console | None = None) -> None:
    """Print the table.

    Args:
        summary: What `summarise` returned or `summary.json` holds.
        folder: The run folder, named below the table.
        console: Where to print; the terminal if None.
    """
    console = console or Console()
    arms = [arm for arm in ("base", "trained") if arm in summary]
    title = "Held-out test problems, with 95 % intervals over problems"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("metric", no_wrap=True)
    for column in [*arms, *(["change"] if "change" in summary else [])]:
        table.add_column(column, justify="right", no_wrap=True)
    for name in _shown(summary[arms[-1]]) if arms else ():
        cells = [_cell(summary[arm].get(name), summary["intervals"][arm].get(name)) for arm in arms]
        change = summary.get("change", {}).get(name)
        table.add_row(name, *cells, *([_cell(change[0], change[1:], "+")] if change else []))
    console.print(table)
    console.print(coverage_line(summary.get("archive")), highlight=False, soft_wrap=True)
    console.print(seconds_line(summary["seconds"]), highlight=False, soft_wrap=True)
    console.print(f"Run folder: {folder}", highlight=False, soft_wrap=True)


def _shown(names: Iterable[str]) -> list[str]:
    """Every pass@k, either@k and both@k, and the strategies of the largest k."""
    names = list(names)
    by_k = [name for name in names if name.startswith("strategies@")]
    return [*(name for name in names if name.startswith(("pass@", "either@", "both@"))), *by_k[-1:]]


def coverage_line(archive: Mapping[str, Any] | None) -> str:
    """One sentence about the archive.

    Args:
        archive: The search's report, or None if there was no search.
    """
    if archive is None:
        return "Archive: none"
    return (
        f"Archive: {archive['elites']} elites, {archive['cells_per_problem']:.2f} cells a problem, "
        f"{archive['covered_problems']} of {archive['problems']} problems covered by {archive['attempts']} attempts"
    )


def seconds_line(seconds: Mapping[str, float]) -> str:
    """One sentence about where the time went.

    Args:
        seconds: Seconds by part of the run.
    """
    search = f"search {seconds['search']:.0f}, " if "search" in seconds else ""
    parts = ", ".join(f"{name} {seconds[name]:.0f}" for name in ("rollout", "verify", "update"))
    return f"Seconds: {search}train {seconds['train']:.0f} ({parts}), evaluate {seconds['evaluate']:.0f}"


def _cell(mean: float | None, ends: Sequence[float] | None, sign: str = "") -> str:
    if mean is None or ends is None:
        return "-"
    return f"{mean:{sign}.3f} [{ends[0]:{sign}.2f}, {ends[1]:{sign}.2f}]"
