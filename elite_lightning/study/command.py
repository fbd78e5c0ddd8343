"""The command `python train.py study --config FILE`: search once, run all arms and seeds, show what came out."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser
from rich.console import Console

from elite_lightning.errors import UsageError
from elite_lightning.run_folder import RunFolder
from elite_lightning.study.plan import Arm, SharedSearch, StudyPlan
from elite_lightning.study.runner import Runner, runs_of, searches_of


def main(args: Sequence[str], entry: Path) -> int:
    """Run the command.

    Args:
        args: Its arguments, without `study`.
        entry: `train.py`, which runs each search and each arm.

    Returns:
        The exit code: 0, or 2 after a user's error or when a run failed, which is one line on stderr.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that the runs are ended too
        signal.signal(number, _end)
    try:
        plan = _parse(args)
        folder = RunFolder(plan.study_dir)
        folder.require_usable()
        folder.lock()
        try:
            run(plan, entry)
        finally:
            folder.release()
    except (UsageError, ArgumentError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _say("Stopped. The same command goes on from where this one got to.")
        return 128 + signal.SIGINT
    return 0


def run(plan: StudyPlan, entry: Path) -> None:
    """Do what is left of a study, and show its results.

    Args:
        plan: The study.
        entry: `train.py`.

    Raises:
        UsageError: If a search or a run failed.
    """
    searches, runs = searches_of(plan), runs_of(plan)
    runner = Runner(entry, plan.parallel, _say)
    runner.run(searches)
    runner.run(runs)
    from elite_lightning.study.outcome import conclude, show_results  # draws, so it is heavy

    show_results(plan, conclude(plan))


def _parse(args: Sequence[str]) -> StudyPlan:
    parser = ArgumentParser(prog="train.py study", description=__doc__, exit_on_error=False)
    parser.add_argument("--config", action="config", help="File of the study, such as configs/study/quickstart.yaml.")
    parser.add_class_arguments(StudyPlan, None)
    given: dict[str, Any] = parser.parse_args(list(args)).as_dict()
    # By hand: the parser would make objects of every class_path in an override, and they are for the runs to make.
    given["arms"] = {name: Arm(**arm) for name, arm in given["arms"].items()}
    given["searches"] = {name: SharedSearch(**search) for name, search in (given["searches"] or {}).items()}
    return StudyPlan(**{name: value for name, value in given.items() if name != "config"})


def _end(number: int, frame: Any) -> None:  # noqa: ARG001 - the signature of a signal handler
    raise SystemExit(128 + number)


def _say(line: str) -> None:
    Console().print(line, highlight=False, soft_wrap=True, markup=False)
