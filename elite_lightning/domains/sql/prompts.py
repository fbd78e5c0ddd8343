"""The form of a prompt as a choice, and the compact form, which the bundled model was trained on.

Every name in the compact prompt follows a space, as it does in the SQL of the demonstrations, so that a byte-level
tokenizer writes a name with the same tokens in both and a small model can copy it. The form for other models is in
`ddl_prompt.py`.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from elite_lightning.types import Problem


class SqlPrompt(ABC):
    """How the SQL domain asks. It travels to other processes as its settings."""

    @abstractmethod
    def write(self, database: Path, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """The prompt.

        Args:
            database: The problem's SQLite file.
            problem: What is asked.
            target: The approach to take, or None for the plain prompt.
            parent: A solution of another kind to start from, or None.
        """

    @abstractmethod
    def identity(self) -> Any:
        """JSON-serialisable value that changes with everything that decides prompts; enters the fingerprint."""

    def files(self, database: Path) -> Sequence[Path]:  # noqa: ARG002
        """Files beside the database that prompts are made of; the fingerprint covers them."""
        return ()

    def count_tokens_with(self, tokens_of: Callable[[str], int]) -> None:  # noqa: B027 - most forms have no limit
        """Take over how the policy's tokenizer counts; for forms with a limit in tokens."""

    def cut_report(self) -> str | None:
        """One line on how many prompts were cut to a limit, and what was left out; None if none was."""
        return None


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`column` of a table refers to the primary key of the table `references`."""

    column: str
    references: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's name, its columns in order, and its foreign keys."""

    name: str
    columns: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of one database, in the order of their creation."""

    tables: tuple[TableSchema, ...]


def schema_of(path: Path) -> Schema:
    """Read the schema of a SQLite file.

    Args:
        path: The database file; opened read-only.

    Raises:
        FileNotFoundError: If there is no such file.
        sqlite3.DatabaseError: If the file is not a SQLite database.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no database file at {path}")
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        names = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
            )
        ]
        return Schema(tuple(_table_schema(connection, name) for name in names))


def _table_schema(connection: sqlite3.Connection, name: str) -> TableSchema:
    columns = tuple(
        row[0] for row in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1", (name,))
    )
    keys = connection.execute('SELECT "from", "table" FROM pragma_foreign_key_list(?) ORDER BY id DESC', (name,))
    return TableSchema(name, columns, tuple(ForeignKey(column, table) for column, table in keys))


def schema_text(schema: Schema) -> str:
    """One line a table: its columns in order, a foreign key with an arrow to the table that it refers to."""
    return "\n".join(_table_text(table) for table in schema.tables)


def _table_text(table: TableSchema) -> str:
    targets = {key.column: key.references for key in table.foreign_keys}
    columns = [f"{column} -> {targets[column]}" if column in targets else column for column in table.columns]
    return f"table {table.name} : {' '.join(columns)}"


def compact_prompt(schema: Schema, question: str, target: str | None = None, parent: str | None = None) -> str:
    """The bundled model's prompt.

    Args:
        schema: The database's schema.
        question: What is asked.
        target: The approach to take, or None for the plain prompt.
        parent: A solution of another kind to start from, or None.

    Returns:
        Text that ends where the SQL begins.
    """
    lines = [schema_text(schema), f"question : {question}"]
    if target is not None:
        lines.append(f"approach : {target}")
    if parent is not None:
        lines.append(f"parent : {parent}")
    return "\n".join([*lines, "sql :"])


class CompactPrompt(SqlPrompt):
    """One line a table, without types or values: the form that the bundled model was trained on, and for it alone."""

    def __init__(self) -> None:
        self._schema = lru_cache(maxsize=None)(schema_of)

    def __reduce__(self) -> tuple[type[CompactPrompt], tuple[()]]:
        return type(self), ()

    def write(self, database: Path, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """Tables, question, approach and parent, up to where the SQL begins."""
        return compact_prompt(self._schema(database), problem.question, target, parent)

    def identity(self) -> str:
        """The prompt of an example."""
        return compact_prompt(Schema(()), "question", "window", "SELECT 1")
