"""BIRD's column descriptions: one CSV file a table in `database_description` beside the database.

Files in official releases have a byte-order mark or none, are UTF-8 or Windows-1252, have superfluous cells, and
names with spaces around them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from elite_lightning.errors import UsageError

FOLDER = "database_description"


class Description(NamedTuple):
    """What a column is called in words, and what it holds; either may be empty."""

    name: str
    text: str


def read_descriptions(database: Path) -> Mapping[tuple[str, str], Description]:
    """Descriptions by table and column, both in lower case; none where the folder is absent.

    Args:
        database: The SQLite file that they lie beside.

    Raises:
        UsageError: If a file has no column `original_column_name`.
    """
    found = {}
    for path in sorted((database.parent / FOLDER).glob("*.csv")):
        for row in _rows(path):
            name = _tidy(row.get("original_column_name"))
            if name:
                found[path.stem.strip().lower(), name.lower()] = _describe(name, row)
    return found


def _rows(path: Path) -> csv.DictReader[str]:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    if "original_column_name" not in (rows.fieldnames or ()):
        raise UsageError(f"{path} has no column original_column_name: take the file from the data set again")
    return rows


def _describe(name: str, row: Mapping[str, str | None]) -> Description:
    """BIRD's own description and its note on values, without what merely repeats a name."""
    words = _tidy(row.get("column_name"))
    said = {_bare(name)}
    parts = []
    for part in (words, _tidy(row.get("column_description")), _tidy(row.get("value_description"))):
        if part and _bare(part) not in said:
            said.add(_bare(part))
            parts.append(part)
    return Description(words, "; ".join(parts))


def _tidy(cell: str | None) -> str:
    return " ".join((cell or "").split())


def _bare(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())
