"""The SQL domain: a query is right when it returns gold's rows on the problem's database and on all its copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from elite_lightning.domains.sql.executor import DatabaseError, Executor, Limits
from elite_lightning.domains.sql.extract import extract_sql
from elite_lightning.domains.sql.interpretations import golds_of, hits_by_ambiqt, is_of_ambiqt, right_by_any
from elite_lightning.domains.sql.labeler import APPROACHES, label_approach
from elite_lightning.domains.sql.prompts import CompactPrompt, SqlPrompt
from elite_lightning.domains.sql.rules import rule_named
from elite_lightning.domains.sql.strategy import strategy_key
from elite_lightning.domains.sql.structure import structure_of
from elite_lightning.domains.sql.tree_features import tree_features
from elite_lightning.domains.sql.verifier import require_gold, verify_sql
from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Problem, Verdict

RULES_VERSION = 3
"""To be raised with every change to verdicts, cells, keys or extraction: archives of another version are refused."""

SUFFIX = ".sqlite"
REMEMBERED_DESCRIPTORS = 100_000


class SqlDomain:
    """Questions to SQLite databases; `Problem.data` is `{"database": name, "gold": sql}`.

    A solution is right when it returns the rows of the gold query on every database file of the problem's folder:
    the problem's own and its differently filled copies, so that a query that is right by luck is wrong. What counts
    as the same rows, and whether copies are looked at, is the rule's to say; for the default rule a problem may have
    `"ordered": bool` as well, which says whether the order of rows counts and takes the place of gold's ORDER BY.

    A problem with several interpretations has `"golds"`, a query for each: a solution is right if it is right by any of
    them, and `interpretations` says by which.

    An instance travels to other processes as its settings; connections and caches stay behind.

    Args:
        databases: Folder of databases in Spider's layout: `<name>/<name>.sqlite`, and beside it any number of other
            `.sqlite` files with the same schema and other rows. The files must not change while they are used.
            A problem's database may also name a folder further down, as in `scope/Banking/loans`.
        limits: What one query may use on one database.
        prompts: The form of the prompt, as `class_path` and `init_args`; null is `CompactPrompt`, the bundled model's.
        used: Names of the databases that the fingerprint covers; null is every one in the folder. Sources that ask
            about a part of a large folder give this part.
        rule: How results are compared: `default`, or a benchmark's own such as `bird_ex`, `spider_exec` or
            `test_suite`. docs/sql_rules.md compares them.
        copies: Another folder in the same layout; its files are further copies of the databases of the same names.
        originals: Folder of unchanged databases in the same layout, which AmbiQT's rule of coverage runs queries on.

    Raises:
        UsageError: If there is no such rule.
    """

    name = "sql"
    approaches = APPROACHES

    def __init__(
        self,
        databases: str | Path,
        limits: Limits | None = None,
        prompts: SqlPrompt | None = None,
        used: Sequence[str] | None = None,
        rule: str = "default",
        copies: str | Path | None = None,
        originals: str | Path | None = None,
    ) -> None:
        self.databases = Path(databases).resolve()
        self.originals = None if originals is None else Path(originals).resolve()
        self.limits = limits or Limits()
        self.prompts: SqlPrompt = prompts or CompactPrompt()
        self.used = None if used is None else tuple(sorted(set(used)))
        self.rule = rule_named(rule)
        self.copies = None if copies is None else Path(copies).resolve()
        self._executor = Executor(self.limits)
        self._fingerprint: str | None = None
        self._paths = lru_cache(maxsize=None)(self._find_paths)
        self._cell = lru_cache(maxsize=REMEMBERED_DESCRIPTORS)(self._compute_cell)
        self._strategy = lru_cache(maxsize=REMEMBERED_DESCRIPTORS)(self._compute_strategy)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.databases, self.limits, self.prompts, self.used, self.rule.name, self.copies, self.originals)
        return type(self), settings

    def fingerprint(self) -> str:
        """Hash of the rules, the limits, the form of the prompt, and every used database's name, size and bytes."""
        if self._fingerprint is None:
            rules = [self.name, RULES_VERSION, APPROACHES, asdict(self.limits), self.rule.name, self.prompts.identity()]
            files = [_described(path, self.databases) for path in self._files()]
            copies = [_described(path, self.copies) for path in self._copies(self.copies)] if self.copies else []
            content = [rules, files, copies]
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
            UsageError: If a database is missing or broken, or a gold query cannot run.
        """
        return right_by_any(self._verify(problem, gold, solution) for gold in golds_of(problem))

    def check(self, problem: Problem) -> None:
        """Run every gold query once.

        Raises:
            UsageError: If a database is missing or broken, or a gold query is missing or cannot run.
        """
        paths = self._paths(_required(problem, "database"))
        for gold in golds_of(problem):
            require_gold(self._executor, self.rule, paths, gold)

    def interpretation_count(self, problem: Problem) -> int:
        """How many interpretations a problem has, if it has several; else 0."""
        count = len(golds_of(problem))
        return count if count > 1 else 0

    def interpretations(self, problem: Problem, solution: str) -> tuple[bool, ...]:
        """By which gold a solution is right; of an AmbiQT problem, what AmbiQT's own rule says.

        Raises:
            UsageError: As in `verify`, or if AmbiQT's rule has no `originals`.
        """
        if not self.interpretation_count(problem):
            return ()
        if is_of_ambiqt(problem):
            return hits_by_ambiqt(self._executor, self.originals, problem, solution)
        return tuple(self._verify(problem, gold, solution).correct for gold in golds_of(problem))

    def _verify(self, problem: Problem, gold: str, solution: str) -> Verdict:
        paths, ordered = self._paths(_required(problem, "database")), problem.data.get("ordered")
        return verify_sql(self._executor, self.rule, paths, gold, solution, None if ordered is None else bool(ordered))

    def cell(self, problem: Problem, solution: str) -> Cell:
        """Approach and structure of a solution."""
        return self._cell(_required(problem, "database"), solution)

    def strategy(self, problem: Problem, solution: str) -> str:
        """The evaluation's key of a solution."""
        return self._strategy(_required(problem, "database"), solution)

    def tree_features(self, solution: str) -> Mapping[str, int] | None:
        """The edges of a solution's syntax tree; see `elite_lightning.types.TreeDomain`."""
        return tree_features(solution)

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
        folders = [own.parent] if self.copies is None else [own.parent, self.copies / database]
        return own, *(path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}")) if path != own)

    def _files(self) -> list[Path]:
        """All beside the copies that verdicts and prompts depend on."""
        if self.used is None:
            databases = sorted(self.databases.rglob(f"*{SUFFIX}"))
        else:
            databases = sorted(path for name in self.used for path in (self.databases / name).glob(f"*{SUFFIX}"))
        beside = {file for path in databases for file in self.prompts.files(path)}
        return [*databases, *sorted(beside)]

    def _copies(self, copies: Path) -> list[Path]:
        folders = [copies] if self.used is None else [copies / name for name in self.used]
        return sorted(path for folder in folders for path in folder.rglob(f"*{SUFFIX}"))


def _required(problem: Problem, field: str) -> Any:
    if field not in problem.data:
        raise UsageError(f"problem {problem.id!r} has no data[{field!r}]: the SQL domain needs database and gold")
    return problem.data[field]


def _described(path: Path, root: Path) -> tuple[str, int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return path.relative_to(root).as_posix(), path.stat().st_size, digest
