"""From run folders to arms: what was trained alike and differs in the seed, and the base policy that all began with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.evaluation import ProblemCounts, read_counts
from elite_lightning.html.sources import digest_of
from elite_lightning.run_folder import RunFolder

BASE = "base policy"


@dataclass(frozen=True)
class Arm:
    """Runs that differ in the seed alone, or the base policy as these runs measured it.

    Args:
        name: Unique key; that of `results.json`, where there is one.
        label: What people read.
        runs: Run folders, one a seed.
        evaluations: Files of samples on the test problems, one a run; runs that were not measured have none.
        counts: Counts by problem of each file; all arms have the same problems in the same order.
    """

    name: str
    label: str
    runs: tuple[Path, ...]
    evaluations: tuple[Path, ...]
    counts: tuple[Mapping[str, ProblemCounts], ...] = ()

    @property
    def is_base(self) -> bool:
        """Whether this is the policy before training: all that is known of it was measured at step 0."""
        return bool(self.evaluations) and all(path.stem == "step=0" for path in self.evaluations)


def arms_of(folders: Mapping[str, Sequence[Path]], results: Mapping[str, Any] | None) -> list[Arm]:
    """The base policy, if it was measured, and the given arms in their order, with counts over common problems.

    Args:
        folders: Name or label of each arm to its run folders.
        results: Content of a study's `results.json`.

    Raises:
        UsageError: If a folder is no run folder, a file of samples is broken, or arms have no problem in common.
    """
    for folder in (folder for of_arm in folders.values() for folder in of_arm):
        if not (folder / "config.yaml").is_file() and not (folder / "eval").is_dir():
            raise UsageError(f"{folder} is not a run folder: it has neither config.yaml nor eval/; name a run's folder")
    arms = [_arm(key, tuple(of_arm), results) for key, of_arm in folders.items()]
    if not any(arm.is_base for arm in arms):
        arms = [*_base([folder for of_arm in folders.values() for folder in of_arm]), *arms]
    return _over_common_problems([replace(arm, counts=tuple(map(read_counts, arm.evaluations))) for arm in arms])


def _arm(key: str, runs: tuple[Path, ...], results: Mapping[str, Any] | None) -> Arm:
    known = (results or {}).get("arms", {})
    name = key if key in known else next((n for n, arm in known.items() if arm.get("label") == key), key)
    named = known.get(name, {})
    if "evaluations" in named:
        # `.../seed=3/eval/step=100.jsonl`: by the run's own name, since the order here need not be that of the results.
        by_name = {folder.name: folder for folder in runs}
        files = [Path(file) for file in named["evaluations"]]
        runs = tuple(by_name[file.parts[-3]] for file in files if file.parts[-3] in by_name)
        evaluations = [by_name[file.parts[-3]] / "eval" / file.name for file in files if file.parts[-3] in by_name]
    else:
        evaluations = [path for path in map(newest_evaluation, runs) if path is not None]
    found = tuple(path for path in evaluations if path.is_file())
    return Arm(name, named.get("label", key), runs, found)


def newest_evaluation(folder: Path) -> Path | None:
    """The test samples after the most optimizer steps, those before training aside; None if there are none."""
    by_step: dict[int, Path] = {}
    for path in (folder / "eval").glob("step=*.jsonl"):
        step = path.stem.removeprefix("step=")
        if step.isdigit() and int(step) > 0:
            by_step[int(step)] = path
    return by_step[max(by_step)] if by_step else None


def _base(folders: Iterable[Path]) -> list[Arm]:
    """The policy before training, each set of samples once: runs of one seed have measured the same."""
    measured = {folder: RunFolder(folder).samples("test", 0) for folder in folders}
    once: dict[str, tuple[Path, Path]] = {}
    for folder, path in measured.items():
        if path.is_file():
            once.setdefault(digest_of(path), (folder, path))
    if not once:
        return []
    runs, evaluations = zip(*once.values(), strict=True)
    return [Arm(BASE, BASE, runs, evaluations)]


def _over_common_problems(arms: Sequence[Arm]) -> list[Arm]:
    tables = [counts for arm in arms for counts in arm.counts]
    if not tables:
        return list(arms)
    common = [i for i in tables[0] if all(i in counts for counts in tables)]
    if not common:
        raise UsageError("the runs were measured on different problems and have none in common; report on them apart")
    return [replace(arm, counts=tuple({i: counts[i] for i in common} for counts in arm.counts)) for arm in arms]
