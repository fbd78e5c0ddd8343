"""AmbiQT's changed databases: what the benchmark says about a schema, done to a copy of the SQLite file.

The changes are those of the benchmark's description (arXiv 2310.13659, section 3): a column or a table under two other
names, a column that also stands in a table of its own, aggregates that also stand in a table.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.drafts import make_once
from elite_lightning.errors import UsageError

AMBIGUITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "col-synonyms": ("extra_map",),
    "tbl-synonyms": ("extra_table_map",),
    "tbl-split": ("split_map", "primary_key"),
    "tbl-agg": ("new_table_name", "all_cols", "all_raw_cols", "query1"),
}
AGGREGATES = ("sum", "avg", "min", "max")

_FROM = re.compile(r"\bfrom\s+(.*?)(?:\s+(?:where|group|having|order|limit)\b|\s*;?\s*$)", re.IGNORECASE | re.DOTALL)
_TABLE_NAME = re.compile(r"""\s*CREATE\s+TABLE\s+("[^"]*"|`[^`]*`|\[[^\]]*\]|'[^']*'|[^\s(]+)""", re.IGNORECASE)


class AmbiguousDatabase(NamedTuple):
    """How a database is changed.

    Args:
        kind: One of AmbiQT's four kinds.
        ambiguity: The keys of the benchmark's entry that describe the change (`AMBIGUITY_KEYS`).
    """

    kind: str
    ambiguity: Mapping[str, Any]


def cache_name(originals: Path) -> str:
    """A name that changes with the original databases and with this file, so that old copies are never met again.

    Args:
        originals: Folder of Spider's databases.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(originals.glob("*/*.sqlite")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def write_database(original: Path, folder: Path, change: AmbiguousDatabase) -> None:
    """Make `<folder>/<folder's name>.sqlite` unless it is there; several processes may do so at once.

    Args:
        original: Spider's database; it is only read.
        folder: Where the changed copy goes.
        change: What is changed.

    Raises:
        UsageError: If the change does not fit the database.
    """
    make_once(folder, lambda draft: _change(original, draft / f"{folder.name}.sqlite", change))


def _change(original: Path, copy: Path, change: AmbiguousDatabase) -> None:
    shutil.copyfile(original, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("BEGIN")
        try:
            _CHANGES[change.kind](connection, change.ambiguity)
        except (sqlite3.Error, KeyError, ValueError) as error:
            raise UsageError(
                f"AmbiQT's change {dict(change.ambiguity)} does not fit {original} ({error}): "
                "is it the Spider database that the benchmark was made of?"
            ) from error
        connection.execute("COMMIT")


def _double_columns(connection: sqlite3.Connection, ambiguity: Mapping[str, Any]) -> None:
    for table, columns in ambiguity["extra_map"].items():
        for column, (first, second) in columns.items():
            kind = _type_of(connection, table, column)
            connection.execute(f"ALTER TABLE {_q(table)} RENAME COLUMN {_q(column)} TO {_q(first)}")
            connection.execute(f"ALTER TABLE {_q(table)} ADD COLUMN {_q(second)} {kind}")
            connection.execute(f"UPDATE {_q(table)} SET {_q(second)} = {_q(first)}")


def _double_tables(connection: sqlite3.Connection, ambiguity: Mapping[str, Any]) -> None:
    for table, (first, second) in ambiguity["extra_table_map"].items():
        connection.execute(f"ALTER TABLE {_q(table)} RENAME TO {_q(first)}")
        (statement,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)", (first,)
        ).fetchone()
        name = _TABLE_NAME.match(statement)
        connection.execute(f"CREATE TABLE {_q(second)}{statement[name.end() if name else 0 :]}")
        connection.execute(f"INSERT INTO {_q(second)} SELECT * FROM {_q(first)}")


def _split_off(connection: sqlite3.Connection, ambiguity: Mapping[str, Any]) -> None:
    for table, column in ambiguity["split_map"].items():
        key, name = ambiguity["primary_key"][table], f"{table}_{column}"
        columns = (
            f"{_q(key)} {_type_of(connection, table, key)} REFERENCES {_q(table)} ({_q(key)}), "
            f"{_q(column)} {_type_of(connection, table, column)}"
        )
        connection.execute(f"CREATE TABLE {_q(name)} ({columns})")
        connection.execute(f"INSERT INTO {_q(name)} SELECT {_q(key)}, {_q(column)} FROM {_q(table)}")


def _aggregate(connection: sqlite3.Connection, ambiguity: Mapping[str, Any]) -> None:
    """Aggregates over the tables that the first query reads, as it joins them, grouped by the other columns."""
    query = ambiguity["query1"]
    aggregates = {f"{a}_{c}": f"{a}({_as_read(c, query)})" for c in ambiguity["all_raw_cols"] for a in AGGREGATES}
    # The benchmark calls a count of rows `number`.
    terms = {column: "COUNT(*)" if column == "number" else aggregates.get(column) for column in ambiguity["all_cols"]}
    groups = [_as_read(column, query) for column, term in terms.items() if term is None]
    selected = [f"{term or _as_read(column, query)} AS {_q(column)}" for column, term in terms.items()]
    grouping = f" GROUP BY {', '.join(groups)}" if groups else ""
    source = _FROM.search(query)
    connection.execute(
        f"CREATE TABLE {_q(ambiguity['new_table_name'])} AS "
        f"SELECT {', '.join(selected)} FROM {source[1] if source else ''}{grouping}"
    )


def _as_read(column: str, query: str) -> str:
    """A column with the alias that the query gives its table, so that it is not ambiguous; else its bare name."""
    found = re.search(rf"\b\w+\.{re.escape(column)}\b", query)
    return found[0] if found else _q(column)


_CHANGES = {
    "col-synonyms": _double_columns,
    "tbl-synonyms": _double_tables,
    "tbl-split": _split_off,
    "tbl-agg": _aggregate,
}


def _type_of(connection: sqlite3.Connection, table: str, column: str) -> str:
    row = connection.execute(
        "SELECT type FROM pragma_table_info(?) WHERE lower(name) = lower(?)", (table, column)
    ).fetchone()
    if row is None:
        raise KeyError(f"no column {column!r} in table {table!r}")
    return str(row[0])


def _q(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
