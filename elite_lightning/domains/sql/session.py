"""One guarded connection to one file: what a query may do is read, and every resource that it may use is bounded."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elite_lightning.domains.sql.compare import Row, Rows
from elite_lightning.domains.sql.database_file import broken, connect, one_line
from elite_lightning.types import Reason

STEPS_PER_CALL = 1000  # how often SQLite asks whether to go on; asking costs about 0.1 microseconds

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {
    "load_extension": "it runs code from a file",
    "fts3_tokenizer": "it takes addresses of C functions",
    "sqlite_log": "it writes to the process's log",
    "random": "its value changes from run to run",
    "randomblob": "its value changes from run to run",
}
_CLOCK_FUNCTIONS = {
    *("current_date", "current_time", "current_timestamp"),
    *("date", "time", "datetime", "julianday", "unixepoch", "strftime"),
}
_SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,  # matching can take exponential time in the number of %
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 16,  # full-text search looks its own tables up with some; a query binds none
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_REASONS = {
    sqlite3.SQLITE_TOOBIG: Reason.TOO_LARGE,
    sqlite3.SQLITE_AUTH: Reason.NOT_ALLOWED,
    sqlite3.SQLITE_NOMEM: Reason.OUT_OF_MEMORY,
}
_BROKEN_FILE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}


_SIZED = (str, bytes)


class Failure(NamedTuple):
    """Why a query gave no rows, as a reason and one line for people."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may use on one database. Every limit has its own `Reason`, named in brackets.

    Args:
        steps: Instructions of SQLite's virtual machine, in thousands taken up; about 100 million a second
            (`too_many_steps`). The same on every machine, so the same query gets the same verdict.
        seconds: Time on the clock (`timeout`). Meant never to be reached before `steps`, because a clock depends on
            the load.
        rows: Rows of the result (`too_many_rows`).
        result_bytes: Size of the result: a character of text or a byte of a blob is 1, any other cell is 8
            (`too_large`).
        value_bytes: Size of one text, blob or stored row (`too_large`).
        heap_bytes: Memory that SQLite takes for sorting and temporary tables (`out_of_memory`). It counts for the
            whole process, and SQLite never raises it again within one.
        sql_bytes: Length of the query itself, in UTF-8 (`too_long`).
    """

    steps: int = 50_000_000
    seconds: float = 10.0
    rows: int = 100_000
    result_bytes: int = 16_000_000
    value_bytes: int = 1_000_000
    heap_bytes: int = 512_000_000
    sql_bytes: int = 100_000


class _Guard:
    """What SQLite asks on the way: whether a query may do something, and whether it may go on.

    Apart from the session: SQLite holds these functions for as long as the connection lives. Were they the session's,
    the two would hold each other, and the files of a thread that has ended would stay open until the garbage collector
    comes by.

    Args:
        limits: Steps and seconds of a query.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.begin()

    def begin(self) -> None:
        """A new query."""
        self.steps = 0
        self.deadline = time.monotonic() + self.limits.seconds
        self.refused = ""
        self.repeatable = True

    def authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """SQLite's authorizer: allow reading, and note what was refused."""
        if action in _ALLOWED or (action == sqlite3.SQLITE_PRAGMA and first == "data_version"):
            return sqlite3.SQLITE_OK  # FTS5 asks for the version, which of a file that does not change is always 1
        if action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            why = _REFUSED_FUNCTIONS.get(name)
            if why is None:
                self.repeatable = self.repeatable and name not in _CLOCK_FUNCTIONS
                return sqlite3.SQLITE_OK
            self.refused = f"the function {second} is refused: {why}"
        else:
            self.refused = self.refused or f"a query may only read (refused: action {action} on {first or second})"
        return sqlite3.SQLITE_DENY

    def out_of_budget(self) -> bool:
        """SQLite's progress handler, asked every `STEPS_PER_CALL` steps."""
        self.steps += STEPS_PER_CALL
        return self.steps > self.limits.steps or time.monotonic() > self.deadline


class Session:
    """One guarded connection to one file; nothing that a query does outlives it.

    Attributes:
        result_bytes: Size of the last result, by `Limits.result_bytes`' measure.
        repeatable: Whether the last query would end the same way again: it saw neither the clock nor its own time
            limit nor the memory that the rest of the process left to it.

    Raises:
        DatabaseError: If the file is missing, broken, or being written to; later too, when a query finds it broken.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._guard = _Guard(limits)
        self.result_bytes = 0
        self._connection = connect(path)
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise broken(path, error) from error
        self._set_guard()

    def __del__(self) -> None:
        # By its statement cache a connection holds itself: unless closed, it stays open until the collector comes by.
        with suppress(sqlite3.Error, AttributeError):
            self._connection.close()

    @property
    def repeatable(self) -> bool:
        """Whether the last query would end the same way again; see the class."""
        return self._guard.repeatable

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def run(self, sql: str) -> Rows | Failure:
        """The rows of one query, or why there are none. The session cannot be used again after `OUT_OF_MEMORY`."""
        self._guard.begin()
        self.result_bytes = 0
        try:
            cursor = self._connection.execute(sql)
            try:
                return self._fetch(cursor)
            finally:
                cursor.close()
        except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
            return self._failure(error)
        except MemoryError:
            self._guard.repeatable = False
            return Failure(Reason.OUT_OF_MEMORY, f"needed more than {self._limits.heap_bytes} bytes of SQLite's memory")

    def _prepare(self) -> None:
        """Set what has to be set before the authorizer refuses to."""
        self._connection.execute(f"PRAGMA hard_heap_limit={self._limits.heap_bytes}")
        self._connection.execute("PRAGMA temp_store=MEMORY")
        self._connection.execute("PRAGMA query_only=ON")
        # The first use of a table-valued function registers it, which the authorizer would refuse; these are harmless.
        self._connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self._open_virtual_tables()

    def _open_virtual_tables(self) -> None:
        """Use each virtual table of the file once.

        Its module then declares it and prepares what it writes with, which the authorizer would refuse. A table that
        cannot be used, as one of an unknown module, is left to the queries.
        """
        names = self._connection.execute(
            "SELECT replace(name, '\"', '\"\"') FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL %'"
        ).fetchall()
        for (name,) in names:
            with suppress(sqlite3.Error):
                self._connection.execute(f'SELECT 1 FROM "{name}" LIMIT 0')

    def _set_guard(self) -> None:
        limits = {
            **_SQLITE_LIMITS,
            sqlite3.SQLITE_LIMIT_LENGTH: self._limits.value_bytes,
            sqlite3.SQLITE_LIMIT_SQL_LENGTH: self._limits.sql_bytes,
        }
        for category, value in limits.items():
            self._connection.setlimit(category, value)
        self._connection.set_authorizer(self._guard.authorize)
        self._connection.set_progress_handler(self._guard.out_of_budget, STEPS_PER_CALL)

    def _fetch(self, cursor: sqlite3.Cursor) -> Rows | Failure:
        if cursor.description is None:
            return Failure(Reason.NOT_ALLOWED, "the statement returns no table")
        rows: list[Row] = []
        size = 0
        for row in cursor:
            rows.append(row)
            for cell in row:
                size += len(cell) if cell.__class__ in _SIZED else 8
            if len(rows) > self._limits.rows:
                return Failure(Reason.TOO_MANY_ROWS, f"more than {self._limits.rows} rows")
            if size > self._limits.result_bytes:
                return Failure(Reason.TOO_LARGE, f"more than {self._limits.result_bytes} bytes of result")
        if time.monotonic() > self._guard.deadline:  # within a single function SQLite does not ask whether to go on
            return self._used_up()
        self.result_bytes = size
        return Rows(len(cursor.description), rows)

    def _failure(self, error: Exception) -> Failure:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _BROKEN_FILE:
            raise broken(self._path, error) from error
        if code == sqlite3.SQLITE_INTERRUPT:
            return self._used_up()
        detail = self._guard.refused or one_line(error)
        two_statements = isinstance(error, sqlite3.ProgrammingError | sqlite3.Warning) and "one statement" in detail
        if self._guard.refused or two_statements:
            return Failure(Reason.NOT_ALLOWED, detail)
        if isinstance(error, sqlite3.DataError):
            return Failure(Reason.TOO_LARGE, detail)
        return Failure(_REASONS.get(code, Reason.ERROR), detail)

    def _used_up(self) -> Failure:
        if self._guard.steps > self._limits.steps:
            return Failure(Reason.TOO_MANY_STEPS, f"more than {self._limits.steps} steps")
        self._guard.repeatable = False
        return Failure(Reason.TIMEOUT, f"more than {self._limits.seconds} seconds")
