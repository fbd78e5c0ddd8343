"""What a comparison rule is: a name, what is run in place of the query, and a score of two results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.database_file import ColumnNames
from elite_lightning.domains.sql.executor import Executor, Failure


class Database(NamedTuple):
    """One database, for rules that have to look further than at the two results."""

    executor: Executor
    path: Path

    def run(self, sql: str) -> Rows | Failure:
        """What a query returns, under the executor's limits."""
        return self.executor.run(self.path, sql)

    def names(self) -> ColumnNames:
        """Tables, columns and foreign keys."""
        return self.executor.names(self.path)


class Query(NamedTuple):
    """What was run, and what it returned."""

    sql: str
    rows: Rows


class Pair(NamedTuple):
    """Gold and a prediction on one database; `ordered` is what the problem says about the order of rows, if anything.

    Neither `Rows` may be changed.
    """

    gold: Query
    got: Query
    database: Database
    ordered: bool | None = None


def unchanged(sql: str) -> str:
    """Run the query as it is."""
    return sql


@dataclass(frozen=True, slots=True)
class Rule:
    """A way of deciding whether a prediction that runs is right.

    Args:
        name: What users call it.
        score: From a pair to the reward. Over several databases the lowest counts.
        prepare: What is run in place of a query, gold's and the prediction's alike.
        every_copy: Whether the problem's copies of its database are judged too, or its own file only.
        right_from: The lowest score of a prediction that is right.
        repeats: How often both queries are run, by which the time for a verdict grows.
    """

    name: str
    score: Callable[[Pair], float]
    prepare: Callable[[str], str] = unchanged
    every_copy: bool = False
    right_from: float = 1.0
    repeats: int = 1
