"""Plain sampling into the same archive: the reference that a search has to beat with the same number of attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elite_lightning.archive import EliteArchive
from elite_lightning.samples import Keeping, SampleArchive
from elite_lightning.search.base import ArchiveSearch
from elite_lightning.search.state import Request, SearchState
from elite_lightning.types import Judgement, Problem


class IidSearch(ArchiveSearch):
    """Asks every problem as often as any other, without a target and without a parent.

    Of the settings it uses the budget, the sizes of rounds and batches, cells, sampling and seed. Its seed samples are
    those of `MapElitesSearch` with the same settings.

    Args:
        keeping: What the merged archive keeps of the correct samples; None is an elite a cell, as in every search. The
            journal does not depend on it, so one search can be merged in several ways.
        arguments: As in `ArchiveSearch`.
        named: As in `ArchiveSearch`.
    """

    method = "iid"
    journal_stem = "iid"

    def __init__(self, *arguments: Any, keeping: Keeping | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.keeping = keeping

    def store(self, judge: Callable[[Problem, str], Judgement], fingerprints: Mapping[str, str]) -> EliteArchive:
        """See `ArchiveSearch.store`; the fingerprints name what is kept."""
        if self.keeping is None:
            return super().store(judge, fingerprints)
        named = {**fingerprints, **self.keeping.fingerprints}
        return SampleArchive(judge, self.codec.encode_response, named, self.keeping, self.settings.cells)

    def turn(self, problem: Problem, state: SearchState) -> int:
        """Few attempts first."""
        return state.progress[problem.id].attempts

    def request(self, problem: Problem, round_: int, state: SearchState) -> Request:  # noqa: ARG002 - it never aims
        """The plain prompt."""
        return Request(problem)
