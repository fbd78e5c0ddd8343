"""Open a SQLite file that must not change, tell its content apart from any other, and read its schema."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from elite_lightning.errors import UsageError

_ROLLBACK_MAGIC = bytes.fromhex("d9d505f920a163d7")  # first bytes of a journal that SQLite would roll back
_DETAIL_CHARACTERS = 200
_HASHED_FILES = 4096  # whose hash is remembered as long as the file is not touched


class DatabaseError(UsageError):
    """A database file that cannot be used; says nothing about any solution."""


Stamp = tuple[int, int, int, int]
"""What a file system says about a file: device, inode, size in bytes, nanosecond of the last change. Another stamp
means that the content has to be read again."""


class ColumnNames(NamedTuple):
    """The names in a database, all in lower case, tables and views in the order of the schema.

    Args:
        columns: Column names by table or view.
        references: Pairs of `(table, column)`: a foreign key's own column and the one that it points to.
    """

    columns: dict[str, tuple[str, ...]]
    references: tuple[tuple[tuple[str, str], tuple[str, str]], ...]


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection to a file that must exist, hold a database and be at rest.

    Text that is not UTF-8 is decoded with lone surrogates in place of the bad bytes (Python's `surrogateescape`): no
    query fails because of it, and such a text is equal only to itself.

    Raises:
        DatabaseError: If the file is missing or empty, or a writer left something to be merged into it.
    """
    _require_settled(path)
    connection = sqlite3.connect(
        # Immutable: no locks and no files beside it. True, because nothing waits in a journal (checked above) and
        # a database that is used for training is not written to meanwhile.
        f"{path.resolve().as_uri()}?mode=ro&immutable=1",
        uri=True,
        isolation_level=None,
        cached_statements=0,  # a prepared statement that is used again would carry its step count along
    )
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    return connection


def stamp_of(path: Path) -> Stamp:
    """The file's stamp; of a missing file one that equals no other file's."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, -1, 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=_HASHED_FILES)
def content_of(path: Path, stamp: Stamp) -> bytes:  # noqa: ARG001, the stamp is there for the cache
    """SHA-256 of a file's bytes, read once for each stamp."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def read_names(path: Path) -> ColumnNames:
    """Read the names of a database through a connection of its own.

    Raises:
        DatabaseError: As `connect`, and if the file is not a database.
    """
    connection = connect(path)
    try:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
        ).fetchall()
        columns, references = {}, []
        for (table,) in tables:
            try:
                columns[table.lower()] = _columns(connection, table)
                references += _references(connection, table)
            except sqlite3.OperationalError:
                continue  # a view of a table that is gone, or a table of an unknown module: no query can use it
        return ColumnNames(columns, tuple(references))
    except sqlite3.Error as error:
        raise broken(path, error) from error
    finally:
        connection.close()


def broken(path: Path, error: Exception) -> DatabaseError:
    """The error to raise for a file that SQLite cannot read."""
    return DatabaseError(f"{path} cannot be read as a SQLite database ({one_line(error)}): copy or create it anew")


def one_line(error: Exception) -> str:
    """An error's message as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_DETAIL_CHARACTERS].encode("utf-8", "replace").decode()


def _require_settled(path: Path) -> None:
    """Raise unless the file is there and no writer has left anything to be merged into it."""
    if not path.is_file():
        raise DatabaseError(
            f"no database file at {path}: check the folder of databases and the problem's database name"
        )
    if path.stat().st_size == 0:
        raise DatabaseError(f"{path} is empty, not a SQLite database: copy or create it anew")
    log, journal = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    hot = journal.is_file() and journal.read_bytes()[:8] == _ROLLBACK_MAGIC
    if hot or (log.is_file() and log.stat().st_size > 0):
        raise DatabaseError(
            f"{path} has unmerged changes in {(journal if hot else log).name}: close whatever writes to it, "
            f"then open it once with `sqlite3 {path.name} 'PRAGMA journal_mode=DELETE'`"
        )


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    # Unlike table_info, this has generated columns too; 1 marks a virtual table's hidden arguments.
    found = connection.execute("SELECT lower(name) FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid", (table,))
    return tuple(column for (column,) in found.fetchall())


def _references(connection: sqlite3.Connection, table: str) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """The foreign keys of a table; a key that names no column points to the primary key's column in its place."""
    found = connection.execute(
        'SELECT k."from", k."table", coalesce(k."to", (SELECT i.name FROM pragma_table_info(k."table") i '
        "WHERE i.pk = k.seq + 1)) FROM pragma_foreign_key_list(?) k ORDER BY k.id, k.seq",
        (table,),
    ).fetchall()
    return [
        ((table.lower(), own.lower()), (other.lower(), to.lower())) for own, other, to in found if own and other and to
    ]
