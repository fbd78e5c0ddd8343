"""Run SQL that nobody trusts on SQLite files that must not change, within a budget that does not depend on the load.

A query can read and compute, nothing else: the file is opened read-only, and SQLite asks an authorizer that refuses
all but reading. What remains is bounded: steps of SQLite's virtual machine first, because they are the same on every
run, then the clock; rows, bytes, the size of one value, SQLite's heap and the length of the query. Only a single C
function that does not return escapes these bounds, and a process that is killed from outside is the remedy for that
(`elite_lightning.verify`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.database_file import (
    ColumnNames,
    DatabaseError,
    Stamp,
    content_of,
    read_names,
    stamp_of,
)
from elite_lightning.domains.sql.extract import QUERY_KEYWORDS, first_keyword, is_blank
from elite_lightning.domains.sql.result_cache import ResultCache
from elite_lightning.domains.sql.session import Failure, Limits, Session
from elite_lightning.types import Reason

__all__ = ["DatabaseError", "Executor", "Failure", "Limits"]

OPEN_CONNECTIONS = 64  # per thread; a connection holds two file descriptors at most and a small page cache
REMEMBERED_BYTES = 64_000_000  # of results, per thread
REMEMBERED_NAMES = 4096  # databases whose tables and columns are remembered

_OTHER_STATEMENTS = {
    *("ALTER", "ANALYZE", "ATTACH", "BEGIN", "COMMIT", "CREATE", "DELETE", "DETACH", "DROP", "END", "EXPLAIN"),
    *("INSERT", "PRAGMA", "REINDEX", "RELEASE", "REPLACE", "ROLLBACK", "SAVEPOINT", "UPDATE", "VACUUM"),
}


class _Open(NamedTuple):
    """A connection, and the file that it was opened on."""

    stamp: Stamp
    content: bytes
    session: Session


class _OfThread(threading.local):
    """What one thread holds: SQLite's connections must not be shared."""

    def __init__(self) -> None:
        self.sessions: OrderedDict[Path, _Open] = OrderedDict()
        self.results = ResultCache(REMEMBERED_BYTES)
        self.names: dict[tuple[Path, Stamp], ColumnNames] = {}


class Executor:
    """Runs queries; keeps connections open per thread, and no trace of a query on them.

    Results are remembered by the content of the database and the text of the query, whatever the file is called, up
    to 64 MB a thread; not those of queries that see the clock, nor of those that time or memory stopped. A file that
    is replaced or touched is opened anew.

    Args:
        limits: What one query may use on one database.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._local = _OfThread()

    def run(self, path: Path, sql: str) -> Rows | Failure:
        """The rows of one query, or why there are none. Whoever asks again may get the same object: change nothing.

        Raises:
            DatabaseError: If the file is missing, broken, or being written to.
        """
        refusal = _refuse_text(sql, self.limits.sql_bytes)
        if refusal is not None:
            return refusal
        _, content, session = self._open(path)
        known = self._local.results.get(content, sql)
        if known is not None:
            return known
        result = session.run(sql)
        if isinstance(result, Failure) and result.reason is Reason.OUT_OF_MEMORY:
            return self._with_all_memory(path, sql, result)
        if session.repeatable:
            self._local.results.put(content, sql, result, session.result_bytes)
        return result

    def seconds(self, path: Path, sql: str) -> float | Failure:
        """How long a query takes on a connection of its own, from opening to closing, in seconds.

        Raises:
            DatabaseError: As `run`.
        """
        refusal = _refuse_text(sql, self.limits.sql_bytes)
        if refusal is not None:
            return refusal
        begin = time.perf_counter()
        session = Session(path, self.limits)
        result = session.run(sql)
        session.close()
        return result if isinstance(result, Failure) else time.perf_counter() - begin

    def names(self, path: Path) -> ColumnNames:
        """Tables, columns and foreign keys of a database.

        Raises:
            DatabaseError: As `run`.
        """
        names, key = self._local.names, (path, stamp_of(path))
        if key not in names:
            if len(names) >= REMEMBERED_NAMES:
                names.clear()
            names[key] = read_names(path)
        return names[key]

    def columns(self, path: Path) -> dict[str, tuple[str, ...]]:
        """Column names by table or view, in lower case, in the order of the schema."""
        return self.names(path).columns

    def _open(self, path: Path) -> _Open:
        sessions, stamp = self._local.sessions, stamp_of(path)
        known = sessions.get(path)
        if known is not None and known.stamp == stamp:
            sessions.move_to_end(path)
            return known
        if known is not None:
            sessions.pop(path).session.close()
        session = Session(path, self.limits)
        sessions[path] = _Open(stamp, content_of(path, stamp), session)
        if len(sessions) > OPEN_CONNECTIONS:
            sessions.popitem(last=False)[1].session.close()
        return sessions[path]

    def _with_all_memory(self, path: Path, sql: str, failure: Failure) -> Failure | Rows:
        """Try again without what other connections hold, so that the verdict does not depend on what came before."""
        sessions = self._local.sessions
        others = len(sessions) - 1
        for known in sessions.values():
            known.session.close()
        sessions.clear()
        if not others:
            return failure
        result = self._open(path).session.run(sql)
        if isinstance(result, Failure) and result.reason is Reason.OUT_OF_MEMORY:
            sessions.pop(path).session.close()
        return result


def _refuse_text(sql: str, sql_bytes: int) -> Failure | None:
    """What can be refused by looking: SQLite would run an empty text, and would never authorize an EXPLAIN."""
    if 4 * len(sql) > sql_bytes and len(sql.encode("utf-8", "surrogatepass")) > sql_bytes:
        return Failure(Reason.TOO_LONG, f"the query is longer than {sql_bytes} bytes")
    if "\x00" in sql:
        return Failure(Reason.ERROR, "the query contains a NUL character")
    if sql[:7].upper() == "SELECT ":
        return None  # as nearly all do, and without a regular expression
    if is_blank(sql):
        return Failure(Reason.NO_SOLUTION, "there is no statement")
    keyword = first_keyword(sql)
    if keyword in QUERY_KEYWORDS:
        return None
    reason = Reason.NOT_ALLOWED if keyword in _OTHER_STATEMENTS else Reason.ERROR
    return Failure(reason, f"a query begins with {', '.join(QUERY_KEYWORDS)}")
