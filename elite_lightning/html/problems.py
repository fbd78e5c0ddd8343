"""What was asked: question, prompt and right answers by problem id, from the source that the run's config names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from datamodules.sources import ProblemSource
from elite_lightning.errors import UsageError
from elite_lightning.run_folder import load_yaml
from elite_lightning.types import Domain, Problem

_GOLDS = ("gold", "golds")


@dataclass(frozen=True)
class ProblemText:
    """What people need to see of a problem.

    Args:
        question: In words.
        prompt: What the policy is given; None if the domain cannot write it.
        golds: Right answers of the data set, where it has them.
        data: The rest of the problem's data.
    """

    question: str
    prompt: str | None
    golds: tuple[str, ...]
    data: Mapping[str, Any]


class ProblemTexts:
    """Problems of one source by id. Prompts are written when they are asked for, for they may be long.

    Args:
        problems: By id.
        domain: Writes prompts.
    """

    def __init__(self, problems: Mapping[str, Problem], domain: Domain | None) -> None:
        self._problems, self._domain = problems, domain

    def __len__(self) -> int:
        return len(self._problems)

    def fingerprint(self) -> str | None:
        """The domain's hash; None without a domain."""
        return None if self._domain is None else self._domain.fingerprint()

    def get(self, problem_id: str) -> ProblemText | None:
        """The problem, or None if the source does not have it."""
        problem = self._problems.get(problem_id)
        if problem is None or self._domain is None:
            return None
        try:
            prompt = self._domain.prompt(problem)
        except Exception:  # a missing database must not cost the whole report
            prompt = None
        rest = {key: value for key, value in problem.data.items() if key not in _GOLDS}
        return ProblemText(problem.question, prompt, _golds(problem.data), rest)


def load_problems(config_file: Path) -> tuple[ProblemTexts, str | None]:
    """Build the data source of a run, and nothing else of it.

    Args:
        config_file: The run's `config.yaml`.

    Returns:
        The problems, and why there are none; None where there are.
    """
    try:
        data = read_config(config_file)["data"]
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--source", type=ProblemSource)
        source = parser.instantiate_classes(parser.parse_object({"source": data["source"]})).source
        source = source if data.get("root") is None else source.at(data["root"])
        return ProblemTexts({problem.id: problem for problem in _all(source)}, source.domain), None
    except Exception as error:  # a source may be anybody's code; the rest of the report stands without
        return ProblemTexts({}, None), f"{type(error).__name__}: {' '.join(str(error).split())}"


def read_config(path: Path) -> Mapping[str, Any]:
    """A run's configuration.

    Raises:
        UsageError: If the file is not a mapping in YAML.
    """
    try:
        config = load_yaml(path.read_text())
    except Exception as error:  # the YAML package has errors of many kinds
        raise UsageError(f"{path} cannot be read as YAML ({error}); restore it, or leave out its run") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path} is not a run's configuration; restore it, or leave out its run")
    return config


def _all(source: ProblemSource) -> Iterator[Problem]:
    yield from source.train()
    yield from source.validation()
    yield from source.test()


def _golds(data: Mapping[str, Any]) -> tuple[str, ...]:
    several = data.get("golds")
    if isinstance(several, (list, tuple)):
        return tuple(map(str, several))
    return (str(data["gold"]),) if data.get("gold") else ()
