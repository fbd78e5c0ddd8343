"""The journal of a search: every attempt in a SQLite file, so that a killed search goes on where it stopped.

It does not decide anything. A batch of attempts is written in one transaction, so that after `kill -9` at any moment
the journal holds whole batches only.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elite_lightning.archive import Outcome
from elite_lightning.errors import UsageError
from elite_lightning.search.attempt import Attempt
from elite_lightning.types import Cell

_APPLICATION_ID = 0x454C4954  # "ELIT": tells our files from other people's databases
_SCHEMA_VERSION = 2  # 1 had no tokens
_VOCABULARY = "vocabulary"  # found out by the search itself, so no part of what it must have been started with
_SCHEMA = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE attempts (
        id INTEGER PRIMARY KEY,
        round INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        problem_id TEXT NOT NULL,
        asked TEXT,                -- approach that was asked for; NULL: plain prompt
        parents TEXT NOT NULL,     -- JSON list of attempt ids
        response TEXT NOT NULL,
        solution TEXT,
        outcome TEXT NOT NULL,
        reward REAL NOT NULL,
        approach TEXT,             -- of the realised cell; NULL: not correct
        structure TEXT,
        tokens INTEGER             -- sampled, end-of-sequence included; NULL: written by an earlier release
    )""",
    "CREATE INDEX attempts_batch ON attempts (round, batch)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


class JournalError(UsageError):
    """A journal that cannot be used; one line that says what is wrong and what to do."""


class SearchJournal:
    """All attempts of one search on one rank. A context manager.

    Args:
        path: The SQLite file; made if it is not there and `meta` is given.
        meta: What decides the search, by name, JSON-serialisable: settings, fingerprints, share of the problems. A
            journal that was written with other values is refused. None takes the journal as it is, for reading.

    Raises:
        JournalError: If the file is no journal, of another version, or written with other values.
    """

    def __init__(self, path: str | Path, meta: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        if meta is None and not self.path.is_file():
            raise JournalError(f"no search journal at {self.path}; run the search first")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._errors():
            self._connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            self._open(meta)
        except BaseException:
            self._connection.close()
            raise

    def append(self, attempts: Sequence[Attempt]) -> None:
        """Write one batch, as a whole or not at all.

        Raises:
            JournalError: If another process writes the same journal.
        """
        rows = [
            (
                *(a.id, a.round, a.batch, a.problem_id, a.asked, json.dumps(a.parents), a.response, a.solution),
                *(a.outcome.value, a.reward),
                *(a.cell or (None, None)),
                a.tokens,
            )
            for a in attempts
        ]
        with self._transaction():
            self._connection.executemany(f"INSERT INTO attempts VALUES ({','.join('?' * 13)})", rows)

    def batch(self, round_: int, batch: int) -> list[Attempt]:
        """The attempts of one batch in their order; none if it was not written."""
        with self._errors():
            query = "SELECT * FROM attempts WHERE round = ? AND batch = ? ORDER BY id"
            return [_attempt(row) for row in self._connection.execute(query, (round_, batch))]

    def attempts(self) -> Iterator[Attempt]:
        """All attempts in their order."""
        with self._errors():
            for row in self._connection.execute("SELECT * FROM attempts ORDER BY id"):
                yield _attempt(row)

    @property
    def vocabulary(self) -> str | None:
        """Fingerprint of the vocabulary that the cells hold names of; None before a labeler's `relabel`."""
        with self._errors():
            row = self._connection.execute("SELECT value FROM meta WHERE key = ?", (_VOCABULARY,)).fetchone()
        return None if row is None else str(json.loads(row[0]))

    def relabel(self, attempts: Sequence[Attempt], vocabulary: str) -> None:
        """Replace outcome and cell of the attempts that are there, and name the vocabulary; all of it or nothing.

        Args:
            attempts: All attempts so far, with what they are under the new labels.
            vocabulary: Its fingerprint.
        """
        rows = [(a.outcome.value, *(a.cell or (None, None)), a.id) for a in attempts]
        with self._transaction():
            self._connection.executemany(
                "UPDATE attempts SET outcome = ?, approach = ?, structure = ? WHERE id = ?", rows
            )
            self._connection.execute("INSERT INTO meta VALUES (?, ?)", (_VOCABULARY, json.dumps(vocabulary)))

    def __len__(self) -> int:
        with self._errors():
            return int(self._connection.execute("SELECT count(*) FROM attempts").fetchone()[0])

    def close(self) -> None:
        """Close the file; what was appended is safe already."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, meta: Mapping[str, Any] | None) -> None:
        with self._errors():
            is_new = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            if not (is_new and meta is not None):
                self._upgrade(self._version())
            # A writer that is killed leaves readers and the next writer a consistent file.
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            if meta is not None:
                self._create(meta) if is_new else self._check_meta(meta)

    def _create(self, meta: Mapping[str, Any]) -> None:
        with self._transaction():
            for statement in _SCHEMA:
                self._connection.execute(statement)
            rows = [(key, json.dumps(value)) for key, value in meta.items()]
            self._connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)

    def _version(self) -> int:
        application = self._connection.execute("PRAGMA application_id").fetchone()[0]
        version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if application != _APPLICATION_ID:
            raise JournalError(f"{self.path} is not a search journal; move it away or choose another run folder")
        if not 1 <= version <= _SCHEMA_VERSION:
            raise JournalError(
                f"the search journal {self.path} is of version {version}, this release reads version "
                f"{_SCHEMA_VERSION}; finish it with the release that wrote it, or choose another run folder"
            )
        return version

    def _upgrade(self, version: int) -> None:
        """Bring a file of an earlier release to this one's columns; its attempts stay as they are."""
        if version < 2:
            with self._transaction():
                self._connection.execute("ALTER TABLE attempts ADD COLUMN tokens INTEGER")
                self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _check_meta(self, meta: Mapping[str, Any]) -> None:
        stored = {key: json.loads(value) for key, value in self._connection.execute("SELECT * FROM meta")}
        stored.pop(_VOCABULARY, None)
        here = json.loads(json.dumps(dict(meta)))
        for key in [*here, *stored]:
            if key not in stored or key not in here or stored[key] != here[key]:
                raise JournalError(
                    f"the search journal {self.path} was written with {key} = {stored.get(key)!r}, this run has "
                    f"{here.get(key)!r}; set it back, or choose another run folder"
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as one line that names the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise JournalError(f"cannot use the search journal {self.path}: {error}{_advice(error)}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def _advice(error: sqlite3.Error) -> str:
    if isinstance(error, sqlite3.IntegrityError):
        return "; another process searches in the same run folder: stop one of them, then start this one again"
    if "not a database" in str(error):
        return "; move it away or choose another run folder"
    return ""


def _attempt(row: Sequence[Any]) -> Attempt:
    *fields, approach, structure, tokens = row
    id_, round_, batch, problem_id, asked, parents, response, solution, outcome, reward = fields
    return Attempt(
        id=id_,
        round=round_,
        batch=batch,
        problem_id=problem_id,
        asked=asked,
        parents=tuple(json.loads(parents)),
        response=response,
        solution=solution,
        outcome=Outcome(outcome),
        reward=reward,
        cell=None if approach is None else Cell(approach, structure),
        tokens=tokens,
    )
