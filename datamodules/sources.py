"""Where problems and demonstrations come from: the two seams that a new data set fills, and the plain file source.

Not here: how problems are drawn, batched and shared among ranks (`batches.py`, `elite.py`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from elite_lightning.errors import UsageError
from elite_lightning.types import Domain, Problem


class PredictionScores(NamedTuple):
    """Scores of a file of predictions.

    Args:
        summary: Counts and scores by rule, as data for JSON.
        items: Verdicts by question.
        warnings: What a user should know about the file, a line each.
    """

    summary: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]


class ProblemSource(ABC):
    """The problems of a data set, and the domain that judges answers to them.

    It is built on every rank, and the domain is asked for before anything else happens: a source that makes files does
    so in its constructor, atomically, so that ranks that start together do not disturb each other.
    """

    checked: ClassVar[bool] = False
    """Whether the source sees to it itself that answers to its problems can be judged."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The one domain object that search, training and evaluation share."""

    @abstractmethod
    def train(self) -> Sequence[Problem]:
        """Problems to search and to train on."""

    def validation(self) -> Sequence[Problem]:
        """Problems to tune on; none unless a source has them."""
        return ()

    def test(self) -> Sequence[Problem]:
        """Problems to report on; none unless a source has them."""
        return ()

    def at(self, root: str) -> Self:
        """The same source, reading from this folder; what `data.root` asks for.

        Raises:
            UsageError: If the source reads no folder, or is set to another one.
        """
        raise UsageError(f"{type(self).__name__} reads no data set's folder: leave out data.root={root}")

    def score(self, predictions: Path, workers: int) -> PredictionScores:  # noqa: ARG002
        """Score a file of predictions on the benchmark's questions, without a model.

        Args:
            predictions: One prediction for each question, in the benchmark's own format.
            workers: Number of worker processes.

        Raises:
            UsageError: If the source has no format for predictions, or the file does not fit.
        """
        raise UsageError(f"{type(self).__name__} has no format for files of predictions: leave out --predictions")

    def notes(self) -> Sequence[str]:
        """What a user should know of the data before anything starts, such as counts; a line each."""
        return ()


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One text to imitate: a prompt, its response, and how much it counts.

    Args:
        prompt: Prompt text, as the domain writes it.
        response: Response text.
        weight: Relative weight within the replay loss, at least 0.
    """

    prompt: str
    response: str
    weight: float = 1.0


class DemonstrationSource(ABC):
    """Demonstrations made on the fly: an endless, numbered supply, so that a resumed run goes on with the next one."""

    @abstractmethod
    def demonstration(self, index: int, seed: int) -> Demonstration:
        """The demonstration with this number; a pure function of its arguments."""


def read_problems(path: str | Path) -> list[Problem]:
    """Read problems from a JSON Lines file: `{"id": ..., "question": ..., "data": {...}}` a line.

    Args:
        path: The file; empty lines are skipped.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is broken or repeats an id; the message names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no problem file at {path}")
    problems: dict[str, Problem] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        problem = _parse_problem(line, f"{path}, line {number}")
        if problem.id in problems:
            raise ValueError(f"{path}, line {number}: the id {problem.id!r} is there twice; ids must be unique")
        problems[problem.id] = problem
    return list(problems.values())


def _parse_problem(line: bytes, where: str) -> Problem:
    try:
        record: Any = json.loads(line)
    except ValueError as error:  # also UnicodeDecodeError
        raise ValueError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(record, dict):
        raise ValueError(f"{where}: a problem is a JSON object, got {type(record).__name__}")
    for key, kind in (("id", str), ("question", str)):
        if not isinstance(record.get(key), kind):
            raise ValueError(f'{where}: the key "{key}" must be a string, got {record.get(key)!r}')
    if not isinstance(record.get("data", {}), dict):
        raise ValueError(f'{where}: the key "data" must be an object, got {record["data"]!r}')
    if unknown := record.keys() - {"id", "question", "data"}:
        raise ValueError(f"{where}: unknown key {min(unknown)!r}; a problem has id, question and data")
    return Problem(id=record["id"], question=record["question"], data=record.get("data", {}))


class JsonlSource(ProblemSource):
    """Problems from JSON Lines files, for any domain.

    Args:
        domain: The domain that judges, as `class_path` and `init_args`.
        train_file: Problems to search and train on.
        validation_file: Problems to tune on, if any.
        test_file: Problems to report on, if any.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a line is broken; the message names file and line.
    """

    def __init__(
        self,
        domain: Domain,
        train_file: str,
        validation_file: str | None = None,
        test_file: str | None = None,
    ) -> None:
        self._domain = domain
        self._train = read_problems(train_file)
        self._validation = read_problems(validation_file) if validation_file else []
        self._test = read_problems(test_file) if test_file else []

    @property
    def domain(self) -> Domain:
        """The configured domain."""
        return self._domain

    def train(self) -> Sequence[Problem]:
        """Problems of `train_file`."""
        return self._train

    def validation(self) -> Sequence[Problem]:
        """Problems of `validation_file`."""
        return self._validation

    def test(self) -> Sequence[Problem]:
        """Problems of `test_file`."""
        return self._test
