"""Judge one response in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elite_lightning.errors import UsageError
from elite_lightning.types import AmbiguousDomain, Domain, Judgement, Problem, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Want:
    """What to compute of a solution besides its verdict.

    Args:
        cell: The archive's cell, of a correct solution.
        strategy: The evaluation's key, of a correct solution.
        hits: The interpretations that it answers, of a solution that ran.
    """

    cell: bool = False
    strategy: bool = False
    hits: bool = False

    def __or__(self, other: Want) -> Want:
        return Want(self.cell or other.cell, self.strategy or other.strategy, self.hits or other.hits)

    def select(self, judgement: Judgement) -> Judgement:
        """The judgement without what was not asked for."""
        return replace(
            judgement,
            cell=judgement.cell if self.cell else None,
            strategy=judgement.strategy if self.strategy else None,
            hits=judgement.hits if self.hits else None,
        )


VERDICT_ONLY = Want()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be found out about a solution; `known` is what an earlier job found out about the same."""

    problem: Problem
    solution: str
    want: Want
    known: Judgement | None = None


NO_SOLUTION = Judgement(None, Verdict(False, 0.0, Reason.NO_SOLUTION, "no solution found in the response"))


def judge(domain: Domain, problem: Problem, response: str, want: Want = VERDICT_ONLY) -> Judgement:
    """Extract, verify and, for a correct solution, describe; in this process, without protection from crashes.

    Raises:
        UsageError: If the domain says that the user has something to repair. Whatever else a domain raises is a
            failure of the verifier, not a wrong answer.
    """
    solution = domain.extract(response)
    return NO_SOLUTION if solution is None else decide(domain, Job(problem, solution, want))


def decide(domain: Domain, job: Job) -> Judgement:
    """Do one job. Raises as `judge` does."""
    try:
        known = job.known or Judgement(job.solution, domain.verify(job.problem, job.solution))
        if job.want.hits and known.hits is None and known.verdict.reason in (None, Reason.WRONG_RESULT):
            known = replace(known, hits=_hits(domain, job))
        if not known.verdict.correct:
            return known
        cell, strategy = known.cell, known.strategy
        if job.want.cell and cell is None:
            cell = domain.cell(job.problem, job.solution)
        if job.want.strategy and strategy is None:
            strategy = domain.strategy(job.problem, job.solution)
        return replace(known, cell=cell, strategy=strategy)
    except UsageError:
        raise
    except Exception as error:
        return failed(job, f"{type(error).__name__}: {error}")


def _hits(domain: Domain, job: Job) -> tuple[bool, ...]:
    """Asked of wrong results as well: a benchmark's rule of coverage need not agree with its verdict."""
    return domain.interpretations(job.problem, job.solution) if isinstance(domain, AmbiguousDomain) else ()


def failed(job: Job, detail: str, reason: Reason = Reason.VERIFIER_FAILURE) -> Judgement:
    """The judgement of a solution that was not judged to the end."""
    return Judgement(job.solution, Verdict(False, 0.0, reason, detail))


def answer(domain: Domain, job: Job) -> Judgement | UsageError:
    """As `decide`, with the user's error as a value, so that other jobs beside it keep their answers."""
    try:
        return decide(domain, job)
    except UsageError as error:
        return error
