"""What every search into an archive shares: budget, rounds, journal, shares of ranks.

It knows no way of searching: that is a subclass, which says whose turn it is and what to ask for. Nothing here trains
anything or imports torch, Lightning or SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

from elite_lightning.archive import EliteArchive
from elite_lightning.errors import UsageError
from elite_lightning.search.approaches import Approaches
from elite_lightning.search.attempt import Attempt
from elite_lightning.search.identity import search_fingerprints
from elite_lightning.search.journal import SearchJournal
from elite_lightning.search.labeling import Labeler, Vocabulary
from elite_lightning.search.readback import merge_journals, shard
from elite_lightning.search.report import SearchProgress, SearchReport
from elite_lightning.search.rounds import RoundRunner
from elite_lightning.search.seeds import SeedLabels
from elite_lightning.search.settings import SearchSettings
from elite_lightning.search.state import Request, SearchState
from elite_lightning.search.turns import Turns
from elite_lightning.types import Codec, Domain, Judgement, Problem, RolloutEngine
from elite_lightning.verify import VerificationPool


class ArchiveSearch(ABC):
    """Searches problems with a frozen policy and files what is correct in an archive.

    Every attempt goes to a journal, and all that is drawn by lot depends on the seed, the rank, the round, the batch
    and the problem's id only. So a search that was killed at any moment and is run again reads what it has, goes on,
    and ends with the same archive.

    With a labeler the search has two parts. First come the seed samples of all problems. Then a vocabulary of
    approaches is induced from those that are right, written to `vocabulary.json` and never changed again; the seed
    samples are put under its names, and the search goes on with its approaches as targets. `run` does all of it; where
    several ranks share the problems, each calls `seed`, one calls `learn_vocabulary`, and then each calls `run`.

    An attempt that our own verifier could not judge, although the pool tried again, is counted as `verifier_failure`.
    It stays so when the journal is read again: what was written down decides, not the luck of another try.

    Args:
        domain: How to ask, and what is right.
        engine: Samples responses.
        codec: Text to tokens; `encode_response` decides what is shorter.
        pool: Verifies beside generation.
        problems: All problems, the same on every rank; each rank searches its share.
        folder: Run folder; the journal lies in it.
        base_model: Fingerprint of the policy's weights.
        settings: How attempts are spent.
        rank: This rank's index.
        world_size: Number of ranks that share the problems.
        on_progress: Called after every batch, those that are read back included.
        labeler: Names approaches instead of the domain.

    Raises:
        UsageError: If two problems have the same id.
    """

    method: ClassVar[str]
    """Name of the way of searching; it enters the fingerprint and names the journal's file."""
    journal_stem: ClassVar[str]
    """Name of the journal's file without its ending."""

    def __init__(
        self,
        domain: Domain,
        engine: RolloutEngine,
        codec: Codec,
        pool: VerificationPool,
        problems: Sequence[Problem],
        folder: str | Path,
        base_model: str,
        settings: SearchSettings | None = None,
        rank: int = 0,
        world_size: int = 1,
        on_progress: Callable[[SearchProgress], None] | None = None,
        labeler: Labeler | None = None,
    ) -> None:
        self.domain, self.engine, self.codec, self.pool = domain, engine, codec, pool
        self.settings = settings or SearchSettings()
        self.rank, self.world_size, self.folder = rank, world_size, Path(folder)
        self.all_problems = list(problems)
        self.problems = shard(self.all_problems, rank, world_size)
        self.budget = self.settings.attempts_per_problem * len(self.problems)
        self.labels = None if labeler is None else SeedLabels(self, labeler)
        self.fingerprints = search_fingerprints(
            self.method, self.settings, domain, codec, self.all_problems, base_model, labeler
        )
        self._on_progress = on_progress
        repeated = [id_ for id_, count in Counter(p.id for p in self.all_problems).items() if count > 1]
        if repeated:
            raise UsageError(f"two problems have the id {repeated[0]!r}; ids must be unique")

    @abstractmethod
    def turn(self, problem: Problem, state: SearchState) -> int:
        """Problems with the smallest value are served first; ties go by the problems' order.

        It is asked again only after the problem was served, so it must follow from the problem's own attempts.
        """

    @abstractmethod
    def request(self, problem: Problem, round_: int, state: SearchState) -> Request:
        """What to ask of a problem in a round after its seed samples."""

    def store(self, judge: Callable[[Problem, str], Judgement], fingerprints: Mapping[str, str]) -> EliteArchive:
        """An empty archive for the attempts of all ranks, whose elites are replayed.

        Args:
            judge: See `EliteArchive`.
            fingerprints: Hashes of all that the elites depend on, by name.
        """
        return self.empty_archive(judge, fingerprints)

    def empty_archive(
        self, judge: Callable[[Problem, str], Judgement], fingerprints: Mapping[str, str]
    ) -> EliteArchive:
        """An empty archive with an elite a cell: what the search itself goes by, whatever `store` keeps.

        Args:
            judge: See `EliteArchive`.
            fingerprints: Hashes of all that the elites depend on, by name.
        """
        return EliteArchive(judge, self.codec.encode_response, fingerprints, self.settings.cells)

    def run(self) -> EliteArchive:
        """Search this rank's share, from where an earlier process stopped, to the end of the budget.

        Returns:
            The archive of this rank's problems, not yet frozen.

        Raises:
            JournalError: If the journal in the run folder cannot be used or was written by another search.
            UsageError: If the labeler cannot do its work.
        """
        if self.labels is None:
            return self._search(Approaches(self.domain, self.pool), self.fingerprints, self.budget)
        if not self.labels.path.is_file():
            self.seed()
            self.learn_vocabulary()
        with self.labels.approaches() as (approaches, fingerprints):
            self.labels.label_seeds(approaches, self.rank)
            return self._search(approaches, fingerprints, self.budget)

    def seed(self) -> None:
        """Draw the seed samples of this rank's share; what a search with a labeler begins with.

        Raises:
            JournalError: As in `run`.
            UsageError: If there is no labeler, or it will not be able to work.
        """
        with self._labels().unlabelled(self.rank) as approaches:
            if approaches is not None:
                self._search(approaches, self.fingerprints, self.settings.seed_samples * len(self.problems))

    def learn_vocabulary(self) -> Vocabulary:
        """Induce the vocabulary from the seed samples of all ranks and write it down, unless that was done.

        Raises:
            JournalError: If a rank has not drawn its seed samples.
            UsageError: If there is no labeler, no seed sample is right, or the labeler cannot do its work.
        """
        return self._labels().learn()

    def _labels(self) -> SeedLabels:
        if self.labels is None:
            raise UsageError("this search has no labeler: the domain names the approaches, and nothing is to be learnt")
        return self.labels

    def _search(self, approaches: Approaches, fingerprints: Mapping[str, str], budget: int) -> EliteArchive:
        """Carry out rounds until `budget` attempts are made."""
        archive = self.empty_archive(approaches.judge, fingerprints)
        state = SearchState(archive, self.problems, approaches.targets)
        turns = Turns(self.problems, lambda problem: self.turn(problem, state))
        with SearchJournal(self.journal_path(self.rank), self.meta(self.rank)) as journal:
            runner = RoundRunner(
                domain=self.domain,
                engine=self.engine,
                codec=self.codec,
                pool=self.pool,
                approaches=approaches,
                settings=self.settings,
                rank=self.rank,
                state=state,
                journal=journal,
                on_batch=lambda round_: self._report_progress(round_, state),
            )
            round_ = 0
            while state.archive.attempts < budget:
                samples, requests = self._plan(round_, state, turns)
                runner.run(round_, samples, requests)
                round_ += 1
        return state.archive

    def merged(self) -> EliteArchive:
        """One archive from the journals of all ranks, in the order of the problems; call it when all ranks are done.

        Returns:
            The archive of all problems, not yet frozen.

        Raises:
            JournalError: If a journal is missing, not finished, or does not fit.
        """
        if self.labels is None:
            return self._merge(Approaches(self.domain, self.pool), self.fingerprints)
        with self.labels.approaches() as (approaches, fingerprints):
            return self._merge(approaches, fingerprints)

    def _merge(self, approaches: Approaches, fingerprints: Mapping[str, str]) -> EliteArchive:
        archive = self.store(approaches.judge, fingerprints)
        journals = {self.journal_path(rank): self.meta(rank) for rank in range(self.world_size)}
        budget = self.settings.attempts_per_problem
        merge_journals(archive, approaches, self.pool, self.all_problems, journals, budget)
        return archive

    def report(self) -> SearchReport:
        """Summary over the journals of all ranks.

        Raises:
            JournalError: If a journal is missing.
        """
        return SearchReport.of(self._all_attempts(), len(self.all_problems), self.settings.cells)

    def journal_path(self, rank: int) -> Path:
        """The journal of one rank: `search.sqlite`, or `search.rank1.sqlite` and so on for several ranks."""
        return self.file_of_rank(self.journal_stem, rank)

    def file_of_rank(self, stem: str, rank: int) -> Path:
        """A SQLite file that each rank has for itself."""
        part = f".rank{rank}" if self.world_size > 1 else ""
        return self.folder / f"{stem}{part}.sqlite"

    def _all_attempts(self) -> Iterator[Attempt]:
        for rank in range(self.world_size):
            with SearchJournal(self.journal_path(rank)) as journal:
                yield from journal.attempts()

    def meta(self, rank: int) -> Mapping[str, Any]:
        """What the journal must have been written with; the settings by name, so that a difference can be named."""
        fingerprints = {name: value for name, value in self.fingerprints.items() if name != "search"}
        shares = {"rank": rank, "world_size": self.world_size}
        return {"method": self.method, **self.settings.flat(), **fingerprints, **shares}

    def _plan(self, round_: int, state: SearchState, turns: Turns) -> tuple[int, list[Request]]:
        """Samples per request, and the requests of a round; a function of what the rounds before brought."""
        # Were all problems served every round, no problem would ever get more than another.
        size = min(self.settings.problems_per_round, ceil(len(self.problems) / 2))
        unseeded = self.problems[round_ * size : (round_ + 1) * size]
        if unseeded:
            return self.settings.seed_samples, [Request(problem) for problem in unseeded]
        samples = self.settings.samples_per_target
        affordable = (self.budget - state.archive.attempts) // samples
        requests = [self.request(problem, round_, state) for problem in turns.take(min(size, affordable))]
        state.begin(requests)
        return samples, requests

    def _report_progress(self, round_: int, state: SearchState) -> None:
        if self._on_progress is not None:
            counts = (len(self.problems), state.covered_problems, state.elites)
            self._on_progress(SearchProgress(round_, state.archive.attempts, self.budget, *counts))
