"""What is wrong with a benchmark's own answers: golds that cannot run, and databases in which every answer is empty."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from elite_lightning.domains.sql import SqlDomain
from elite_lightning.domains.sql.ddl import quoted
from elite_lightning.domains.sql.interpretations import golds_of
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem


def failing_golds(domain: SqlDomain, problems: Iterable[Problem]) -> dict[str, str]:
    """Why a gold query is not a right answer, by problem id; only problems with such a gold are listed.

    A gold must run within the domain's limits on the problem's database and on all its copies.

    Args:
        domain: Judges each gold as if a policy had written it.
        problems: The problems.
    """
    failures = {}
    for problem in problems:
        # Each gold alone: the others may be the ones that cannot run.
        data = {key: value for key, value in problem.data.items() if key != "golds"}
        for number, gold in enumerate(golds_of(problem), start=1):
            asked = replace(problem, data={**data, "gold": gold})
            verdict = domain.verify(asked, gold)
            if not verdict.correct:
                which = f"gold {number}: " if len(golds_of(problem)) > 1 else ""
                failures[problem.id] = f"{which}{verdict.reason}, {verdict.detail}"
                break
    return failures


def is_empty(database: Path) -> bool:
    """Whether no table of a SQLite file has a row.

    Args:
        database: The file; opened read-only.

    Raises:
        UsageError: If it is not a database.
    """
    try:
        return not _has_rows(database)
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{database} cannot be read as a SQLite database ({error}): copy it anew") from error


def _has_rows(database: Path) -> bool:
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_'"
        ).fetchall()
        return any(connection.execute(f"SELECT 1 FROM {quoted(name)} LIMIT 1").fetchone() for (name,) in tables)
