"""Judge a query against gold: run both on each of the problem's databases and ask a comparison rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.executor import Executor, Failure
from elite_lightning.domains.sql.rules import Database, Pair, Query, Rule
from elite_lightning.errors import UsageError
from elite_lightning.types import Reason, Verdict

EMPTY = "right, but without rows: any other query without rows would be right as well"
"""The detail of a verdict on a query that is right although gold returns no row from any of the databases."""


class GoldError(UsageError):
    """A gold query that cannot be run; says nothing about any solution."""


def verify_sql(
    executor: Executor, rule: Rule, paths: Sequence[Path], gold: str, solution: str, ordered: bool | None = None
) -> Verdict:
    """Run the solution and gold on each database, up to the first that the solution fails on.

    Args:
        executor: Runs both, under its limits, and remembers gold's rows.
        rule: Decides.
        paths: The problem's own database first; the others are its copies, which not every rule looks at.
        gold: The query that is right by definition.
        solution: The query to be judged, as it was written.
        ordered: What the problem says about the order of rows, if anything; only the default rule asks.

    Raises:
        GoldError: If gold cannot be run on a database that the solution was right on so far.
        DatabaseError: If a database is missing or broken.
    """
    scores, empty = [], True
    wanted_sql, got_sql = rule.prepare(gold), rule.prepare(solution)
    for path in _judged(rule, paths):
        got = executor.run(path, got_sql)
        if isinstance(got, Failure):
            return Verdict(False, 0.0, got.reason, got.detail)
        wanted = _run_gold(executor, path, wanted_sql)
        pair = Pair(Query(wanted_sql, wanted), Query(got_sql, got), Database(executor, path), ordered)
        scores.append(rule.score(pair))
        if scores[-1] == 0:
            return Verdict(False, 0.0, Reason.WRONG_RESULT, _difference(wanted, got, path))
        empty = empty and not wanted.rows
    reward = min(scores)
    if reward < rule.right_from:
        return Verdict(False, reward, Reason.WRONG_RESULT, f"right in part: {rule.name} is {reward:.3f}")
    return Verdict(True, reward, detail=EMPTY if empty else "")


def require_gold(executor: Executor, rule: Rule, paths: Sequence[Path], gold: str) -> None:
    """Raise `GoldError` unless gold can be run on all databases that the rule looks at."""
    for path in _judged(rule, paths):
        _run_gold(executor, path, rule.prepare(gold))


def _judged(rule: Rule, paths: Sequence[Path]) -> Sequence[Path]:
    return paths if rule.every_copy else paths[:1]


def _run_gold(executor: Executor, path: Path, gold: str) -> Rows:
    rows = executor.run(path, gold)
    if isinstance(rows, Failure):
        raise GoldError(
            f"the gold query {gold!r} cannot run on {path} ({rows.reason}: {rows.detail}): "
            "repair the problem, leave it out, or raise the limits"
        )
    return rows


def _difference(gold: Rows, got: Rows, path: Path) -> str:
    if gold.columns != got.columns:
        return f"{got.columns} columns instead of {gold.columns}"
    if len(gold.rows) != len(got.rows):
        return f"{len(got.rows)} rows instead of {len(gold.rows)} on {path.name}"
    return f"other rows than gold's on {path.name}"
