"""Who names approaches in a search: the domain, or a labeler with a vocabulary of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elite_lightning.search.attempt import Attempt
from elite_lightning.search.journal import JournalError
from elite_lightning.search.labeling import LabelingSession, Solved, Vocabulary
from elite_lightning.types import Cell, Domain, Judgement, Problem
from elite_lightning.verify import VerificationPool

UNLABELLED = "unlabelled"
"""The approach of every solution as long as a labeler's vocabulary is not known; never that of an elite."""


class Approaches:
    """Approaches as the domain names them.

    Args:
        domain: Has the vocabulary.
        pool: Judges; the cell that it returns holds the domain's approach.
    """

    def __init__(self, domain: Domain, pool: VerificationPool) -> None:
        self._domain, self._pool = domain, pool

    @property
    def targets(self) -> Sequence[str]:
        """What the search may ask for."""
        return self._domain.approaches

    def describe(self, target: str) -> str:
        """A target as the prompt shows it."""
        return target

    def judge(self, problem: Problem, response: str) -> Judgement:
        """Judge one response, as an archive asks: its cell holds the approach."""
        return self.named([problem], [self._pool.judge(problem, response)])[0]

    def named(self, problems: Sequence[Problem], judgements: Sequence[Judgement]) -> list[Judgement]:  # noqa: ARG002
        """The judgements with the approach in their cells, where there is a cell."""
        return list(judgements)

    def recall(self, attempts: Iterable[Attempt]) -> None:
        """Take over the approaches of attempts that were written down."""


class LabelledApproaches(Approaches):
    """Approaches as a labeler names them; the structure in a cell stays the domain's.

    Args:
        domain: See `Approaches`.
        pool: See `Approaches`.
        session: Names the approach of a solution that was not seen before.
        vocabulary: The names. None: everything is `UNLABELLED`, and nothing may be asked for.
    """

    def __init__(
        self, domain: Domain, pool: VerificationPool, session: LabelingSession, vocabulary: Vocabulary | None
    ) -> None:
        super().__init__(domain, pool)
        self._session, self._vocabulary = session, vocabulary
        self._labels: dict[tuple[str, str], str] = {}

    @property
    def targets(self) -> Sequence[str]:
        """The vocabulary's names."""
        return () if self._vocabulary is None else self._vocabulary.names

    def describe(self, target: str) -> str:
        """A name and its definition."""
        return target if self._vocabulary is None else self._vocabulary.describe(target)

    def named(self, problems: Sequence[Problem], judgements: Sequence[Judgement]) -> list[Judgement]:
        """The judgements under the labeler's names; what is new is asked for at once.

        Raises:
            UsageError: If the labeler cannot be asked.
        """
        new: dict[tuple[str, str], Solved] = {}
        for problem, judgement in zip(problems, judgements, strict=True):
            key = (problem.id, judgement.solution or "")
            if judgement.cell is not None and key not in self._labels:
                new[key] = Solved(problem, key[1])
        self._labels.update(zip(new, self._ask(list(new.values())), strict=True))
        return [self._renamed(*pair) for pair in zip(problems, judgements, strict=True)]

    def recall(self, attempts: Iterable[Attempt]) -> None:
        """What was written down decides, so that no second answer can contradict it.

        Raises:
            JournalError: If it was written down before there was a vocabulary, and there is one now.
        """
        for attempt in attempts:
            if attempt.cell is not None:
                if self._vocabulary is not None and attempt.cell.approach == UNLABELLED:
                    where = f"attempt {attempt.id} at problem {attempt.problem_id!r}"
                    raise JournalError(f"{where} has no approach yet; let that rank finish its search")
                self._labels[attempt.problem_id, attempt.solution or ""] = attempt.cell.approach

    def _ask(self, solved: Sequence[Solved]) -> list[str]:
        if self._vocabulary is None or not solved:
            return [UNLABELLED] * len(solved)
        return self._session.label(solved, self._vocabulary)

    def _renamed(self, problem: Problem, judgement: Judgement) -> Judgement:
        if judgement.cell is None:
            return judgement
        label = self._labels[problem.id, judgement.solution or ""]
        return replace(judgement, cell=Cell(label, judgement.cell.structure))
