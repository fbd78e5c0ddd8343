"""Seeded rows for PocketSQL's databases: one SQLite file a copy, in the layout of Spider's test suite.

Rows hold NULLs, ties and repeated links, so that a query that ignores them gives other rows on some copy. Which of the
usual queries they trip cannot be told from the schema: `NOT IN` fails where a foreign key is NULL, `LIMIT 1` where the
largest number is tied. On such databases a policy is right only if it still knows another way.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from datamodules.pocketsql.families import LARGEST_NUMBER
from datamodules.pocketsql.schema_text import Column, PocketSchema, Table

COPIES = 3  # the problem's own database and two differently seeded ones
NULL_SHARE = 0.05
TIE_SHARE = 0.3
NULL_KEY_SHARE = 0.08  # of the rows under a nullable foreign key
LINKED_SHARE = 0.75  # of an entity's rows, so that some have no links

_FIRST_TEXT = """
ada ben cleo dan eva finn gus hana ivan jo kim leo mia ned ola pam
"""
_FIRST = _FIRST_TEXT.split()
_LAST_TEXT = """
abel bond cole dunn east ford gray hall
"""
_LAST = _LAST_TEXT.split()


def nullable_keys(schemas: Iterable[PocketSchema]) -> frozenset[tuple[str, str]]:
    """Every second foreign key of a split as (database, column): these are NULL in some rows of every copy.

    Half of them, split by split, so that no split has another share of databases on which `NOT IN` fails.
    """
    keys = [
        (schema.name, column.name) for schema in schemas for table in schema.tables for column in table.all("reference")
    ]
    return frozenset(keys[1::2])


def write_databases(
    schema: PocketSchema, folder: Path, seed: int, nullable: frozenset[tuple[str, str]] = frozenset()
) -> None:
    """Write `<folder>/<name>/<name>.sqlite` and its copies `<name>_v1.sqlite`, `<name>_v2.sqlite`.

    Args:
        schema: What to fill.
        folder: Holds one folder a database.
        seed: Of all rows; the same seed gives the same rows.
        nullable: Foreign keys that are NULL in some rows.
    """
    target = folder / schema.name
    target.mkdir(parents=True, exist_ok=True)
    for copy in range(COPIES):
        suffix = f"_v{copy}" if copy else ""
        path = target / f"{schema.name}{suffix}.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection, connection:
            fill(connection, schema, random.Random(f"pocketsql:{seed}:{schema.name}:{copy}"), nullable)


def fill(
    connection: sqlite3.Connection, schema: PocketSchema, rng: random.Random, nullable: frozenset[tuple[str, str]]
) -> None:
    """Create a schema's tables and their rows."""
    # The folder counts only when it is complete, so that nothing has to survive a crash; waiting for the disk after
    # every statement would take most of the time.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA journal_mode=OFF")
    sizes: dict[str, int] = {}
    for table in sorted(schema.tables, key=lambda table: len(table.all("reference"))):
        connection.execute(_create(table, schema))
        rows = (
            _link_rows(table, {key for name, key in nullable if name == schema.name}, sizes, rng)
            if table.all("reference")
            else _entity_rows(table, rng)
        )
        sizes[table.name] = len(rows)
        marks = ", ".join("?" * len(table.columns))
        connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows)


def _create(table: Table, schema: PocketSchema) -> str:
    keys = {other.name: other.columns[0].name for other in schema.tables}
    types = {"key": "INTEGER PRIMARY KEY", "name": "TEXT", "category": "TEXT", "number": "INTEGER"}
    parts = [f"{column.name} {types.get(column.kind, 'INTEGER')}" for column in table.columns]
    parts += [
        f"FOREIGN KEY ({column.name}) REFERENCES {column.references} ({keys[column.references]})"
        for column in table.all("reference")
    ]
    return f"CREATE TABLE {table.name} ({', '.join(parts)})"


def _entity_rows(table: Table, rng: random.Random) -> list[tuple[object, ...]]:
    return _columnwise(table, rng.randint(14, 20), {}, rng)


def _link_rows(table: Table, nullable: set[str], sizes: dict[str, int], rng: random.Random) -> list[tuple[object, ...]]:
    count = rng.randint(34, 46)
    linked = {}
    for column in table.all("reference"):
        rows = sizes[column.references]
        used = rng.sample(range(1, rows + 1), int(rows * LINKED_SHARE))
        share = NULL_KEY_SHARE if column.name in nullable else 0.0
        linked[column.name] = _with_nulls([rng.choice(used) for _ in range(count)], rng, share)
    return _columnwise(table, count, linked, rng)


def _columnwise(
    table: Table, count: int, linked: dict[str, list[object]], rng: random.Random
) -> list[tuple[object, ...]]:
    names = _names(count, rng)
    return list(zip(*(_cells(column, count, names, linked, rng) for column in table.columns), strict=True))


def _cells(
    column: Column, count: int, names: list[str], linked: dict[str, list[object]], rng: random.Random
) -> Iterable[object]:
    if column.kind == "key":
        return range(1, count + 1)
    if column.kind == "name":
        return names
    if column.kind == "reference":
        return linked[column.name]
    if column.kind == "category":
        return _with_nulls([rng.choice(column.values) for _ in range(count)], rng)
    return _with_nulls(_numbers(count, rng), rng)


def _names(count: int, rng: random.Random) -> list[str]:
    full = [f"{first} {last}" for first in _FIRST for last in _LAST]
    return rng.sample(full, count)


def _numbers(count: int, rng: random.Random) -> list[int]:
    values = [rng.randint(1, LARGEST_NUMBER) for _ in range(count)]
    if count <= LARGEST_NUMBER:
        values = rng.sample(range(1, LARGEST_NUMBER + 1), count)
        for index in range(1, count):
            if rng.random() < TIE_SHARE:
                values[index] = values[index - 1]
    return values


def _with_nulls(
    values: list[object] | list[int] | list[str], rng: random.Random, share: float = NULL_SHARE
) -> list[object]:
    return [None if rng.random() < share else value for value in values]
