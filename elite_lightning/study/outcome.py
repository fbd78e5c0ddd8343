"""The end of a study: counts, results, tables, pictures and the page, all from the files of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from elite_lightning.html.page import write_report
from elite_lightning.run_folder import RunFolder, write_atomically
from elite_lightning.study.budgets import budgets_of, markdown_of_budgets, show_budgets
from elite_lightning.study.counts import collect
from elite_lightning.study.plan import StudyPlan, seed_folders
from elite_lightning.study.results import results_of, write_results
from elite_lightning.study.tables import markdown, show


def conclude(plan: StudyPlan) -> dict[str, Any]:
    """Compute and write `results.json`, `counts.csv`, `tables.md` and `report.html` with its pictures.

    Args:
        plan: A study whose runs are finished.

    Returns:
        What `results.json` holds.

    Raises:
        UsageError: If runs do not fit together, such as evaluations on other problems.
    """
    folders = seed_folders(plan)
    counts = collect(plan.study_dir, folders)
    results = results_of(counts, plan.reference, labels={arm: plan.label(arm) for arm in plan.arms})
    for arm, budget in budgets_of(plan).items():
        results["arms"][arm] |= {"budget": budget, "search": plan.arms[arm].search}
    results["settings"] |= {"search_seed": plan.search_seed, "parallel": plan.parallel, "code": _code(folders)}
    write_results(plan.study_dir, counts, results)
    write_atomically(plan.study_dir / "tables.md", f"{markdown(results)}\n{markdown_of_budgets(results)}")
    write_report(
        folders,
        plan.study_dir / "report.html",
        reference=plan.reference,
        results=results,
        results_file=plan.study_dir / "results.json",
        searches={name: plan.search_dir(name) for name in plan.used_searches()},
    )
    return results


def _code(folders: Mapping[str, Sequence[Path]]) -> list[str]:
    """Versions of the code that worked on the runs; more than one is worth a line under the tables."""
    runs = [RunFolder(folder) for of_arm in folders.values() for folder in of_arm]
    return sorted({version for run in runs for version in run.code_versions() or ["not written down"]})


def show_results(plan: StudyPlan, results: dict[str, Any], console: Console | None = None) -> None:
    """Print the tables, and where everything lies.

    Args:
        plan: The study.
        results: What `conclude` returned.
        console: Where to print; the terminal if None.
    """
    console = console or Console()
    show(results, console)
    show_budgets(results, console)
    console.print(
        f"Tables: {plan.study_dir / 'tables.md'}\nReport: {plan.study_dir / 'report.html'}",
        highlight=False,
        soft_wrap=True,
    )
