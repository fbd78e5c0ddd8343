"""Answers of a language model in a SQLite file, so that a search that was killed goes on with the same ones."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from elite_lightning.errors import UsageError
from elite_lightning.search.labeling.chat import Chat


class CachedChat:
    """Asks every prompt once, whatever happens in between.

    Each answer is written down when it comes in. The key is the whole prompt, which holds the solution and the
    vocabulary, together with `identity`, which says who is asked and how.

    Args:
        chat: Answers what is not known.
        path: The SQLite file; made if it is not there.
        identity: Hash of the model and of how it is asked.

    Raises:
        UsageError: If the file cannot be used.
    """

    def __init__(self, chat: Chat, path: Path, identity: str) -> None:
        self._chat, self._identity = chat, identity
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.Error as error:
            raise UsageError(f"cannot use the cache of labels {path}: {error}; move it away") from error

    def ask(self, prompts: Sequence[str]) -> list[str]:
        """The answers, in the order of the prompts.

        Raises:
            UsageError: If the model cannot be asked; what it answered so far is kept.
        """
        keys = [self._key(prompt) for prompt in prompts]
        known = {key: answer for key in keys if (answer := self._stored(key)) is not None}
        fresh = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in known}
        asked = list(fresh)
        for index, answer in self._chat.complete(list(fresh.values())) if fresh else ():
            self._connection.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (asked[index], _storable(answer)))
        return [known[key] if key in known else self._stored(key) or "" for key in keys]

    def close(self) -> None:
        """Close the file; what was answered is safe already."""
        self._connection.close()

    def _key(self, prompt: str) -> str:
        return hashlib.sha256(json.dumps([self._identity, prompt]).encode()).hexdigest()

    def _stored(self, key: str) -> str | None:
        row = self._connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])


def _storable(text: str) -> str:
    """The text with halves of surrogate pairs, which no file can hold, replaced by question marks."""
    return text.encode("utf-8", "replace").decode()
