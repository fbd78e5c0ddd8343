"""What a search knows at one moment: its archive, and what was spent on what. All of it follows from the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elite_lightning.archive import EliteArchive, Outcome
from elite_lightning.search.attempt import Attempt
from elite_lightning.search.targets import Progress, SuccessRates
from elite_lightning.types import Cell, Elite, Problem


@dataclass(frozen=True, slots=True)
class Request:
    """What a round asks of one problem.

    Args:
        problem: What is asked.
        target: The approach to ask for, or None for a plain prompt.
        parent: The elite to show, or None.
        covered: The approaches that were covered when the round was planned.
    """

    problem: Problem
    target: str | None = None
    parent: Elite | None = None
    covered: tuple[str, ...] = ()


class SearchState:
    """The archive of one rank and the counts beside it.

    Args:
        archive: Empty.
        problems: This rank's problems.
        targets: The approaches that may be asked for.

    Attributes:
        elites: Elites in the archive, counted as they come in: whoever asks after every batch should not count anew.
        covered_problems: Problems that have one.
    """

    def __init__(self, archive: EliteArchive, problems: Iterable[Problem], targets: Sequence[str] = ()) -> None:
        self.archive, self.targets = archive, targets
        self.progress = {problem.id: Progress() for problem in problems}
        self.rates = SuccessRates()
        self.elites = self.covered_problems = 0
        self._origin: dict[tuple[str, Cell], int] = {}

    def parents(self, request: Request) -> tuple[int, ...]:
        """Ids of the attempts that the request shows."""
        return () if request.parent is None else (self._origin[request.problem.id, request.parent.cell],)

    def begin(self, requests: Iterable[Request]) -> None:
        """Take note of what a round after the seed samples asks, at most once of any problem."""
        for request in requests:
            progress = self.progress[request.problem.id]
            progress.turns += 1
            if request.target is not None:
                progress.asked[request.target] += 1

    def record(self, requests: Sequence[Request], attempts: Sequence[Attempt]) -> None:
        """Take note of what a batch brought, the same way whether it is new or was read back.

        Args:
            requests: What each attempt was asked.
            attempts: As long as `requests`; inserted in the archive already.
        """
        for request, attempt in zip(requests, attempts, strict=True):
            progress = self.progress[attempt.problem_id]
            progress.attempts += 1
            if attempt.outcome is Outcome.INSERTED:
                self.elites += 1
                self.covered_problems += progress.cells == 0
                progress.cells += 1
            if attempt.cell is not None and attempt.outcome.correct:
                progress.found.add(attempt.cell.approach)
            if attempt.cell is not None and attempt.outcome in (Outcome.INSERTED, Outcome.REPLACED):
                # By the whole cell, also where an archive tells cells apart by less: what comes later under the same
                # one takes the same place there, so an elite's entry is always its own.
                self._origin[attempt.problem_id, attempt.cell] = attempt.id
            # What our own verifier could not judge says nothing about the approach.
            if request.target is not None and attempt.outcome is not Outcome.VERIFIER_FAILURE:
                hit = attempt.cell is not None and attempt.cell.approach == request.target
                self.rates.record(request.covered, request.target, hit)
