"""Hands a finished search to a run: its journals, from which the run makes its archive without sampling anything."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from elite_lightning.errors import UsageError
from elite_lightning.run_folder import RunFolder, write_atomically

_ORIGIN = "shared_search.json"


def hand_over(source: Path, target: Path) -> None:
    """Copy what a run needs to take a search for its own, unless it has its archive already.

    Args:
        source: Run folder of the finished search.
        target: Run folder of the run.
    """
    if RunFolder(target).archive.is_file():
        return
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("*.sqlite")):
        temporary = _temporary(target, path.name)
        # By SQLite itself: a search that was killed at its very end may have rows beside the file.
        with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(temporary)) as new:
            old.backup(new)
        os.replace(temporary, target / path.name)
    vocabulary = source / "vocabulary.json"
    if vocabulary.is_file():
        temporary = _temporary(target, vocabulary.name)
        shutil.copyfile(vocabulary, temporary)
        os.replace(temporary, target / vocabulary.name)
    write_atomically(target / _ORIGIN, json.dumps({"archive_sha256": _digest(source)}) + "\n")


def check_origin(source: Path, target: Path) -> None:
    """Refuse a run that started from another search than the one that is there now.

    Args:
        source: Run folder of the shared search.
        target: Run folder of a run, there already or not.

    Raises:
        UsageError: If the search was made anew since.
    """
    origin = target / _ORIGIN
    if not origin.is_file() or not RunFolder(source).archive.is_file():
        return
    if json.loads(origin.read_text())["archive_sha256"] != _digest(source):
        raise UsageError(
            f"{target} started from another search than {source} holds now: put that one back, "
            "or move the run away, so that all seeds of the arm replay the same"
        )


def _digest(source: Path) -> str:
    return hashlib.sha256(RunFolder(source).archive.read_bytes()).hexdigest()


def _temporary(target: Path, name: str) -> Path:
    path = target / f".{name}.{os.getpid()}.{threading.get_ident()}.tmp"
    path.unlink(missing_ok=True)
    return path
