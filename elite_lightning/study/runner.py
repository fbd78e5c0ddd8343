"""Runs a study's searches and arms as ordinary commands, several at once, and whatever is finished not again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from elite_lightning.archive_file import manifest_path
from elite_lightning.errors import UsageError
from elite_lightning.run_folder import RunFolder, differing_keys, flatten, load_yaml, write_atomically
from elite_lightning.study.plan import StudyPlan
from elite_lightning.study.shared_search import check_origin, hand_over


@dataclass(frozen=True)
class Job:
    """One command of a study.

    Args:
        name: For people.
        arguments: Of `train.py`.
        folder: Run folder; the log lies in it.
        done: The file that says that it is finished.
        start_from: Run folder of the shared search that it begins with, or None.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path
    done: Path
    start_from: Path | None = None


def searches_of(plan: StudyPlan) -> list[Job]:
    """The shared searches; writes their configurations."""
    jobs = []
    at_once = min(plan.parallel, len(plan.used_searches()))
    for name in plan.used_searches():
        folder = plan.search_dir(name)
        config = _write_config(folder / "study.yaml", plan.search_config(name), f"search {name!r}")
        arguments = ("search", "--config", str(config), "--run_dir", str(folder))
        seeded = (*arguments, "--seed_everything", str(plan.search_seed), *_threads(plan.search_config(name), at_once))
        jobs.append(Job(f"search {name}", seeded, folder, manifest_path(RunFolder(folder).archive)))
    return jobs


def runs_of(plan: StudyPlan) -> list[Job]:
    """The runs of all arms, seed by seed, so that a stopped study has whole seeds; writes their configurations."""
    configs = {
        name: _write_config(plan.study_dir / name / "arm.yaml", plan.arm_config(name), f"arm {name!r}")
        for name in plan.arms
    }
    return [_run(plan, name, seed, configs[name]) for seed in plan.seeds for name in plan.arms]


def _run(plan: StudyPlan, name: str, seed: int, config: Path) -> Job:
    arm, folder = plan.arms[name], plan.run_dir(name, seed)
    command = "fit" if arm.trained else "test"
    done = RunFolder(folder).summary if arm.trained else RunFolder(folder).samples("test", 0)
    where = (command, "--config", str(config), "--run_dir", str(folder))
    arguments = (*where, "--seed_everything", str(seed), *_threads(plan.arm_config(name), plan.parallel))
    shared = None if arm.search is None else plan.search_dir(arm.search)
    if shared is not None:
        check_origin(shared, folder)
    return Job(f"{name} seed={seed}", arguments, folder, done, shared)


def _threads(config: dict[str, Any], at_once: int) -> tuple[str, ...]:
    """Each run's share of the cores, if that is less than it would take: threads that wait for a core spin."""
    share = max(1, len(os.sched_getaffinity(0)) // at_once)
    configured = config.get("torch_threads")
    return ("--torch_threads", str(min(configured or share, share))) if at_once > 1 else ()


def _write_config(path: Path, config: dict[str, Any], whose: str) -> Path:
    """Write a configuration, unless runs of another one lie there.

    Raises:
        UsageError: If they do.
    """
    if path.is_file():
        there, here = flatten(load_yaml(path.read_text()) or {}), flatten(config)
        differing = differing_keys(there, here)
        if differing and any(path.parent.glob("**/config.yaml")):
            key = differing[0]
            raise UsageError(
                f"{whose} was run with another {key} ({there.get(key)!r} there, {here.get(key)!r} here): "
                f"take another name, another study_dir, or move {path.parent} away"
            )
    write_atomically(path, yaml.safe_dump(config, sort_keys=False))  # type: ignore[no-untyped-call]
    return path


class Runner:
    """Runs jobs as processes of their own, each with a log in its folder.

    Args:
        entry: The script that is run: `train.py`.
        parallel: Jobs at once.
        say: Shows a line.
    """

    def __init__(self, entry: Path, parallel: int, say: Callable[[str], None]) -> None:
        self._entry, self._parallel, self._say = entry, parallel, say
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all that is not finished; one that fails does not keep the others from running.

        Args:
            jobs: In order of their beginning.

        Raises:
            UsageError: If some failed; names the first and its log.
        """
        left = [job for job in jobs if not job.done.is_file()]
        with ThreadPoolExecutor(self._parallel) as executor:
            try:
                outcomes = list(executor.map(self._do, left, range(1, len(left) + 1), [len(left)] * len(left)))
            except BaseException:
                self._stop()
                raise
        failures = [outcome for outcome in outcomes if outcome is not None]
        if failures:
            raise UsageError(
                f"{len(failures)} of {len(jobs)} failed; the same command tries again. First: {failures[0]}"
            )

    def _do(self, job: Job, number: int, jobs: int) -> str | None:
        """Run one job; returns how it failed, or None."""
        if self._stopped:
            return None
        job.folder.mkdir(parents=True, exist_ok=True)
        if job.start_from is not None:
            hand_over(job.start_from, job.folder)
        started = time.perf_counter()
        self._say(f"[{number}/{jobs}] {job.name}: begun")
        log = job.folder / "log.txt"
        code = self._wait(job, log)
        seconds = time.perf_counter() - started
        if self._stopped:
            return None
        if code == 0 and job.done.is_file():
            self._say(f"[{number}/{jobs}] {job.name}: finished after {seconds:.0f} s")
            return None
        self._say(f"[{number}/{jobs}] {job.name}: FAILED with exit code {code}: {_last_line(log)}")
        return f"{job.name} ({_last_line(log)}; log: {log})"

    def _wait(self, job: Job, log: Path) -> int:
        with log.open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, str(self._entry), *job.arguments], stdout=out, stderr=subprocess.STDOUT
            )
            with self._lock:
                self._processes.add(process)
            if self._stopped:
                process.terminate()
            try:
                return process.wait()
            finally:
                with self._lock:
                    self._processes.discard(process)

    def _stop(self) -> None:
        """End all that runs; each goes on from its last checkpoint next time."""
        self._stopped = True
        with self._lock:
            for process in self._processes:
                process.terminate()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
