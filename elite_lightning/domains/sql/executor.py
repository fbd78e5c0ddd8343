"""Run SQL that nobody trusts on SQLite files that must not change, within a budget that does not depend on the load.

A query can read and compute, nothing else: the file is opened read-only, and SQLite asks an authorizer that refuses
all but reading. What remains is bounded: steps of SQLite's virtual machine first, because they are the same on every
run, then the clock; rows, bytes, the size of one value and SQLite's heap. Only a single C function that does not return
escapes these bounds, and a process that is killed from outside is the remedy for that (`elite_lightning.verify`).
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from elite_lightning.domains.sql.compare import Row, Rows
from elite_lightning.domains.sql.extract import QUERY_KEYWORDS, first_keyword, is_blank
from elite_lightning.errors import UsageError
from elite_lightning.types import Reason

OPEN_CONNECTIONS = 64  # per thread; a connection holds two file descriptors at most and a small page cache
STEPS_PER_CALL = 1000  # how often SQLite asks whether to go on; asking costs about 0.1 microseconds

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {
    "load_extension": "it runs code from a file",
    "fts3_tokenizer": "it takes addresses of C functions",
    "sqlite_log": "it writes to the process's log",
    "random": "its value changes from run to run",
    "randomblob": "its value changes from run to run",
}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,  # matching can take exponential time in the number of %
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_REASONS = {
    sqlite3.SQLITE_INTERRUPT: Reason.TIMEOUT,
    sqlite3.SQLITE_TOOBIG: Reason.TOO_LARGE,
    sqlite3.SQLITE_FULL: Reason.TOO_LARGE,
    sqlite3.SQLITE_AUTH: Reason.NOT_ALLOWED,
}
_BROKEN_FILE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_ROLLBACK_MAGIC = bytes.fromhex("d9d505f920a163d7")  # first bytes of a journal that SQLite would roll back
_DETAIL_CHARACTERS = 200


class DatabaseError(UsageError):
    """A database file that cannot be used; says nothing about any solution."""


class Failure(NamedTuple):
    """Why a query gave no rows, as a reason and one line for people."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may use on one database.

    Args:
        steps: Instructions of SQLite's virtual machine, in thousands taken up; about 100 million a second.
        seconds: Time on the clock. Meant never to be reached before `steps`, because a clock depends on the load.
        rows: Rows of the result.
        result_bytes: Size of the result: a character of text or a byte of a blob is 1, any other cell is 8.
        value_bytes: Size of one text, blob or stored row.
        heap_bytes: Memory that SQLite takes for sorting and temporary tables. It counts for the whole process,
            and SQLite never raises it again within one.
    """

    steps: int = 50_000_000
    seconds: float = 10.0
    rows: int = 100_000
    result_bytes: int = 16_000_000
    value_bytes: int = 1_000_000
    heap_bytes: int = 512_000_000


class Executor:
    """Runs queries; keeps connections open per thread, and nothing else from one query to the next."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._local = threading.local()

    def run(self, path: Path, sql: str) -> Rows | Failure:
        """The rows of one query, or why there are none.

        Raises:
            DatabaseError: If the file is missing, broken, or being written to.
        """
        refusal = _refuse_text(sql)
        if refusal is not None:
            return refusal
        session = self._session(path)
        try:
            return session.run(sql)
        except MemoryError:
            self._sessions().pop(path).close()
            return Failure(Reason.TOO_LARGE, f"needed more than {self.limits.heap_bytes} bytes of SQLite's memory")

    def columns(self, path: Path) -> dict[str, tuple[str, ...]]:
        """Column names by table or view, in lower case, in the order of the schema."""
        return self._session(path).columns

    def _sessions(self) -> OrderedDict[Path, _Session]:
        if not hasattr(self._local, "sessions"):
            self._local.sessions = OrderedDict()
        sessions: OrderedDict[Path, _Session] = self._local.sessions
        return sessions

    def _session(self, path: Path) -> _Session:
        sessions = self._sessions()
        if path not in sessions:
            sessions[path] = _Session(path, self.limits)
        sessions.move_to_end(path)
        if len(sessions) > OPEN_CONNECTIONS:
            sessions.popitem(last=False)[1].close()
        return sessions[path]


def _refuse_text(sql: str) -> Failure | None:
    """What can be refused by looking: SQLite would run an empty text, and would never authorize an EXPLAIN."""
    if is_blank(sql):
        return Failure(Reason.NO_SOLUTION, "there is no statement")
    if "\x00" in sql:
        return Failure(Reason.ERROR, "the query contains a NUL character")
    if first_keyword(sql) not in QUERY_KEYWORDS:
        return Failure(Reason.NOT_ALLOWED, f"a query begins with {', '.join(QUERY_KEYWORDS)}")
    return None


class _Session:
    """One guarded connection to one file."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._steps = 0
        self._deadline = 0.0
        self._refused = ""
        self._connection = _connect(path)
        try:
            _prepare(self._connection, limits.heap_bytes)
            self.columns = _columns(self._connection)
        except sqlite3.Error as error:
            self._connection.close()
            raise _broken(path, error) from error
        self._guard()

    def close(self) -> None:
        self._connection.close()

    def run(self, sql: str) -> Rows | Failure:
        self._steps = 0
        self._deadline = time.monotonic() + self._limits.seconds
        self._refused = ""
        try:
            cursor = self._connection.execute(sql)
            try:
                return self._fetch(cursor)
            finally:
                cursor.close()
        except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
            return self._failure(error)

    def _guard(self) -> None:
        limits = {**_LIMITS, sqlite3.SQLITE_LIMIT_LENGTH: self._limits.value_bytes}
        for category, value in limits.items():
            self._connection.setlimit(category, value)
        self._connection.set_authorizer(self._authorize)
        self._connection.set_progress_handler(self._out_of_budget, STEPS_PER_CALL)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            why = _REFUSED_FUNCTIONS.get((second or "").lower())
            if why is None:
                return sqlite3.SQLITE_OK
            self._refused = f"the function {second} is refused: {why}"
        else:
            self._refused = self._refused or f"a query may only read (refused: action {action} on {first or second})"
        return sqlite3.SQLITE_DENY

    def _out_of_budget(self) -> bool:
        self._steps += STEPS_PER_CALL
        return self._steps > self._limits.steps or time.monotonic() > self._deadline

    def _fetch(self, cursor: sqlite3.Cursor) -> Rows | Failure:
        if cursor.description is None:
            return Failure(Reason.NOT_ALLOWED, "the statement returns no table")
        rows: list[Row] = []
        size = 0
        for row in cursor:
            rows.append(row)
            size += sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)
            if len(rows) > self._limits.rows:
                return Failure(Reason.TOO_LARGE, f"more than {self._limits.rows} rows")
            if size > self._limits.result_bytes:
                return Failure(Reason.TOO_LARGE, f"more than {self._limits.result_bytes} bytes of result")
        return Rows(len(cursor.description), rows)

    def _failure(self, error: Exception) -> Failure:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _BROKEN_FILE:
            raise _broken(self._path, error) from error
        detail = self._refused or _one_line(error)
        two_statements = isinstance(error, sqlite3.ProgrammingError | sqlite3.Warning) and "one statement" in detail
        if self._refused or two_statements:
            return Failure(Reason.NOT_ALLOWED, detail)
        if isinstance(error, sqlite3.DataError):
            return Failure(Reason.TOO_LARGE, detail)
        reason = _REASONS.get(code, Reason.ERROR)
        if reason is Reason.TIMEOUT:
            used_up = self._steps > self._limits.steps
            detail = f"more than {self._limits.steps} steps" if used_up else f"more than {self._limits.seconds} seconds"
        return Failure(reason, detail)


def _connect(path: Path) -> sqlite3.Connection:
    """Open a file that must exist, hold a database and be at rest."""
    _require_settled(path)
    return sqlite3.connect(
        # Immutable: no locks and no files beside it. True, because nothing waits in a journal (checked above) and
        # a database that is used for training is not written to meanwhile.
        f"{path.resolve().as_uri()}?mode=ro&immutable=1",
        uri=True,
        isolation_level=None,
        cached_statements=0,  # a prepared statement that is used again would carry its step count along
    )


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


def _prepare(connection: sqlite3.Connection, heap_bytes: int) -> None:
    """Set what has to be set before the authorizer refuses to."""
    # A lone surrogate stands for a byte that is not UTF-8: such a text is still equal only to itself.
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    connection.execute(f"PRAGMA hard_heap_limit={heap_bytes}")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA query_only=ON")
    # The first use of a table-valued function registers it, which the authorizer would refuse; these are harmless.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")


def _columns(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Column names by table or view, in lower case."""
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
    ).fetchall()
    columns = {}
    for (name,) in names:
        try:
            found = connection.execute("SELECT lower(name) FROM pragma_table_info(?) ORDER BY cid", (name,)).fetchall()
        except sqlite3.OperationalError:
            continue  # a view of a table that is gone, or a virtual table of an unknown module: no query can use it
        columns[name.lower()] = tuple(column for (column,) in found)
    return columns


def _broken(path: Path, error: Exception) -> DatabaseError:
    return DatabaseError(f"{path} cannot be read as a SQLite database ({_one_line(error)}): copy or create it anew")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_DETAIL_CHARACTERS].encode("utf-8", "replace").decode()
