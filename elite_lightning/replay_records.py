"""`replay.jsonl`: how likely the policy found each replayed response, and what can be read from that.

A cell is an approach and a structure, and there are too many for a metric each: metrics are means by approach, the
file has everything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from elite_lightning.errors import UsageError
from elite_lightning.types import Cell

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """One replayed response in one step.

    Args:
        step: Finished optimizer steps before this one.
        problem_id: The problem that it solves.
        approach: Of its cell.
        structure: Of its cell.
        tokens: Its tokens, end-of-sequence included.
        nll: Nats a token; mean negative log-likelihood of its tokens before the step's update.
    """

    step: int
    problem_id: str
    approach: str
    structure: str
    tokens: int
    nll: float

    @property
    def cell(self) -> Cell:
        """Where it was filed."""
        return Cell(self.approach, self.structure)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-serialisable data."""
        return asdict(self)


class NllOfCell(NamedTuple):
    """What replay found out about a cell.

    Args:
        nll: Nats a token; mean over replayed responses.
        replayed: Number of replayed responses, repeats included.
        problems: Number of problems that they solve.
    """

    nll: float
    replayed: int
    problems: int


def in_one_order(of_ranks: Sequence[Sequence[ReplayRecord]]) -> list[ReplayRecord]:
    """The records of all ranks as a single rank would have them: ranks take turns in replaying."""
    return [record for turn in zip_longest(*of_ranks) for record in turn if record is not None]


def approach_metrics(records: Sequence[ReplayRecord]) -> dict[str, float]:
    """Mean by approach, under names that are safe for metrics.

    Args:
        records: Of one step.

    Returns:
        `replay_nll/<approach>` to nats a token.
    """
    grouped = _grouped(records, lambda record: record.approach)
    return {f"replay_nll/{metric_name(name)}": fmean(r.nll for r in own) for name, own in sorted(grouped.items())}


def metric_name(text: str) -> str:
    """A text as part of a metric's name: letters, digits, `_`, `-` and `.` only, and different for different texts.

    Args:
        text: Such as an approach that a language model named. Returned as it is if it is safe already.
    """
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:64]
    return safe if safe == text and text else f"{safe}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def read_replayed(path: Path) -> list[ReplayRecord]:
    """What a run has replayed so far, in order.

    Args:
        path: The run's `replay.jsonl`.

    Raises:
        UsageError: If a line is broken; names it.
    """
    records = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            records.append(ReplayRecord(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a replayed response ({error}); let the run go on") from error
    return records


def nll_by_cell(records: Iterable[ReplayRecord]) -> dict[Cell, NllOfCell]:
    """The table of cells.

    Args:
        records: Such as those of the first steps, or of the last.

    Returns:
        Cell to its figures, sorted by cell.
    """
    grouped = _grouped(records, lambda record: record.cell)
    return {
        cell: NllOfCell(fmean(r.nll for r in own), len(own), len({r.problem_id for r in own}))
        for cell, own in sorted(grouped.items())
    }


def nll_by_elite(records: Iterable[ReplayRecord]) -> dict[tuple[str, Cell], list[tuple[int, float]]]:
    """How the likelihood of each elite went on.

    Args:
        records: Of a run.

    Returns:
        Problem and cell to the steps in which it was replayed and the nats a token there, in order.
    """
    grouped = _grouped(records, lambda record: (record.problem_id, record.cell))
    return {elite: [(record.step, record.nll) for record in own] for elite, own in sorted(grouped.items())}


def _grouped(records: Iterable[ReplayRecord], key: Callable[[ReplayRecord], Key]) -> dict[Key, list[ReplayRecord]]:
    grouped: dict[Key, list[ReplayRecord]] = {}
    for record in records:
        grouped.setdefault(key(record), []).append(record)
    return grouped
