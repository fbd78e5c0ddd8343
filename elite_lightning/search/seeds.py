"""The seed samples of a search with a labeler: first without names, then the source of the vocabulary, then named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from elite_lightning.errors import UsageError
from elite_lightning.search.approaches import Approaches, LabelledApproaches
from elite_lightning.search.journal import JournalError, SearchJournal
from elite_lightning.search.labeling import Labeler, LabelingSession, Solved, Vocabulary
from elite_lightning.search.readback import relabelled, shard

if TYPE_CHECKING:
    from elite_lightning.search.base import ArchiveSearch


class SeedLabels:
    """What a labeler does for one search.

    Args:
        search: Its problems, journals and run folder.
        labeler: Names approaches.
    """

    def __init__(self, search: ArchiveSearch, labeler: Labeler) -> None:
        self._search, self._labeler = search, labeler

    @property
    def path(self) -> Path:
        """Where the vocabulary is frozen."""
        return self._search.folder / "vocabulary.json"

    @contextmanager
    def unlabelled(self, rank: int) -> Iterator[Approaches | None]:
        """What stands for the approaches while seed samples are drawn; None if the rank's are drawn and named."""
        with self._journal(rank) as journal:
            is_done = journal.vocabulary is not None
        if is_done:
            yield None
            return
        with self._session() as session:
            session.check()
            yield LabelledApproaches(self._search.domain, self._search.pool, session, None)

    def learn(self) -> Vocabulary:
        """Induce the vocabulary from the seed samples of all ranks and write it down, unless that was done."""
        if not self.path.is_file():
            with self._session() as session:
                session.induce(self._solved_seeds()).save(self.path, self._labeler.fingerprint())
        return self._vocabulary()

    @contextmanager
    def approaches(self) -> Iterator[tuple[Approaches, Mapping[str, str]]]:
        """What names approaches after the seed samples, and the archive's fingerprints."""
        vocabulary = self._vocabulary()
        with self._session() as session:
            fingerprints = {**self._search.fingerprints, "vocabulary": vocabulary.fingerprint}
            yield LabelledApproaches(self._search.domain, self._search.pool, session, vocabulary), fingerprints

    def label_seeds(self, approaches: Approaches, rank: int) -> None:
        """Put the seed samples in a rank's journal under the vocabulary's names, once.

        Raises:
            JournalError: If they are under the names of another vocabulary.
            UsageError: If the labeler cannot do its work.
        """
        search, vocabulary = self._search, self._vocabulary()
        with self._journal(rank) as journal:
            if journal.vocabulary is None:
                archive = search.empty_archive(approaches.judge, search.fingerprints)
                problems = {problem.id: problem for problem in search.problems}
                attempts = relabelled(archive, approaches, search.pool, problems, list(journal.attempts()))
                journal.relabel(attempts, vocabulary.fingerprint)
            elif journal.vocabulary != vocabulary.fingerprint:
                raise JournalError(
                    f"{journal.path} was labelled with another vocabulary than {self.path} holds; "
                    "put that file back, or choose another run folder"
                )

    def _solved_seeds(self) -> list[Solved]:
        """The right ones among the seed samples of all ranks."""
        search = self._search
        problems = {problem.id: problem for problem in search.all_problems}
        seeds: list[Solved] = []
        for rank in range(search.world_size):
            wanted = search.settings.seed_samples * len(shard(search.all_problems, rank, search.world_size))
            with SearchJournal(search.journal_path(rank)) as journal:
                if len(journal) < wanted:
                    raise JournalError(
                        f"{journal.path} holds {len(journal)} of {wanted} seed samples; let that rank draw the others"
                    )
                correct = [a for a in journal.attempts() if a.outcome.correct]
            seeds += [Solved(problems[a.problem_id], a.solution or "") for a in correct]
        if not seeds:
            raise UsageError(
                "no seed sample is right, so a labeler has nothing to name approaches from: raise search.seed_samples, "
                "take easier problems, or leave the labeler out"
            )
        return seeds

    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.load(self.path, self._labeler.fingerprint())

    def _journal(self, rank: int) -> SearchJournal:
        return SearchJournal(self._search.journal_path(rank), self._search.meta(rank))

    @contextmanager
    def _session(self) -> Iterator[LabelingSession]:
        search = self._search
        cache = search.file_of_rank("labels", search.rank)
        with closing(self._labeler.open(search.engine, search.codec, cache)) as session:
            yield session
