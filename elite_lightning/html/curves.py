"""Curves over training steps and over search attempts: a mean over seeds, with the range between them."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elite_lightning.errors import UsageError

POINTS = 160
"""Most points of a curve: more cannot be seen, and would make the page large."""

Points = Mapping[float, float]
"""Position to value, such as step to entropy."""


@dataclass(frozen=True)
class Curve:
    """A line and its band.

    Args:
        at: `[points]`; positions.
        mean: `[points]`; mean over seeds.
        low: `[points]`; smallest over seeds.
        high: `[points]`; largest over seeds.
    """

    at: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def curve_of(seeds: Sequence[Points], window: int = 1) -> Curve | None:
    """Mean and range over seeds at the positions that all of them have; None if there are none.

    Args:
        seeds: Points of each seed.
        window: Each value is the mean over this many positions around it, before anything else is done.
    """
    common = sorted(set.intersection(*(set(points) for points in seeds))) if seeds else []
    if not common:
        return None
    table = np.array([_smooth([points[at] for at in common], window) for points in seeds])
    kept = np.unique(np.linspace(0, len(common) - 1, min(POINTS, len(common))).round().astype(int))
    table = table[:, kept]
    return Curve(np.array(common, dtype=np.float64)[kept], table.mean(axis=0), table.min(axis=0), table.max(axis=0))


def _smooth(values: Sequence[float], window: int) -> NDArray[np.float64]:
    """Moving mean; at the ends over what is there."""
    ones = np.ones(window)
    figures = np.asarray(values, dtype=np.float64)
    smooth: NDArray[np.float64] = np.convolve(figures, ones, "same") / np.convolve(np.ones(figures.size), ones, "same")
    return smooth if window <= figures.size else figures


def read_metrics(path: Path) -> dict[str, dict[float, float]]:
    """Training metrics by name and step.

    Args:
        path: A run's `metrics.jsonl`; a last line that a kill cut off is left out, and so are values that are null.
    """
    found: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
            step = row["step"]
        except (ValueError, KeyError, TypeError):
            continue
        for name, value in row.items():
            if name.startswith("train/") and value is not None:
                found[name][step] = value
    return found


def journals_of(folder: Path) -> dict[str, list[Path]]:
    """A run folder's journals by kind, `search` or `iid`; several where several ranks have searched."""
    found = {kind: sorted([*folder.glob(f"{kind}.sqlite"), *folder.glob(f"{kind}.rank*.sqlite")]) for kind in KINDS}
    return {kind: paths for kind, paths in found.items() if paths}


KINDS = ("search", "iid")


def coverage(journals: Sequence[Path]) -> dict[str, dict[float, float]]:
    """Covered cells and covered problems after so many attempts, over the journals of all ranks together.

    Args:
        journals: Of one search. Ranks have searched side by side, so their attempts count in turns.

    Returns:
        `cells` and `problems`, each the number of attempts to the number covered.

    Raises:
        UsageError: If a file is not a search's journal.
    """
    attempts = sorted(row for rank, path in enumerate(journals) for row in _attempts(path, rank))
    cells: set[tuple[str, ...]] = set()
    problems: set[str] = set()
    covered: dict[str, dict[float, float]] = {"cells": {0: 0}, "problems": {0: 0}}
    for number, (_, _, problem, approach, structure) in enumerate(attempts, start=1):
        if approach:
            cells.add((problem, approach, structure))
            problems.add(problem)
        covered["cells"][number], covered["problems"][number] = len(cells), len(problems)
    return covered


def _attempts(path: Path, rank: int) -> Iterator[tuple[int, int, str, str, str]]:
    """Id, rank, problem and cell of each attempt; a cell of empty names where it is not correct.

    The journal's own reader would set up the file for writing, and a report leaves a run folder as it is. A journal
    that nobody has open has no log beside it, and is then read without even a lock.
    """
    has_log = path.with_name(f"{path.name}-wal").is_file()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if has_log else 'immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            for id_, *names in connection.execute("SELECT id, problem_id, approach, structure FROM attempts"):
                problem, approach, structure = (name or "" for name in names)
                yield id_, rank, problem, approach, structure
    except sqlite3.Error as error:
        raise UsageError(f"{path} is not a search's journal that can be read: {error}") from error
