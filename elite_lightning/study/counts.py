"""What a study measured, as counts by arm, seed and problem, read from the run folders."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elite_lightning.errors import UsageError
from elite_lightning.evaluation import ProblemCounts, read_counts
from elite_lightning.run_folder import RunFolder


@dataclass(frozen=True)
class RunCounts:
    """One evaluation of one run.

    Args:
        evaluation: Its file of samples, relative to the study's folder.
        problems: Counts by problem.
    """

    evaluation: str
    problems: Mapping[str, ProblemCounts]

    @property
    def run(self) -> str:
        """The run's folder, relative to the study's."""
        return str(Path(self.evaluation).parent.parent)


@dataclass(frozen=True)
class StudyCounts:
    """Everything that the figures of a study are computed from.

    Args:
        arms: Name of each arm to its runs by seed, in the order of the tables.

    Raises:
        UsageError: If an arm has no run, or a run was evaluated on other problems than the first.
    """

    arms: Mapping[str, Mapping[int, RunCounts]]

    def __post_init__(self) -> None:
        """Check that runs can be compared problem by problem."""
        empty = [arm for arm, runs in self.arms.items() if not runs]
        if empty or not self.arms:
            raise UsageError(f"a study needs a run in every arm: {empty[0] if empty else 'no arm'} has none")
        first, *others = (run for runs in self.arms.values() for run in runs.values())
        if not first.problems:
            raise UsageError(f"{first.evaluation} holds no sample: evaluate that run again")
        for run in others:
            differing = sorted(set(first.problems) ^ set(run.problems))
            if differing:
                raise UsageError(
                    f"{run.evaluation} is on other problems than {first.evaluation}: {len(differing)} are in one of "
                    f"them only, such as {differing[0]}; evaluate both on the same ones, or leave that run out"
                )

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems, in the order of every table."""
        return tuple(next(iter(next(iter(self.arms.values())).values())).problems)

    @property
    def largest_k(self) -> int:
        """Most samples that every run has of some problem."""
        runs = (run for runs in self.arms.values() for run in runs.values())
        return min(max(counts.samples for counts in run.problems.values()) for run in runs)

    def tables(self, arm: str, seeds: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts as arrays.

        Args:
            arm: Name of the arm.
            seeds: Seeds that it has, in the order wanted.

        Returns:
            Judged samples, `[seeds, problems]`, and correct samples of each strategy, `[seeds, problems, strategies]`,
            most frequent first and filled up with zeros.
        """
        rows = [[self.arms[arm][seed].problems[problem] for problem in self.problems] for seed in seeds]
        width = max(1, *(len(counts.strategies) for row in rows for counts in row))
        padded = [[counts.strategies + (0,) * (width - len(counts.strategies)) for counts in row] for row in rows]
        samples = [[counts.samples for counts in row] for row in rows]
        return np.array(samples, dtype=np.int64), np.array(padded, dtype=np.int64)


def collect(study_dir: str | Path, arms: Mapping[str, Sequence[Path]]) -> StudyCounts:
    """Read the last evaluation of every run.

    Args:
        study_dir: The study's folder; runs are named relative to it.
        arms: Name of each arm to its run folders, whose names end with `seed=<number>`. An arm that is not trained has
            `eval/step=0.jsonl` alone.

    Raises:
        UsageError: If a run has not ended or was not evaluated, two runs of an arm have one seed, or runs cannot be
            compared; names the run.
    """
    return StudyCounts({arm: _runs(Path(study_dir), arm, paths) for arm, paths in arms.items()})


def _runs(study_dir: Path, arm: str, paths: Iterable[Path]) -> dict[int, RunCounts]:
    runs: dict[int, RunCounts] = {}
    for path in paths:
        evaluation = last_evaluation(path)
        seed = seed_of(path)
        if seed in runs:
            raise UsageError(f"arm {arm} has two runs of seed {seed}, {runs[seed].run} and {path}: leave one out")
        inside = evaluation.is_relative_to(study_dir)
        name = evaluation.relative_to(study_dir) if inside else evaluation
        # Interpretations are told sample by sample and no figure here is made of them.
        problems = {problem: replace(counts, hits=()) for problem, counts in read_counts(evaluation).items()}
        runs[seed] = RunCounts(name.as_posix(), problems)
    by_trained = {run.evaluation.endswith("/step=0.jsonl"): run.run for run in runs.values()}
    if len(by_trained) == 2:
        raise UsageError(
            f"arm {arm}: {by_trained[True]} is evaluated before training only, {by_trained[False]} after it; "
            f"run the first one to its end, or leave it out"
        )
    return dict(sorted(runs.items()))


def seed_of(path: Path) -> int:
    """The seed in a run folder's name, such as 3 in `seed=3`.

    Raises:
        UsageError: If the name does not end with one.
    """
    found = re.search(r"seed=?(\d+)$", path.name)
    if found is None:
        raise UsageError(f"{path}: a run of a study lies in a folder whose name ends with seed=<number>; rename it")
    return int(found[1])


def last_evaluation(path: Path) -> Path:
    """The file of the test's samples that a run ended with, or the newest one if it trained nothing.

    Args:
        path: The run folder.

    Raises:
        UsageError: If training was begun and not ended, or there is no evaluation.
    """
    folder = RunFolder(path)
    if folder.summary.is_file():
        try:
            step = int(json.loads(folder.summary.read_text())["steps"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{folder.summary}: not a run's summary ({error}); run the run again") from error
        file = folder.samples("test", step)
    else:
        if any(folder.checkpoints.glob("*.ckpt")):
            raise UsageError(f"{path}: this run has not ended, it has no summary.json; run it to its end")
        steps = [
            int(found[1]) for p in path.glob("eval/step=*.jsonl") if (found := re.fullmatch(r"step=(\d+)", p.stem))
        ]
        file = folder.samples("test", max(steps, default=0))
    if not file.is_file():
        raise UsageError(f"{path}: {file.name} is missing in eval/; evaluate this run, or leave it out")
    return file
