"""What a study compares: arms, seeds and shared searches, and the complete configuration of each run.

An arm is a configuration file of an ordinary run and what differs from it. Nothing else tells arms apart, and the
configuration that a study hands to a run lies in its folder: anyone can run it again alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml import YAMLError  # type: ignore[import-untyped, attr-defined]

from elite_lightning.errors import UsageError
from elite_lightning.run_folder import load_yaml

SEARCHES = "searches"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# The study sets these for every run; an arm that set them would not be what it says.
_OWN = ("seed_everything", "run_dir")


@dataclass
class SharedSearch:
    """A search that is made once, and that any number of runs start from.

    Args:
        config: Configuration file of a run, of which the search is used.
        overrides: What differs from it, nested as in the file.
    """

    config: str
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass
class Arm:
    """One of the methods compared.

    Args:
        config: Configuration file of a run.
        label: Name in tables and pictures; null is the arm's own name.
        overrides: What differs from the file, nested as in it. A `class_path` other than the file's replaces all that
            stands under it.
        search: Name of the shared search that its runs start from; null searches in every run, if it is configured to.
        trained: False only measures the policy as it is.
    """

    config: str
    label: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    search: str | None = None
    trained: bool = True


class StudyPlan:
    """Arms, seeds, and how they are run.

    Args:
        study_dir: Folder for all that the study leaves; the same command goes on in it after a stop.
        arms: Name, which is also its folder, to what it is.
        seeds: Every arm is run with each of them, as `seed_everything`.
        reference: The arm that the others are compared to.
        searches: Name to a search that is made once; see `Arm.search`.
        search_seed: Seed of all shared searches, whatever the seed of the run.
        parallel: Runs at once. They share the cores: each has as many threads as its configuration says, or its share
            of the cores if that is less.
        overrides: What differs from the file in every arm and search; an arm's own overrides go on top.

    Raises:
        UsageError: If names, seeds or files do not fit together.
    """

    def __init__(
        self,
        study_dir: str,
        arms: dict[str, Arm],
        seeds: list[int],
        reference: str,
        searches: dict[str, SharedSearch] | None = None,
        search_seed: int = 0,
        parallel: int = 1,
        overrides: dict[str, Any] | None = None,
    ) -> None:
        self.study_dir = Path(study_dir)
        self.arms, self.searches = arms, searches or {}
        self.seeds, self.search_seed = seeds, search_seed
        self.reference, self.parallel = reference, parallel
        self.overrides = overrides or {}
        self._check()

    def _check(self) -> None:
        if self.parallel < 1:
            raise UsageError(f"parallel must be at least 1, got {self.parallel}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UsageError(f"seeds must be one or more, each once, got {self.seeds}")
        for name in (*self.arms, *self.searches):
            if not _NAME.fullmatch(name) or name == SEARCHES:
                raise UsageError(f"{name!r} cannot be the name of an arm or a search: take letters, digits, _, - and .")
        if self.reference not in self.arms:
            raise UsageError(f"reference={self.reference!r} is no arm; the arms are {', '.join(self.arms)}")
        for name, arm in self.arms.items():
            if arm.search is not None and arm.search not in self.searches:
                known = ", ".join(self.searches) or "none"
                raise UsageError(f"arm {name!r} starts from search {arm.search!r}; the searches are {known}")

    def label(self, arm: str) -> str:
        """How an arm is called in tables and pictures."""
        return self.arms[arm].label or arm

    def run_dir(self, arm: str, seed: int) -> Path:
        """Run folder of an arm and a seed."""
        return self.study_dir / arm / f"seed={seed}"

    def search_dir(self, search: str) -> Path:
        """Run folder of a shared search."""
        return self.study_dir / SEARCHES / search

    def used_searches(self) -> list[str]:
        """The shared searches that an arm starts from."""
        return [name for name in self.searches if any(arm.search == name for arm in self.arms.values())]

    def arm_config(self, name: str) -> dict[str, Any]:
        """Complete configuration of an arm's runs, but for seed and folder.

        Args:
            name: The arm.

        Raises:
            UsageError: If its file cannot be read, or it sets what the study sets.
        """
        arm = self.arms[name]
        config = merged(read_config(arm.config), self.overrides, arm.overrides)
        # Measured once a seed, by an arm of its own, and not at the beginning of every run.
        config = merged(config, {"evaluation": {"baseline": False}})
        return self._with_search_seed(config) if arm.search is not None else config

    def search_config(self, name: str) -> dict[str, Any]:
        """Complete configuration of a shared search, but for its folder.

        Args:
            name: The search.

        Raises:
            UsageError: If its file cannot be read, or it sets what the study sets.
        """
        search = self.searches[name]
        return self._with_search_seed(merged(read_config(search.config), self.overrides, search.overrides))

    def _with_search_seed(self, config: dict[str, Any]) -> dict[str, Any]:
        if not config.get("search"):
            raise UsageError("a run that starts from a shared search needs `search` in its configuration")
        return merged(config, {"search": {"init_args": {"settings": {"seed": self.search_seed}}}})


def read_config(path: str) -> dict[str, Any]:
    """A run's configuration file, without what a study sets.

    Args:
        path: The YAML file.

    Raises:
        UsageError: If it cannot be read, or is no mapping.
    """
    try:
        config = load_yaml(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"config={path} cannot be read: {error}") from error
    except YAMLError as error:
        raise UsageError(f"config={path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise UsageError(f"config={path} is not a run's configuration: it holds no mapping")
    return {key: value for key, value in config.items() if key not in _OWN}


def merged(*configs: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over one another, later ones on top.

    Where a later one names another `class_path`, nothing of the earlier class's arguments is left.

    Args:
        configs: At least one.

    Raises:
        UsageError: If one sets what only the study sets.
    """
    result: dict[str, Any] = {}
    for config in configs:
        for own in _OWN:
            if own in config:
                raise UsageError(f"overrides must not set {own}: the study does, for every run")
        result = _over(result, config)
    return result


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    if "class_path" in above and above["class_path"] != below.get("class_path"):
        below = {}
    result = dict(below)
    for key, value in above.items():
        there = result.get(key)
        both = isinstance(value, Mapping) and isinstance(there, Mapping)
        result[key] = _over(there, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return result


def seed_folders(plan: StudyPlan) -> dict[str, Sequence[Path]]:
    """Arm, in the plan's order, to the run folders of its seeds, in ascending order as in `results.json`."""
    return {arm: [plan.run_dir(arm, seed) for seed in sorted(plan.seeds)] for arm in plan.arms}
