"""Plain sampling into the same archive: the reference that a search has to beat with the same number of attempts."""

from __future__ import annotations

from elite_lightning.search.base import ArchiveSearch
from elite_lightning.search.state import Request, SearchState
from elite_lightning.types import Problem


class IidSearch(ArchiveSearch):
    """Asks every problem as often as any other, without a target and without a parent.

    Of the settings it uses the budget, the sizes of rounds and batches, sampling and seed. Its seed samples are those
    of `MapElitesSearch` with the same settings.
    """

    method = "iid"
    journal_stem = "iid"

    def turn(self, problem: Problem, state: SearchState) -> int:
        """Few attempts first."""
        return state.progress[problem.id].attempts

    def request(self, problem: Problem, round_: int, state: SearchState) -> Request:  # noqa: ARG002 - it never aims
        """The plain prompt."""
        return Request(problem)
