"""Schemas as prompts: reading a SQLite file's schema and writing the compact prompt of the bundled model.

Every name in the prompt follows a space, as it does in the SQL of the demonstrations, so that a byte-level
tokenizer writes a name with the same tokens in both and a small model can copy it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path


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

    def columns_by_table(self) -> dict[str, tuple[str, ...]]:
        """Columns of each table, as name resolution needs them."""
        return {table.name: table.columns for table in self.tables}


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
    columns = tuple(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
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
