"""AMBROSIA (Saparina 2024, arXiv 2406.19073): ambiguous questions whose interpretations give different rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from datamodules.text_to_sql.files import Record, read_records
from datamodules.text_to_sql.folder import FolderSource, Questions
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem

Kind = Literal["scope", "attachment", "vague"]


class AmbrosiaSource(FolderSource):
    """AMBROSIA: `data/<kind>/<domain>/<database>/` with a SQLite file and `examples.json`.

    There is no training file: the databases are shared out. `data["golds"]` has the query of each interpretation,
    `data["gold"]` the first of them. `sql_query_general` of vague questions is left out: it is written for a second
    database of another schema.

    Args:
        root: The folder that holds `data`.
        kinds: Kinds of ambiguity to use.
        options: What every benchmark takes.
    """

    title: ClassVar[str] = "AMBROSIA"

    def __init__(
        self, root: str | None = None, kinds: Sequence[Kind] = ("scope", "attachment", "vague"), **options: Any
    ) -> None:
        super().__init__(root, **options)
        self.kinds = tuple(kinds)

    def database_folder(self, root: Path) -> Path:
        """The databases lie at `<kind>/<domain>/<database>`, because names alone are not unique."""
        return root / "data"

    def read(self, root: Path) -> Questions:
        """The problems of every `examples.json`."""
        folder = self.database_folder(root)
        found: list[Problem] = []
        for kind in self.kinds:
            files = sorted(folder.glob(f"{kind}/*/*/examples.json"))
            if not files:
                raise UsageError(f"AMBROSIA has no {folder}/{kind}/*/*/examples.json: check data.root and the kinds")
            found += [problem for file in files for problem in _problems(file, folder, kind)]
        return Questions(None, found)


def _problems(file: Path, folder: Path, kind: str) -> list[Problem]:
    database = file.parent.relative_to(folder).as_posix()
    records = read_records(file, ("question", "sql_query1", "sql_query2"))
    return [_problem(record, kind, database, number) for number, record in enumerate(records)]


def _problem(record: Record, kind: str, database: str, number: int) -> Problem:
    golds = _numbered(record, "sql_query")
    data = {
        "database": database,
        "db_id": database,
        "kind": kind,
        "gold": golds[0],
        "golds": golds,
        "interpretations": _numbered(record, "interpretation"),
    }
    return Problem(f"ambrosia-{database}-{number}", record["question"], data)


def _numbered(record: Record, prefix: str) -> list[str]:
    """The values of `prefix1`, `prefix2` and so on, up to the first that is missing."""
    found: list[str] = []
    while isinstance(value := record.get(f"{prefix}{len(found) + 1}"), str):
        found.append(value)
    return found
