"""Spider (Yu 2018, arXiv 1809.08887): questions on many small databases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from datamodules.text_to_sql.files import read_records
from datamodules.text_to_sql.folder import FolderSource, Questions
from datamodules.text_to_sql.names import unique
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem


class SpiderSource(FolderSource):
    """Spider: `dev.json`, and `train_spider.json` where it is there.

    Schemas come from the SQLite files, which have every key of `tables.json`; neither that file nor the `schema.sql`
    files, of which some are missing or damaged, are needed.

    Args:
        root: The folder of `dev.json`.
        train_files: Files to train on; those that are absent are left out. `train_others.json` is not among them,
            because all its databases are empty.
        database_folder_name: The folder of databases; further SQLite files beside a database are copies of it that a
            right answer must satisfy too, as in the official test suites.
        copies_folder_name: Another folder of such copies.
        options: What every benchmark takes.
    """

    title: ClassVar[str] = "Spider"
    prediction_rules: ClassVar[tuple[str, ...]] = ("default", "spider_exec", "test_suite", "test_suite_keep_distinct")

    def __init__(
        self,
        root: str | None = None,
        train_files: Sequence[str] = ("train_spider.json",),
        database_folder_name: str = "database",
        copies_folder_name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.train_files = tuple(train_files)
        self.database_folder_name, self.copies_folder_name = database_folder_name, copies_folder_name

    def database_folder(self, root: Path) -> Path:
        """The databases of all files."""
        return root / self.database_folder_name

    def copies(self, root: Path) -> Path | None:
        """The folder of copies.

        Raises:
            UsageError: If it is not there.
        """
        if self.copies_folder_name is None:
            return None
        folder = root / self.copies_folder_name
        if not folder.is_dir():
            raise UsageError(f"no folder at {folder}: data.source.copies_folder_name must be one in {root}")
        return folder

    def read(self, root: Path) -> Questions:
        """The problems of the training files, if any, and of `dev.json`."""
        there = [root / name for name in self.train_files if (root / name).is_file()]
        train = [problem for file in there for problem in _problems(file)]
        return Questions(train if there else None, _problems(root / "dev.json"))


def _problems(file: Path) -> list[Problem]:
    records = read_records(file, ("db_id", "question", "query"))
    return unique(
        [
            Problem(
                f"spider-{file.stem.removesuffix('_spider')}-{number}",
                record["question"],
                {
                    "database": record["db_id"],
                    "db_id": record["db_id"],
                    "gold": record["query"],
                },
            )
            for number, record in enumerate(records)
        ]
    )
