"""What scoring a file of predictions leaves: `summary.json`, `verdicts.jsonl`, and a table on the terminal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from elite_lightning.run_folder import write_atomically

_NAMED = 20  # ids that are printed; the file has all


def write_scores(
    run: Path,
    predictions: Path,
    settings: Mapping[str, Any],
    summary: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
) -> Path:
    """Write scores below the run folder.

    The folder's name holds a hash of predictions and settings, so that no other scoring takes its place.

    Args:
        run: The run folder.
        predictions: The file that was scored.
        settings: What the questions and databases come from; kept in the summary.
        summary: Counts and scores by rule.
        items: Verdicts by question, a line each.

    Returns:
        The folder.
    """
    digest = hashlib.sha256(predictions.read_bytes()).hexdigest()
    identity = hashlib.sha256(json.dumps([digest, settings], sort_keys=True).encode()).hexdigest()
    folder = run / "predictions" / f"{predictions.stem}-{identity[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    content = {"predictions": str(predictions), "sha256": digest, **settings, "rules": summary}
    write_atomically(folder / "verdicts.jsonl", "".join(json.dumps(item) + "\n" for item in items))
    write_atomically(folder / "summary.json", json.dumps(content, indent=2) + "\n")
    return folder


def show_scores(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a line a rule: its score over all questions and over those of each difficulty, and what went wrong.

    Args:
        summary: Counts and scores by rule.
        console: Where to print; the terminal if None.
    """
    console = console or Console()
    levels = list(dict.fromkeys(level for score in summary.values() for level in score["by_difficulty"]))
    table = Table(box=box.SIMPLE_HEAD, title="Scores of the predictions, in percent")
    for name in ("rule", "questions", "right", "score", *levels, "empty = empty"):
        table.add_column(name, justify="left" if name == "rule" else "right")
    for rule, score in summary.items():
        parts = [score["by_difficulty"].get(level) for level in levels]
        of_levels = ["" if part is None else f"{100 * part['score']:.2f}" for part in parts]
        whole = score["all"]
        right, share = str(whole["correct"]), f"{100 * whole['score']:.2f}"
        table.add_row(rule, str(whole["items"]), right, share, *of_levels, str(score["empty"]))
    console.print(table)
    for rule, score in summary.items():
        errors = ", ".join(f"{count} {reason}" for reason, count in sorted(score["errors"].items()))
        console.print(f"{rule}: {errors or 'nothing wrong'}", highlight=False, soft_wrap=True)
    for kind, text in (("gold_failed", "gold cannot run, counted as wrong"), ("unjudged", "could not be judged")):
        ids = list(dict.fromkeys(name for score in summary.values() for name in score[kind]))
        if ids:
            more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
            console.print(f"{text}: {', '.join(ids[:_NAMED])}{more}", highlight=False, soft_wrap=True)
