"""A database's schema as a language model likes it: CREATE TABLE statements with types, keys and sample values.

Here a schema is read and a column is written down; what is left out when it is too long is decided in
`ddl_prompt.py`. The text is for reading and never run.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

SCANNED_ROWS = 200
"""Sample values come from so many first rows of a table: a whole table may have millions."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        name: As the database has it.
        type: Declared type, possibly empty.
        primary_key: Position within the table's primary key from 1 on; 0 if it is no part of it.
        references: Table and column that a foreign key points to, or None.
        values: Sample values as SQL literals.
    """

    name: str
    type: str = ""
    primary_key: int = 0
    references: tuple[str, str] | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One table and its columns in order."""

    name: str
    columns: tuple[Column, ...] = field(default=())

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the primary key's columns, in the key's order."""
        parts = sorted((column.primary_key, column.name) for column in self.columns if column.primary_key)
        return tuple(name for _, name in parts)


def read_tables(path: Path, values: int, value_characters: int) -> tuple[Table, ...]:
    """Read tables, keys and sample values of a SQLite file.

    Args:
        path: The database file; opened read-only.
        values: Most sample values of a column: the first different ones of its table's first rows, without NULL, blobs
            and empty text.
        value_characters: Longer values are cut off there, with an ellipsis.

    Raises:
        sqlite3.DatabaseError: If the file is not a SQLite database.
    """
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY rowid"
        ).fetchall()
        return tuple(_read_table(connection, name, values, value_characters) for (name,) in names)


def _read_table(connection: sqlite3.Connection, name: str, values: int, value_characters: int) -> Table:
    # What SELECT * gives: with generated columns, which table_info leaves out, without a virtual table's hidden ones.
    information = connection.execute(
        "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid", (name,)
    ).fetchall()
    references = _references(connection, name)
    rows = _first_rows(connection, name) if values else []
    columns = []
    for place, (column, kind, key) in enumerate(information):
        literals = _samples([row[place] for row in rows], values, value_characters)
        columns.append(Column(column, kind, key, references.get(column.lower()), literals))
    return Table(name, tuple(columns))


def _references(connection: sqlite3.Connection, name: str) -> dict[str, tuple[str, str]]:
    """Where each column with a foreign key points to; a key that names no column points to the primary key."""
    keys = connection.execute(
        'SELECT "from", "table", "to", seq FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq', (name,)
    ).fetchall()
    found = {}
    for source, table, target, place in keys:
        found[source.lower()] = (table, target or _key_column(connection, table, place))
    return found


def _key_column(connection: sqlite3.Connection, table: str, place: int) -> str:
    row = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk = ?", (table, place + 1)).fetchone()
    return str(row[0]) if row else ""


def _first_rows(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(f"SELECT * FROM {_always_quoted(table)} LIMIT {SCANNED_ROWS}").fetchall()
    except sqlite3.OperationalError:
        return []  # a virtual table of a module that is not there has columns and no rows to show


def _samples(cells: Sequence[Any], most: int, characters: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for cell in cells:
        if len(found) == most:
            break
        if cell is not None and cell != "" and not isinstance(cell, bytes):
            found[_literal(cell, characters)] = None
    return tuple(found)


def _literal(cell: Any, characters: int) -> str:
    if not isinstance(cell, str):
        return str(cell)
    text = " ".join(cell.split())
    text = text if len(text) <= characters else text[:characters] + "..."
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """A name as SQL needs it: in double quotes only where it is no plain word or is one of SQLite's own."""
    return name if _stands_alone(name) else _always_quoted(name)


def _always_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@lru_cache(maxsize=65536)
def _stands_alone(name: str) -> bool:
    """Whether SQLite takes the bare name for a table and for a column; asked of SQLite, whose keywords change."""
    if not _PLAIN_NAME.fullmatch(name):
        return False
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f'CREATE TABLE {name} ({name} INT DEFAULT 7, "the other" INT)')
            connection.execute(f'INSERT INTO {name} ("the other") VALUES (1)')
            return bool(connection.execute(f"SELECT {name}, {name}.{name} FROM {name}").fetchone() == (7, 7))
        except sqlite3.Error:
            return False


def column_line(column: Column, alone_in_key: bool, show_reference: bool) -> str:
    """A column's definition, without comma and comment.

    Args:
        column: The column.
        alone_in_key: Whether it is the whole primary key of its table.
        show_reference: Whether to write the table that it points to.
    """
    parts = [quoted(column.name), column.type]
    if alone_in_key:
        parts.append("PRIMARY KEY")
    if show_reference and column.references is not None:
        table, target = column.references
        parts.append(f"REFERENCES {quoted(table)} ({quoted(target)})" if target else f"REFERENCES {quoted(table)}")
    return " ".join(part for part in parts if part)


def key_columns(tables: Sequence[Table]) -> Collection[tuple[str, str]]:
    """Table and column, in lower case, of every part of a primary key and both ends of every foreign key."""
    keys = set()
    for table in tables:
        for column in table.columns:
            if column.primary_key or column.references:
                keys.add((table.name.lower(), column.name.lower()))
            if column.references:
                keys.add((column.references[0].lower(), column.references[1].lower()))
    return keys
