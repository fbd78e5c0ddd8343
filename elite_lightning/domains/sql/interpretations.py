"""Problems with several interpretations: `Problem.data["golds"]` holds a query for each of them.

A solution answers an interpretation if it is right by that gold. That tells interpretations apart where their rows
differ, as in AMBROSIA (Saparina 2024, arXiv 2406.19073). AmbiQT's do not differ in rows; its problems also have
`"original": {"database", "gold"}`, `"kind"` and `"ambiguity"`, and are measured by AmbiQT's own rule (`ambiqt.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elite_lightning.domains.sql.ambiqt import ambiqt_hits, normalised, same_rows_as_ambiqt
from elite_lightning.domains.sql.executor import Executor, Failure
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem, Verdict


def golds_of(problem: Problem) -> tuple[str, ...]:
    """The gold query of each interpretation; one for most problems.

    Raises:
        UsageError: If there is none.
    """
    golds = tuple(problem.data.get("golds") or filter(None, [problem.data.get("gold")]))
    if not golds:
        raise UsageError(f"problem {problem.id!r} has no data['gold']: the SQL domain needs database and gold")
    return golds


def right_by_any(verdicts: Iterable[Verdict]) -> Verdict:
    """The first verdict that says right, else the first one; later ones are not asked for once one says right."""
    first: Verdict | None = None
    for verdict in verdicts:
        if verdict.correct:
            return verdict
        first = first or verdict
    if first is None:
        raise ValueError("a problem without a gold query has no verdict")
    return first


def is_of_ambiqt(problem: Problem) -> bool:
    """Whether AmbiQT's own rule says which interpretations an answer fits."""
    return "original" in problem.data


def hits_by_ambiqt(executor: Executor, originals: Path | None, problem: Problem, solution: str) -> tuple[bool, ...]:
    """Which of an AmbiQT problem's two interpretations a solution answers, by the official rule.

    Args:
        executor: Runs queries.
        originals: Folder of Spider's unchanged databases, `<name>/<name>.sqlite`.
        problem: Of AmbiQT.
        solution: The query as it was written.

    Raises:
        UsageError: If there is no such folder or database, or the original query cannot run on it.
    """
    original = problem.data["original"]
    if originals is None:
        raise UsageError(
            f"problem {problem.id!r} is of AmbiQT, whose rule runs queries on the unchanged databases: "
            "set the SQL domain's `originals` to their folder (db-content/database)"
        )
    path = originals / original["database"] / f"{original['database']}.sqlite"
    wanted = executor.run(path, normalised(original["gold"]))
    if isinstance(wanted, Failure):
        raise UsageError(f"the original query of problem {problem.id!r} cannot run on {path}: {wanted.detail}")
    rows = wanted.rows

    def matches(sql: str) -> bool:
        got = executor.run(path, sql)
        return not isinstance(got, Failure) and same_rows_as_ambiqt(original["gold"], rows, got.rows)

    return ambiqt_hits(problem.data["kind"], problem.data["ambiguity"], original["gold"], solution, matches)
