"""Jobs and judgements as plain tuples, the form in which they travel between processes.

Pickling the dataclasses themselves takes longer than most verdicts: about 28 microseconds a job there and back, and
3 in this form.
"""

from __future__ import annotations

from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.judging import Job, Want
from elite_lightning.types import Cell, Judgement, Problem, Reason, Verdict

Packed = tuple[Any, ...]


def pack_job(job: Job) -> Packed:
    """A job as a tuple."""
    problem, want = job.problem, job.want
    known = None if job.known is None else pack_judgement(job.known)
    return problem.id, problem.question, problem.data, job.solution, (want.cell, want.strategy, want.hits), known


def unpack_job(packed: Packed) -> Job:
    """The job that `pack_job` packed."""
    identity, question, data, solution, want, known = packed
    return Job(
        Problem(identity, question, data),
        solution,
        Want(*want),
        None if known is None else unpack_judgement(known),
    )


def pack_judgement(judgement: Judgement) -> Packed:
    """A judgement as a tuple."""
    verdict, cell = judgement.verdict, judgement.cell
    reason = None if verdict.reason is None else verdict.reason.value
    return (
        *(judgement.solution, verdict.correct, verdict.reward, reason, verdict.detail),
        *(None if cell is None else tuple(cell), judgement.strategy, judgement.hits),
    )


def unpack_judgement(packed: Packed) -> Judgement:
    """The judgement that `pack_judgement` packed."""
    solution, correct, reward, reason, detail, cell, strategy, hits = packed
    verdict = Verdict(correct, reward, None if reason is None else Reason(reason), detail)
    return Judgement(solution, verdict, None if cell is None else Cell(*cell), strategy, hits)


def pack_answer(answer: Judgement | UsageError) -> Packed | UsageError:
    """A judgement as a tuple; an error of the user's travels as it is."""
    return answer if isinstance(answer, UsageError) else pack_judgement(answer)


def unpack_answer(packed: Packed | UsageError) -> Judgement | UsageError:
    """The answer that `pack_answer` packed."""
    return packed if isinstance(packed, UsageError) else unpack_judgement(packed)
