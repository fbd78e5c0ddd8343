"""Which files the page's numbers come from: each has a short id and a line in the page's list of files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple


class SourceFile(NamedTuple):
    """One line of the list of files.

    Args:
        id: Short id within the page, such as `f3`.
        name: Path as the page shows it.
        size: Bytes.
        sha256: Hash of the file's bytes.
    """

    id: str
    name: str
    size: int
    sha256: str


class Sources:
    """Numbers the files in the order in which they are first named.

    Args:
        folders: Run folders; names are relative to what contains them all.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        parents = [folder.absolute().parent for folder in folders]
        self.root = Path(os.path.commonpath(parents)) if parents else Path.cwd()
        self._ids: dict[Path, str] = {}

    def id_of(self, path: Path) -> str:
        """The file's id within the page."""
        return self._ids.setdefault(path.absolute(), f"f{len(self._ids) + 1}")

    def note(self, paths: Iterable[Path]) -> None:
        """Put files on the list that no single number points to, such as those behind a picture."""
        for path in paths:
            self.id_of(path)

    def name_of(self, path: Path) -> str:
        """The path as the page shows it: below the folder that contains all runs, or else absolute."""
        path = path.absolute()
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()

    def names_of(self, paths: Sequence[Path]) -> str:
        """Paths of several files, one after the other."""
        return ", ".join(map(self.name_of, paths))

    def files(self) -> list[SourceFile]:
        """All files that were named, with their hashes."""
        return [
            SourceFile(id_, self.name_of(path), path.stat().st_size, digest_of(path))
            for path, id_ in self._ids.items()
            if path.is_file()
        ]


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
