"""BIRD (Li 2023, arXiv 2305.03111): questions with evidence on large databases, with descriptions of their columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from datamodules.text_to_sql.files import Record, first_file, read_records
from datamodules.text_to_sql.folder import FolderSource, Questions
from datamodules.text_to_sql.names import unique
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem

TRAIN_FILES = ("train.json", "train/train.json")
EVALUATION_FILES = {
    "dev": ("dev.json", "dev/dev.json", "dev_20240627/dev.json"),
    "mini_dev": ("mini_dev_sqlite.json", "MINIDEV/mini_dev_sqlite.json", "minidev/MINIDEV/mini_dev_sqlite.json"),
}


class BirdSource(FolderSource):
    """BIRD: `dev.json` or `mini_dev_sqlite.json`, and `train.json` where it is there.

    A file's databases lie beside it, in `dev_databases` or `train_databases`. Golds and evidence come from the JSON
    files alone: the `.sql` files of some releases are of another state (198 of dev's 1,534 differ).

    Args:
        root: The folder of `dev.json`, or its parent.
        evaluation: Which file is evaluated on. Mini-dev is a part of dev.
        options: What every benchmark takes.
    """

    title: ClassVar[str] = "BIRD"
    prediction_rules: ClassVar[tuple[str, ...]] = ("default", "bird_ex", "soft_f1")

    def __init__(self, root: str | None = None, evaluation: Literal["dev", "mini_dev"] = "dev", **options: Any) -> None:
        super().__init__(root, **options)
        self.evaluation = evaluation

    def database_folder(self, root: Path) -> Path:
        """The root itself: training and evaluation have folders of their own."""
        return root

    def read(self, root: Path) -> Questions:
        """The problems of the training file, if any, and of the evaluation file."""
        train = first_file(root, TRAIN_FILES)
        evaluation = first_file(root, EVALUATION_FILES[self.evaluation])
        if evaluation is None:
            other = next((name for name, files in EVALUATION_FILES.items() if first_file(root, files)), None)
            hint = f"; it has {other}: set data.source.init_args.evaluation={other}" if other else ""
            raise UsageError(f"BIRD's {EVALUATION_FILES[self.evaluation][0]} is not in {root}{hint}")
        return Questions(
            None if train is None else _problems(root, train, "train", "train_databases"),
            _problems(root, evaluation, self.evaluation, "dev_databases"),
        )


def _problems(root: Path, file: Path, part: str, databases: str) -> list[Problem]:
    folder = (file.parent / databases).relative_to(root).as_posix()
    records = read_records(file, ("db_id", "question", "SQL"))
    return unique([_problem(record, part, number, folder) for number, record in enumerate(records)])


def _problem(record: Record, part: str, number: int, folder: str) -> Problem:
    """The gold is kept to the letter. The training file has no `question_id`, so its problems are numbered."""
    data = {
        "database": f"{folder}/{record['db_id']}",
        "db_id": record["db_id"],
        "gold": record["SQL"],
        "evidence": record.get("evidence") or "",
    }
    if "difficulty" in record:
        data["difficulty"] = record["difficulty"]
    return Problem(f"bird-{part}-{record.get('question_id', number)}", record["question"], data)
