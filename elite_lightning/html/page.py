"""The page itself: run folders in, one HTML file and its PNGs out. Everything in it was read from files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from elite_lightning import __version__
from elite_lightning.errors import UsageError
from elite_lightning.html.arms import Arm, arms_of
from elite_lightning.html.browser import browser
from elite_lightning.html.budgets import budget_table
from elite_lightning.html.estimates import Estimates, estimates_of
from elite_lightning.html.pictures import COLOURS
from elite_lightning.html.problems import read_config
from elite_lightning.html.reading import reading
from elite_lightning.html.samples import embedded
from elite_lightning.html.sections import Canvas, coverage_pictures, kept_picture, over_k_pictures, training_pictures
from elite_lightning.html.sources import Sources
from elite_lightning.html.tables import (
    Table,
    all_names,
    difference_table,
    figure_table,
    main_names,
    ratio_table,
    seed_table,
)
from elite_lightning.metrics import powers_of_two
from elite_lightning.run_folder import RunFolder, write_atomically

BROWSER_BYTES = 3_500_000
"""Most bytes of the samples that the page holds; with pictures and tables it then stays below 5 MB."""


def write_report(
    arms: Mapping[str, Sequence[Path]],
    out: Path,
    *,
    reference: str | None = None,
    results: Mapping[str, Any] | None = None,
    results_file: Path | None = None,
    searches: Mapping[str, Path] | None = None,
) -> Path:
    """Write the page, and its pictures as PNG into `<name of the page>_pictures/` beside it.

    Args:
        arms: Name or label of each arm to its run folders, one a seed. The base policy is added from the runs' own
            measurements before training, so that a single run is compared to what it began with.
        out: The HTML file.
        reference: Name or label of the arm that the others are compared to; None is the study's reference, else the
            base policy, else the first arm.
        results: Content of a study's `results.json`; figures, differences and budgets are then taken from there, and
            means are checked against the files of samples.
        results_file: Where that content lies.
        searches: Name of each search that several arms share to its run folder.

    Returns:
        `out`.

    Raises:
        UsageError: If a folder is no run folder, a file is broken, or arms have no problem in common.
    """
    folders = [Path(folder) for of_arm in arms.values() for folder in of_arm]
    searches = searches or {}
    if not folders:
        raise UsageError("nothing to report on: name at least one run folder")
    sources = Sources([*folders, *searches.values()] if results_file is None else [results_file])
    found = arms_of({name: [Path(folder) for folder in of_arm] for name, of_arm in arms.items()}, results)
    estimates = estimates_of(found, _ks(found, results), reference, results)
    canvas = Canvas.of(found, out.with_name(f"{out.stem}_pictures"), sources)
    context = _measured(found, estimates, canvas, results, results_file)
    context |= _read_besides(found, folders, searches, canvas)
    context["notes"] = [*_notes(found, estimates), *context["notes"]]
    names = [folder.name for folder in folders]
    context |= {"title": names[0] if len(names) == 1 else sources.root.name, "files": sources.files()}
    write_atomically(out, render(context))
    return out


def render(context: Mapping[str, Any]) -> str:
    """The page from its parts. Every text is escaped; what is not, was made here."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script, style = _asset("page.js"), _asset("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.from_string(_asset("page.html.jinja")).render(
        **context, version=__version__, script=Markup(script), style=Markup(style), script_hash=digest
    )


def _asset(name: str) -> str:
    return (resources.files("elite_lightning") / "assets" / "report" / name).read_text(encoding="utf-8")


def _measured(
    arms: Sequence[Arm],
    estimates: Estimates,
    canvas: Canvas,
    results: Mapping[str, Any] | None,
    results_file: Path | None,
) -> dict[str, Any]:
    """What follows from the measurements: the first picture, its reading, tables, and pictures over k."""
    largest = max(
        (int(n.split("@")[1]) for f in estimates.figures.values() for n in f if n.startswith("pass@")), default=1
    )
    at = canvas.sources
    taken = [results_file] if results_file is not None else []
    files = {a.name: [*a.evaluations, *(taken if a.name in estimates.from_results else [])] for a in arms}
    readings = [reading(name, estimates, canvas.labels) for name in dict.fromkeys((f"strategies@{largest}", "pass@1"))]
    main, every = main_names(estimates), all_names(estimates)
    tables = _tables(arms, estimates, files, at, main)
    tables += [("Budgets", budget_table(arms, results, results_file, at))]
    more = [] if set(main) == set(every) else _tables(arms, estimates, files, at, every, "all-")
    more += [("Every seed alone", seed_table(arms, estimates, at))]
    return {
        "arms": [
            {"label": a.label, "runs": len(a.evaluations), "colour": COLOURS.index(canvas.styles[a.name].colour)}
            for a in arms
        ],
        "kept": kept_picture(
            arms, estimates, canvas, largest, list(dict.fromkeys(p for of in files.values() for p in of))
        ),
        "readings": [sentence for sentence in readings if sentence],
        "tables": [(title, table) for title, table in tables if table.rows],
        "more_tables": [(title, table) for title, table in more if table.rows],
        "over_k": over_k_pictures(arms, estimates, canvas),
        "level": estimates.level,
        "resamples": estimates.resamples,
        "problems": max((len(counts) for arm in arms for counts in arm.counts), default=0),
    }


def _tables(
    arms: Sequence[Arm],
    estimates: Estimates,
    files: Mapping[str, Sequence[Path]],
    at: Sources,
    names: Sequence[str],
    prefix: str = "",
) -> list[tuple[str, Table]]:
    """Figures, differences and ratios, each with its title."""
    label = next((arm.label for arm in arms if arm.name == estimates.reference), "")
    made = {
        "Means and intervals": figure_table(arms, estimates, files, at, names),
        f"Differences to {label}": difference_table(arms, estimates, files, at, names),
        f"Ratios to {label}": ratio_table(arms, estimates, files, at, names),
    }
    return [(title, replace(table, key=prefix + table.key)) for title, table in made.items()]


def _read_besides(
    arms: Sequence[Arm], folders: Sequence[Path], searches: Mapping[str, Path], canvas: Canvas
) -> dict[str, Any]:
    """What other files say: training, search, and the browser of samples."""
    searched, wrong = coverage_pictures(arms, searches, canvas)
    data, notes = browser(arms, folders, searches, canvas.sources, BROWSER_BYTES)
    return {
        "training": training_pictures(arms, canvas),
        "coverage": searched,
        "browser": Markup(embedded(data)),
        "limits": data["limits"],
        "shown_problems": len(data["problems"]),
        "notes": wrong,
        "browser_notes": notes,
    }


def _ks(arms: Sequence[Arm], results: Mapping[str, Any] | None) -> list[int]:
    """Numbers of samples of the tables: the study's, else those of the runs' evaluation, else powers of two."""
    given = (results or {}).get("settings", {}).get("ks")
    if given:
        return list(given)
    for config in (RunFolder(run).config for arm in arms for run in arm.runs):
        configured = (read_config(config).get("evaluation") or {}).get("ks") if config.is_file() else None
        if configured:
            return list(configured)
    samples = [counts.samples for arm in arms for table in arm.counts for counts in table.values()]
    return powers_of_two(max(samples, default=1) or 1)


def _notes(arms: Sequence[Arm], estimates: Estimates) -> list[str]:
    """What a reader has to know before trusting the tables."""
    notes = [f"{arm.label}: no run was measured on the test problems yet." for arm in arms if not arm.evaluations]
    for arm in arms:
        if 0 < len(arm.evaluations) < len(arm.runs):
            notes.append(
                f"{arm.label}: {len(arm.evaluations)} of {len(arm.runs)} runs were measured; the rest is missing."
            )
    labels = {arm.name: arm.label for arm in arms}
    if estimates.disagreeing:
        listed = ", ".join(f"{labels[arm]} {name}" for arm, name in estimates.disagreeing)
        notes.append(
            f"results.json holds other means than the files of samples give: {listed}. Make the results again."
        )
    return notes
