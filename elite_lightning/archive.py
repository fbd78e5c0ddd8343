"""The archive: for each problem and cell the shortest verified response.

It knows neither how responses are made nor what they are for. What it knows about a response it asks the verifier
itself: nobody can hand it a flag that says "correct".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from elite_lightning.archive_file import FORMAT, ArchiveError, read_archive, write_archive
from elite_lightning.types import Cell, Cells, Elite, FinishReason, Judgement, Problem, Reason

__all__ = ["ArchiveError", "ArchiveFrozenError", "EliteArchive", "FrozenArchive", "Outcome"]


class ArchiveFrozenError(ArchiveError):
    """Somebody tried to change an archive that is frozen."""


class Outcome(StrEnum):
    """What became of an attempt: what the archive did with it, or the verdict's reason why it is not correct."""

    INSERTED = "inserted"  # correct, and its cell was empty
    REPLACED = "replaced"  # correct, and shorter than the cell's elite
    NOT_SHORTER = "not_shorter"  # correct, but the cell's elite is as short or shorter
    NO_SOLUTION = Reason.NO_SOLUTION.value
    TRUNCATED = Reason.TRUNCATED.value
    NOT_ALLOWED = Reason.NOT_ALLOWED.value
    ERROR = Reason.ERROR.value
    TOO_LONG = Reason.TOO_LONG.value
    TOO_MANY_STEPS = Reason.TOO_MANY_STEPS.value
    TIMEOUT = Reason.TIMEOUT.value
    TOO_MANY_ROWS = Reason.TOO_MANY_ROWS.value
    TOO_LARGE = Reason.TOO_LARGE.value
    OUT_OF_MEMORY = Reason.OUT_OF_MEMORY.value
    WRONG_RESULT = Reason.WRONG_RESULT.value
    GOLD_FAILED = Reason.GOLD_FAILED.value
    VERIFIER_FAILURE = Reason.VERIFIER_FAILURE.value

    @property
    def correct(self) -> bool:
        """Whether the verifier accepted the response."""
        return self in (Outcome.INSERTED, Outcome.REPLACED, Outcome.NOT_SHORTER)


Slot = tuple[Cell, *tuple[str | int, ...]]
"""The place of one elite of a problem: its cell, and what tells it from others of the cell where that has several."""


class _Elites:
    """Reading access that a growing and a frozen archive share."""

    def __init__(self, fingerprints: Mapping[str, str], cells: Cells) -> None:
        self.fingerprints = dict(fingerprints)
        self.told_apart_by: Cells = cells
        self._elites: dict[str, dict[Slot, Elite]] = {}

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """Problems with at least one elite, sorted."""
        return tuple(sorted(self._elites))

    def elites(self, problem_id: str) -> tuple[Elite, ...]:
        """The problem's elites sorted by the whole cell that they realise; empty when there are none."""
        slots = self._elites.get(problem_id, {})
        return tuple(elite for _, elite in sorted(slots.items(), key=lambda item: (item[1].cell, item[0])))

    def cells(self, problem_id: str) -> tuple[Cell, ...]:
        """The problem's occupied cells, sorted; what does not tell cells apart is empty in them."""
        return tuple(sorted({slot[0] for slot in self._elites.get(problem_id, ())}))

    def __len__(self) -> int:
        return sum(map(len, self._elites.values()))


class FrozenArchive(_Elites):
    """An archive as read from its file: it never changes.

    Args:
        elites: In the file's order; at most one per problem and cell, unless samples were kept (`samples.py`).
        fingerprints: Hashes of all that the elites depend on, by name.
        attempts: Attempts of the search that made it.
        cells: What tells its cells apart.
    """

    frozen = True

    def __init__(
        self, elites: Iterable[Elite], fingerprints: Mapping[str, str], attempts: int, cells: Cells = "both"
    ) -> None:
        super().__init__(fingerprints, cells)
        self.attempts = attempts
        for number, elite in enumerate(elites):
            self._elites.setdefault(elite.problem_id, {})[elite.cell.projected(cells), number] = elite
        # Every draw asks for a problem's elites, and they never change.
        self._in_order = {problem_id: _Elites.elites(self, problem_id) for problem_id in self._elites}

    def elites(self, problem_id: str) -> tuple[Elite, ...]:
        """The problem's elites sorted by the whole cell that they realise; empty when there are none."""
        return self._in_order.get(problem_id, ())


class EliteArchive(_Elites):
    """An archive that grows until it is frozen.

    Args:
        judge: Says whether a response solves a problem and, if so, which cell it realises. It is asked for every
            response, so a caller that knows the verdict already should hand in a judge that remembers
            (`VerificationPool.judge`).
        encode: Token ids of a response, end-of-sequence included: what is replayed, and what "shorter" means.
        fingerprints: Hashes of all that the elites depend on, by name.
        cells: What tells the cells of a problem apart. An elite keeps the whole cell that it realises in any case.
    """

    file_format: ClassVar[str] = FORMAT

    def __init__(
        self,
        judge: Callable[[Problem, str], Judgement],
        encode: Callable[[str], Sequence[int]],
        fingerprints: Mapping[str, str],
        cells: Cells = "both",
    ) -> None:
        super().__init__(fingerprints, cells)
        self.frozen = False
        self.attempts = 0
        self._judge = judge
        self._encode = encode
        self._tried: set[str] = set()

    def insert(self, problem: Problem, response: str, finish_reason: FinishReason = FinishReason.STOP) -> Outcome:
        """Verify a response and file it under the cell that it realises.

        An empty cell takes it; an occupied one only if it is strictly shorter, so that ties keep the incumbent.

        Args:
            problem: What was asked.
            response: What the policy wrote.
            finish_reason: A response that hit the length limit is not verified.

        Returns:
            What became of it.

        Raises:
            ArchiveFrozenError: After `freeze`.
            ArchiveError: If the judge names no cell for a correct response.
        """
        if finish_reason is FinishReason.LENGTH:
            return self.reject(problem, Outcome.TRUNCATED)
        self._count(problem)
        judgement = self._judge(problem, response)
        if judgement.verdict.reason is not None:
            return Outcome(judgement.verdict.reason.value)
        if judgement.cell is None or judgement.solution is None:
            raise ArchiveError(f"the judge names no cell for a correct response to problem {problem.id!r}")
        ids = tuple(self._encode(response))
        return self._file(Elite(problem.id, judgement.cell, response, judgement.solution, ids))

    def reject(self, problem: Problem, outcome: Outcome) -> Outcome:
        """Count an attempt that is known not to be correct, without verifying it again.

        Args:
            problem: What was asked.
            outcome: Why it is not correct.

        Returns:
            `outcome`.

        Raises:
            ArchiveFrozenError: After `freeze`.
            ArchiveError: If `outcome` claims that the response is correct: only `insert` finds that out.
        """
        if outcome.correct:
            raise ArchiveError(f"{outcome.value!r} is not a reason to reject an attempt at problem {problem.id!r}")
        self._count(problem)
        return outcome

    def freeze(self) -> None:
        """End all inserts; a second call changes nothing."""
        self.frozen = True

    def save(self, path: str | Path) -> None:
        """Write `path` (JSON Lines, sorted by problem and cell) and the manifest beside it.

        Equal content gives equal bytes. Each file is written whole or not at all.

        Args:
            path: Such as `runs/x/archive.jsonl`.

        Raises:
            ArchiveError: If another archive lies there already; nothing is overwritten.
        """
        elites = [elite for problem_id in self.problem_ids for elite in self.elites(problem_id)]
        counts = (len(self._tried), self.attempts)
        write_archive(Path(path), elites, *counts, self.fingerprints, self.file_format, self.told_apart_by)

    @staticmethod
    def load(path: str | Path, expected: Mapping[str, str]) -> FrozenArchive:
        """Read an archive that is exactly what was written, for what it was written for.

        Args:
            path: The JSON Lines; the manifest lies beside them.
            expected: Fingerprints that must agree, by name; those that are not named are not compared.

        Returns:
            The archive, frozen.

        Raises:
            ArchiveError: If a file is missing, cut off, edited, of another version or made for something else.
        """
        elites, manifest = read_archive(Path(path), expected)
        return FrozenArchive(elites, manifest.fingerprints, manifest.attempts, manifest.cells)

    def _count(self, problem: Problem) -> None:
        if self.frozen:
            raise ArchiveFrozenError(f"the archive is frozen and takes no attempt at problem {problem.id!r} any more")
        self.attempts += 1
        self._tried.add(problem.id)

    def _file(self, elite: Elite) -> Outcome:
        return enter(self._elites.setdefault(elite.problem_id, {}), (self._place(elite),), elite)

    def _place(self, elite: Elite) -> Cell:
        """The cell that an elite competes for."""
        return elite.cell.projected(self.told_apart_by)


def enter(slots: dict[Slot, Elite], slot: Slot, elite: Elite) -> Outcome:
    """Put an elite where nothing is, or where what is there is longer.

    Args:
        slots: A problem's elites; changed.
        slot: Where it belongs.
        elite: What to put there.

    Returns:
        What became of it.
    """
    incumbent = slots.get(slot)
    if incumbent is not None and len(elite.token_ids) >= len(incumbent.token_ids):
        return Outcome.NOT_SHORTER
    slots[slot] = elite
    return Outcome.INSERTED if incumbent is None else Outcome.REPLACED
