"""Read files of predicted SQL in the benchmarks' own formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from elite_lightning.errors import UsageError

BIRD_SEPARATOR = "\t----- bird -----\t"


class GoldItem(NamedTuple):
    """One question to be scored: gold's SQL, the database's name, and how hard it is said to be."""

    id: str
    sql: str
    database: str
    difficulty: str | None = None


class Predictions(NamedTuple):
    """Predicted SQL, one for each question and in their order, and what a user should know about the file."""

    sql: list[str]
    warnings: list[str]


def read_predictions(path: Path, golds: list[GoldItem]) -> Predictions:
    """Read BIRD's format from a `.json` file, Spider's from any other.

    Raises:
        UsageError: If the file is missing, not in that format, or does not hold one prediction for each question.
    """
    read = read_bird_predictions if path.suffix == ".json" else read_spider_predictions
    return read(path, golds)


def read_bird_predictions(path: Path, golds: list[GoldItem]) -> Predictions:
    r"""Read `{"0": "SQL\t----- bird -----\tdatabase", ...}`, as `package_sqls` of bird-bench/mini_dev does.

    Values are paired with questions by their position in the file, whatever the keys say; a value that is no text
    stands for an empty prediction; one without the separator, or with two, is SQL as a whole. The official script
    drops what is left over when the numbers differ; here that is an error.

    Raises:
        UsageError: As `read_predictions`.
    """
    try:
        content = json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path} is not JSON ({error}): BIRD's format is one object, {{position: SQL}}; "
            "for a file with one query a line use another ending than .json"
        ) from error
    if not isinstance(content, dict):
        raise UsageError(
            f"{path} is no JSON object ({type(content).__name__}): BIRD's format is one, {{position: SQL}}"
        )
    _require_count(path, len(content), golds)
    parted = [_parted(value) for value in content.values()]
    warnings = []
    if list(content) != [str(position) for position in range(len(content))]:
        warnings.append(
            f"{path}: the keys are not 0, 1, 2, ... in this order; as in BIRD's own script values are paired with "
            "questions by position, not by key"
        )
    strangers = sum(bool(name) and name != gold.database for (_, name), gold in zip(parted, golds, strict=True))
    if strangers:
        warnings.append(
            f"{path}: {strangers} of {len(golds)} predictions name another database than their question's, which is "
            "the one they are run on; check that the file is for these questions and in their order"
        )
    return Predictions([sql for sql, _ in parted], warnings)


def read_spider_predictions(path: Path, golds: list[GoldItem]) -> Predictions:
    """Read one query a line; what follows a tab behind it is left out, as in the evaluators of Spider.

    Where there is a line for each question, an empty one is an empty prediction, the last one too; further empty lines
    at the end do not count. Else empty lines, which part the dialogues of SParC and CoSQL, are left out.

    Raises:
        UsageError: As `read_predictions`.
    """
    text = _text(path)
    lines = [line.strip().split("\t")[0].strip() for line in text.split("\n")]
    while len(lines) > len(golds) and not lines[-1]:
        del lines[-1]
    if len(lines) != len(golds):
        lines = [line for line in lines if line]
    _require_count(path, len(lines), golds)
    warnings = []
    if text.endswith("\n") and text.count("\n") < len(golds):
        warnings.append(
            f"{path} ends one line before the last question, which gets an empty prediction; check that it is whole"
        )
    return Predictions(lines, warnings)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check the path") from error


def _parted(value: Any) -> tuple[str, str]:
    """A prediction's SQL and the database that it names, which may be empty."""
    if not isinstance(value, str):
        return "", ""
    parts = value.split(BIRD_SEPARATOR)
    return (parts[0], parts[1].strip()) if len(parts) == 2 else (value.strip(), "")


def _require_count(path: Path, count: int, golds: list[GoldItem]) -> None:
    if count != len(golds):
        raise UsageError(
            f"{path} has {count} predictions for {len(golds)} questions: "
            "give one for each question, in their order, an empty one where there is none"
        )
