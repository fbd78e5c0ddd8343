"""The SQL domain: a query is right when it returns gold's rows on the problem's database and on all its copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from elite_lightning.domains.sql.compare import Rows, same_rows
from elite_lightning.domains.sql.executor import DatabaseError, Executor, Failure, Limits
from elite_lightning.domains.sql.extract import extract_sql
from elite_lightning.domains.sql.labeler import APPROACHES, label_approach
from elite_lightning.domains.sql.prompts import CompactPrompt, SqlPrompt
from elite_lightning.domains.sql.strategy import strategy_key
from elite_lightning.domains.sql.structure import structure_of
from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Problem, Reason, Verdict

RULES_VERSION = 1
"""To be raised with every change to verdicts, cells, keys or extraction: archives of another version are refused."""

SUFFIX = ".sqlite"
REMEMBERED_GOLDS = 4096
REMEMBERED_DESCRIPTORS = 100_000


class SqlDomain:
    """Questions to SQLite databases; `Problem.data` is `{"database": name, "gold": sql, "ordered": bool}`.

    A solution is right when it returns the rows of the gold query on every database file of the problem's folder:
    the problem's own and its differently filled copies, so that a query that is right by luck is wrong. Rows are
    compared as multisets, as lists where the problem is `ordered`, with columns by position.

    An instance travels to other processes as its settings; connections and caches stay behind.

    Args:
        databases: Folder of databases in Spider's layout: `<name>/<name>.sqlite`, and beside it any number of other
            `.sqlite` files with the same schema and other rows. The files must not change while they are used.
            A problem's database may also name a folder further down, as in `scope/Banking/loans`.
        limits: What one query may use on one database.
        prompts: The form of the prompt, as `class_path` and `init_args`; null is `CompactPrompt`, the bundled model's.
        used: Names of the databases that the fingerprint covers; null is every one in the folder. Sources that ask
            about a part of a large folder give this part.
    """

    name = "sql"
    approaches = APPROACHES

    def __init__(
        self,
        databases: str | Path,
        limits: Limits | None = None,
        prompts: SqlPrompt | None = None,
        used: Sequence[str] | None = None,
    ) -> None:
        self.databases = Path(databases).resolve()
        self.limits = limits or Limits()
        self.prompts: SqlPrompt = prompts or CompactPrompt()
        self.used = None if used is None else tuple(sorted(set(used)))
        self._executor = Executor(self.limits)
        self._fingerprint: str | None = None
        self._paths = lru_cache(maxsize=None)(self._find_paths)
        self._gold = lru_cache(maxsize=REMEMBERED_GOLDS)(self._run_gold)
        self._cell = lru_cache(maxsize=REMEMBERED_DESCRIPTORS)(self._compute_cell)
        self._strategy = lru_cache(maxsize=REMEMBERED_DESCRIPTORS)(self._compute_strategy)

    def __reduce__(self) -> tuple[type[SqlDomain], tuple[Path, Limits, SqlPrompt, tuple[str, ...] | None]]:
        return type(self), (self.databases, self.limits, self.prompts, self.used)

    def fingerprint(self) -> str:
        """Hash of the rules, the limits, the form of the prompt, and every used database's name, size and bytes."""
        if self._fingerprint is None:
            files = [_described(path, self.databases) for path in self._files()]
            content = [self.name, RULES_VERSION, APPROACHES, asdict(self.limits), self.prompts.identity(), files]
            self._fingerprint = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return self._fingerprint

    def prompt(self, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """The schema and the question, and where given the approach to take and a parent to start from.

        Raises:
            DatabaseError: If the problem's database is missing or broken.
        """
        own = self._paths(_required(problem, "database"))[0]
        self._executor.columns(own)  # says what is wrong with a file that is not a database
        return self.prompts.write(own, problem, target, parent)

    def count_tokens_with(self, tokens_of: Callable[[str], int]) -> None:
        """Let prompts be as long as the policy's tokenizer counts; see `elite_lightning.types.TokenBudget`."""
        self.prompts.count_tokens_with(tokens_of)

    def cut_report(self) -> str | None:
        """What the prompts' limit has cost so far, in one line; None if nothing."""
        return self.prompts.cut_report()

    def extract(self, response: str) -> str | None:
        """The query within a response, or None."""
        return extract_sql(response)

    def verify(self, problem: Problem, solution: str) -> Verdict:
        """Run the solution on the problem's database and its copies, up to the first that it fails on.

        Raises:
            UsageError: If a database is missing or broken, or the gold query cannot run.
        """
        gold = _required(problem, "gold")
        ordered = bool(problem.data.get("ordered", False))
        for path in self._paths(_required(problem, "database")):
            got = self._executor.run(path, solution)
            if isinstance(got, Failure):
                return Verdict(False, 0.0, got.reason, got.detail)
            wanted = self._gold(path, gold)
            if not same_rows(wanted, got, ordered):
                return Verdict(False, 0.0, Reason.WRONG_RESULT, _difference(wanted, got, path))
        return Verdict(True, 1.0)

    def cell(self, problem: Problem, solution: str) -> Cell:
        """Approach and structure of a solution."""
        return self._cell(_required(problem, "database"), solution)

    def strategy(self, problem: Problem, solution: str) -> str:
        """The evaluation's key of a solution."""
        return self._strategy(_required(problem, "database"), solution)

    def _compute_cell(self, database: str, sql: str) -> Cell:
        return Cell(label_approach(sql, self._tables(database)), structure_of(sql))

    def _compute_strategy(self, database: str, sql: str) -> str:
        return strategy_key(sql, self._tables(database))

    def _tables(self, database: str) -> dict[str, tuple[str, ...]]:
        return self._executor.columns(self._paths(database)[0])

    def _find_paths(self, database: str) -> tuple[Path, ...]:
        """The problem's own file, then its copies by name."""
        folder = self.databases / database
        own = folder / f"{folder.name}{SUFFIX}"
        if not own.is_file():
            raise DatabaseError(
                f"no database file at {own}: check the folder of databases ({self.databases}) "
                f"and the problem's database ({database!r})"
            )
        return own, *sorted(path for path in own.parent.glob(f"*{SUFFIX}") if path != own)

    def _files(self) -> list[Path]:
        """All that verdicts and prompts depend on."""
        if self.used is None:
            databases = sorted(self.databases.rglob(f"*{SUFFIX}"))
        else:
            databases = sorted(path for name in self.used for path in self._paths(name))
        beside = {file for path in databases for file in self.prompts.files(path)}
        return [*databases, *sorted(beside)]

    def _run_gold(self, path: Path, gold: str) -> Rows:
        rows = self._executor.run(path, gold)
        if isinstance(rows, Failure):
            raise UsageError(
                f"the gold query {gold!r} cannot run on {path} ({rows.reason}: {rows.detail}): "
                "repair the problem, leave it out, or raise the limits"
            )
        return rows


def _required(problem: Problem, field: str) -> Any:
    if field not in problem.data:
        raise UsageError(f"problem {problem.id!r} has no data[{field!r}]: the SQL domain needs database and gold")
    return problem.data[field]


def _difference(gold: Rows, got: Rows, path: Path) -> str:
    if gold.columns != got.columns:
        return f"{got.columns} columns instead of {gold.columns}"
    if len(gold.rows) != len(got.rows):
        return f"{len(got.rows)} rows instead of {len(gold.rows)} on {path.name}"
    return f"other rows than gold's on {path.name}"


def _described(path: Path, root: Path) -> tuple[str, int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.relative_to(root).as_posix(), path.stat().st_size, digest
