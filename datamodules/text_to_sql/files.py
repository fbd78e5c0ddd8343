"""Reading a benchmark's JSON files, with errors that name file, entry and key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError

Record = dict[str, Any]


def read_records(path: Path, texts: Iterable[str]) -> list[Record]:
    """The entries of a JSON file that holds a list of objects.

    Args:
        path: The file.
        texts: Keys that every entry must have, with text.

    Raises:
        UsageError: If the file is missing, is no such list, or an entry lacks a key.
    """
    if not path.is_file():
        raise UsageError(f"no file at {path}: check data.root and the layout in docs/text_to_sql.md")
    try:
        records = json.loads(path.read_bytes().decode("utf-8-sig"))
    except ValueError as error:  # also UnicodeDecodeError
        raise UsageError(f"{path} is not valid JSON ({error}): take the file from the data set again") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise UsageError(f"{path} must hold a JSON list of objects: is it the file of another data set?")
    wanted = tuple(texts)
    for number, record in enumerate(records):
        for key in wanted:
            if not isinstance(record.get(key), str):
                hint = (
                    "" if key in record else f"; its keys are {', '.join(map(str, record))}: is it of another data set?"
                )
                raise UsageError(f"{path}, entry {number}: the key {key!r} must be text, got {record.get(key)!r}{hint}")
    return records


def first_file(root: Path, names: Sequence[str]) -> Path | None:
    """The first of these files that is there, by its path relative to `root`."""
    return next((root / name for name in names if (root / name).is_file()), None)
