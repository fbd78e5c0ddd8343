"""The counts of a study as a table, `counts.csv`, from which every figure can be told again."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.evaluation import ProblemCounts
from elite_lightning.run_folder import write_atomically
from elite_lightning.study.counts import RunCounts, StudyCounts

COLUMNS = ("arm", "seed", "problem", "samples", "correct", "strategies", "evaluation")


def write_counts(path: Path, counts: StudyCounts) -> None:
    """Write the counts as CSV, a line for each arm, seed and problem.

    Args:
        path: The file. Its column `strategies` holds the number of correct samples of each strategy, most frequent
            first, with spaces between.
        counts: The counts.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for arm, runs in counts.arms.items():
        for seed, run in runs.items():
            for problem in counts.problems:
                of = run.problems[problem]
                table.writerow(
                    [arm, seed, problem, of.samples, of.correct, " ".join(map(str, of.strategies)), run.evaluation]
                )
    write_atomically(path, text.getvalue())


def read_study_counts(path: Path) -> StudyCounts:
    """Read what `write_counts` wrote; every figure follows from it.

    Args:
        path: The CSV file.

    Raises:
        UsageError: If it is no such file, or a line is broken; names the line.
    """
    runs: dict[tuple[str, int, str], dict[str, ProblemCounts]] = {}
    with path.open(newline="") as file:
        lines = csv.DictReader(file)
        if tuple(lines.fieldnames or ()) != COLUMNS:
            raise UsageError(f"{path}: not a study's counts, whose columns are {', '.join(COLUMNS)}")
        for line in lines:
            try:
                of_run = runs.setdefault((line["arm"], int(line["seed"]), line["evaluation"]), {})
                if line["problem"] in of_run:
                    raise ValueError(f"problem {line['problem']} is there twice")
                of_run[line["problem"]] = _counts_of(line)
            except (ValueError, TypeError, AttributeError) as error:
                raise UsageError(f"{path}, line {lines.line_num}: not a study's counts ({error})") from error
    arms: dict[str, dict[int, RunCounts]] = {arm: {} for arm, _, _ in runs}
    for (arm, seed, evaluation), problems in runs.items():
        if seed in arms[arm]:
            raise UsageError(f"{path}: arm {arm} has two evaluations of seed {seed}; keep one")
        arms[arm][seed] = RunCounts(evaluation, problems)
    return StudyCounts(arms)


def _counts_of(line: Mapping[str, Any]) -> ProblemCounts:
    strategies = tuple(map(int, line["strategies"].split()))
    counts = ProblemCounts(int(line["samples"]), int(line["correct"]), strategies)
    if not counts.samples >= counts.correct == sum(strategies) or min(strategies, default=1) < 1:
        raise ValueError(f"{counts.correct} correct of {counts.samples} samples do not fit strategies {strategies}")
    return counts
