"""Verdicts per second and core on Spider's dev golds, beside the official way of running two queries, in one run.

    python benchmarks/verdicts.py --root ../shared/data/spider --workers 1

Both sides judge by BIRD's rule, the equality of the sets of rows, which costs next to nothing, so that what is compared
is the running of queries: a process pool that opens a fresh connection for each query, prediction and gold, and knows
no limits, as the official scripts do; and the verification pool, guards and limits included. A response is gold with
some more white space behind it, so that every one is another text and has to be run. One response a problem is what a
benchmark asks for, eight are what training asks for. Starting processes is not counted. `/s/worker` is by the clock,
`/cpu-s` by the processor time of the workers and of the process that feeds them, which a busy machine changes little.
Each figure is the median of `--repeats` runs with new processes, by turns.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import operator
import os
import sqlite3
import time
from pathlib import Path
from statistics import median

from elite_lightning.domains.sql import SqlDomain
from elite_lightning.types import Problem
from elite_lightning.verify import VerificationPool

Pair = tuple[str, str, str]
"""A database's name, the prediction, and gold."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="Spider's folder, with dev.json and database/")
    parser.add_argument("--workers", type=int, default=1, help="processes on each side")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side")
    return parser.parse_args()


def pairs_of(root: Path, responses: int) -> list[Pair]:
    items = json.loads((root / "dev.json").read_text())
    return [(item["db_id"], item["query"] + " " * n, item["query"]) for item in items for n in range(responses)]


def fresh_connections(task: tuple[str, str, str]) -> bool:
    path, *queries = task
    results = []
    for query in queries:
        connection = sqlite3.connect(path)
        try:
            results.append(set(connection.execute(query).fetchall()))
        except sqlite3.Error:
            return False
        finally:
            connection.close()
    return results[0] == results[1]


class Stopwatch:
    """Seconds on the clock, and of processor time in this process and its children that live all the while."""

    def __init__(self) -> None:
        self._clock, self._cpu = time.perf_counter(), self._used()

    def read(self) -> tuple[float, float]:
        """Both since the start."""
        return time.perf_counter() - self._clock, self._used() - self._cpu

    def _used(self) -> float:
        children = multiprocessing.active_children()
        stats = [Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split() for child in children]
        ticks = sum(int(stat[11]) + int(stat[12]) for stat in stats)
        return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def official(root: Path, pairs: list[Pair], workers: int) -> tuple[tuple[float, float], list[bool]]:
    """Time and verdicts of a process pool; a task a pair, as the script does it."""
    tasks = [(str(root / "database" / name / f"{name}.sqlite"), *rest) for name, *rest in pairs]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(fresh_connections, tasks[:1] * workers, chunksize=1)
        watch = Stopwatch()
        verdicts = [result.get() for result in [pool.apply_async(fresh_connections, (task,)) for task in tasks]]
        return watch.read(), verdicts


def ours(root: Path, pairs: list[Pair], workers: int) -> tuple[tuple[float, float], list[bool]]:
    """Time and verdicts of the verification pool."""
    items = [
        (Problem(str(index), "", {"database": name, "gold": gold}), sql)
        for index, (name, sql, gold) in enumerate(pairs)
    ]
    with VerificationPool(RawDomain(root / "database", rule="bird_ex"), workers) as pool:
        pool.judge_many([(Problem(f"first {n}", "", items[0][0].data), "SELECT 0") for n in range(2 * workers)])
        watch = Stopwatch()
        verdicts = [judgement.verdict.correct for judgement in pool.judge_many(items)]
        return watch.read(), verdicts


class RawDomain(SqlDomain):
    """Judges a response as it is, so that the white space behind it counts."""

    def extract(self, response: str) -> str:
        """The response itself."""
        return response


def main() -> None:
    given = arguments()
    print(f"{'responses':>9}  {'side':>8}  {'/s/worker':>9}  {'/cpu-s':>7}")
    for responses in (1, 8):
        pairs = pairs_of(given.root, responses)
        times: dict[str, list[tuple[float, float]]] = {"official": [], "ours": []}
        for _ in range(given.repeats):
            took, expected = official(given.root, pairs, given.workers)
            times["official"].append(took)
            took, found = ours(given.root, pairs, given.workers)
            times["ours"].append(took)
            if found != expected:
                raise SystemExit(f"the sides disagree on {sum(map(operator.ne, found, expected))} verdicts")
        rates = {side: rates_of(found, len(pairs), given.workers) for side, found in times.items()}
        for side, (by_clock, by_cpu) in rates.items():
            print(f"{responses:>9}  {side:>8}  {by_clock:>9.0f}  {by_cpu:>7.0f}")
        ratios = [own / theirs for own, theirs in zip(rates["ours"], rates["official"], strict=True)]
        print(f"{responses:>9}  {'ratio':>8}  {ratios[0]:>9.1f}  {ratios[1]:>7.1f}", flush=True)


def rates_of(times: list[tuple[float, float]], count: int, workers: int) -> tuple[float, float]:
    """Verdicts per second and worker, and per second of processor time."""
    return count / median(clock for clock, _ in times) / workers, count / median(cpu for _, cpu in times)


if __name__ == "__main__":
    main()
