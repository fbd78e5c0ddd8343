"""From journals back to archives: every elite passes the verifier again, and what is known to be wrong is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elite_lightning.archive import EliteArchive, Outcome
from elite_lightning.search.approaches import Approaches
from elite_lightning.search.attempt import Attempt
from elite_lightning.search.journal import JournalError, SearchJournal
from elite_lightning.types import Problem
from elite_lightning.verify import VerificationPool, Want


def insert_again(
    archive: EliteArchive,
    approaches: Approaches,
    pool: VerificationPool,
    problems: Mapping[str, Problem],
    attempts: Sequence[Attempt],
) -> None:
    """Insert attempts that were written down.

    The archive verifies those that were correct; the pool does so for all of them at once beforehand, so that the
    archive is answered from its memory. Those that were not correct change no archive and are only counted.

    Args:
        archive: Takes them.
        approaches: The archive's judge; keeps the approaches that were written down.
        pool: What it judges with.
        problems: Id to problem.
        attempts: In the order in which they were made, as far as they are of the same problem.

    Raises:
        JournalError: If one has another outcome than it had.
    """
    approaches.recall(attempts)
    pool.judge_many([(problems[a.problem_id], a.response) for a in attempts if a.outcome.correct], Want(cell=True))
    for attempt in attempts:
        problem = problems[attempt.problem_id]
        if not attempt.outcome.correct:
            archive.reject(problem, attempt.outcome)
            continue
        outcome = archive.insert(problem, attempt.response)
        if outcome is not attempt.outcome:
            raise _changed(attempt, outcome)


def relabelled(
    archive: EliteArchive,
    approaches: Approaches,
    pool: VerificationPool,
    problems: Mapping[str, Problem],
    attempts: Sequence[Attempt],
) -> list[Attempt]:
    """Attempts as they are once a labeler's vocabulary is known, in cells of its approaches.

    Args:
        archive: Empty; takes them.
        approaches: The archive's judge.
        pool: What it judges with.
        problems: Id to problem.
        attempts: In the order in which they were made.

    Raises:
        JournalError: If one that was correct is not any more.
        UsageError: If the labeler cannot be asked.
    """
    correct = [a for a in attempts if a.outcome.correct]
    asked = [problems[a.problem_id] for a in correct]
    judged = pool.judge_many([(problems[a.problem_id], a.response) for a in correct], Want(cell=True))
    named = dict(zip((a.id for a in correct), approaches.named(asked, judged), strict=True))
    changed = []
    for attempt in attempts:
        problem = problems[attempt.problem_id]
        if attempt.id not in named:
            archive.reject(problem, attempt.outcome)
            changed.append(attempt)
            continue
        outcome = archive.insert(problem, attempt.response)
        if not outcome.correct:
            raise _changed(attempt, outcome)
        changed.append(replace(attempt, outcome=outcome, cell=named[attempt.id].cell))
    return changed


def _changed(attempt: Attempt, outcome: Outcome) -> JournalError:
    where = f"attempt {attempt.id} at problem {attempt.problem_id!r}"
    if outcome is Outcome.VERIFIER_FAILURE:
        return JournalError(f"{where} could not be judged now; search again")
    return JournalError(
        f"{where} is {outcome.value!r} now and was {attempt.outcome.value!r} in the journal; "
        "search again in another run folder"
    )


def merge_journals(
    archive: EliteArchive,
    approaches: Approaches,
    pool: VerificationPool,
    problems: Sequence[Problem],
    journals: Mapping[Path, Mapping[str, Any]],
    attempts_per_problem: int,
) -> None:
    """Insert the attempts of several finished journals, in the order of the problems.

    The order of the ranks decides nothing: one problem's attempts lie in one journal.

    Args:
        archive: Takes them.
        approaches: The archive's judge.
        pool: What it judges with.
        problems: All problems; rank r of n searched every n-th, beginning with r.
        journals: Journal of each rank in their order, and what it must have been written with.
        attempts_per_problem: Budget of a finished search.

    Raises:
        JournalError: If a journal is missing, not finished, or does not fit.
    """
    by_problem: dict[str, list[Attempt]] = {problem.id: [] for problem in problems}
    for rank, (path, meta) in enumerate(journals.items()):
        if not path.is_file():
            raise JournalError(f"no search journal at {path}; let that rank search first")
        budget = attempts_per_problem * len(shard(problems, rank, len(journals)))
        with SearchJournal(path, meta) as journal:
            if len(journal) != budget:
                raise JournalError(f"{path} holds {len(journal)} of {budget} attempts; let that rank finish its search")
            for attempt in journal.attempts():
                by_problem[attempt.problem_id].append(attempt)
    by_id = {problem.id: problem for problem in problems}
    for attempts in _chunks(list(by_problem.values()), 4096):
        insert_again(archive, approaches, pool, by_id, attempts)


def shard(problems: Sequence[Problem], rank: int, world_size: int) -> list[Problem]:
    """One rank's share of the problems: every `world_size`-th, beginning with the rank's own index."""
    return list(problems[rank::world_size])


def _chunks(groups: Sequence[list[Attempt]], size: int) -> list[list[Attempt]]:
    """The groups one after the other, in lists of about `size`, which is enough to keep all workers busy."""
    chunks: list[list[Attempt]] = [[]]
    for group in groups:
        if len(chunks[-1]) >= size:
            chunks.append([])
        chunks[-1].extend(group)
    return chunks
