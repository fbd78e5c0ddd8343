"""Whether a unit of work costs the same at 1, 4 and 16 times the work: search, sampling, verdicts, archive and update.

    python benchmarks/growth.py                      # all parts, about 7 minutes
    python benchmarks/growth.py --parts archive search_alone

Every line is one part with one thing that grows: the microseconds a unit takes at the smallest size, what it takes at
the larger ones as multiples of that, and the worst of these. Below 1 is what a larger batch saves; what must not happen
is a figure far above 1. Sizes take turns, and the medians of `--repeats` count: of processor time, which a busy machine
changes little, or, where worker processes take part, of time by the clock. The smallest size is one at which what is
paid once weighs little.

What grows without more operations is memory's distance: a draw of any of 130,000 elites touches some twenty objects
that no cache of a core holds any more. `tests/test_growth.py` counts operations instead of timing them.

`search` samples with the bundled model; `search_alone` has an engine that answers at once, so that nothing hides what
the search itself costs. `archive_draws` are replay items, prompts included, as training takes them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from archive import attempts_of, insert
from instant_engine import Characters, Rewriter

from datamodules.elite import EliteStream
from datamodules.pocketsql.source import PocketSqlSource
from elite_lightning.archive import EliteArchive, FrozenArchive
from elite_lightning.batching import TokenRow, collate, micro_batches
from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.logprobs import response_logprobs
from elite_lightning.packing import plant, share_prompts
from elite_lightning.policy import TokenCodec, load_model, load_tokenizer
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.search import MapElitesSearch, SearchSettings
from elite_lightning.types import Cell, Elite, Sampling
from elite_lightning.verify import VerificationPool

BASE = "elite_lightning/assets/pocketsql_base"
FACTORS = (1, 4, 16)
NUMBERS = count()
OPEN = ExitStack()
"""Worker processes that live until the end: starting them is not measured."""


class Part(NamedTuple):
    """What is measured.

    Args:
        prepare: From a size, a function that does the work and returns how many units it was.
        size: The smallest size.
        unit: What is counted, and what grows.
        clock: `time.perf_counter` where worker processes take part.
    """

    prepare: Callable[[int], Callable[[], int]]
    size: int
    unit: str
    clock: Callable[[], float] = time.process_time


def searching(pool: VerificationPool, engine: Any, codec: Any, problems: Sequence[Any], attempts: int) -> int:
    # Another seed each time, or the pool would answer from its memory.
    settings = SearchSettings(attempts_per_problem=attempts, sampling=Sampling(1.0, 96), seed=next(NUMBERS))
    with tempfile.TemporaryDirectory() as name:
        folder, domain = Path(name), pool.domain
        search = MapElitesSearch(
            domain, engine, codec, pool, problems, folder, "", settings, on_progress=lambda _: None
        )
        search.run()
        return search.merged().attempts


def search_alone(size: int, attempts: int = 16) -> Callable[[], int]:
    problems = make_problems(size)

    def run() -> int:
        with VerificationPool(ArithmeticDomain(), workers=0) as pool:
            return searching(pool, Rewriter(), Characters(), problems, attempts)

    return run


def search(size: int, attempts: int = 16) -> Callable[[], int]:
    source, (model, codec), pool = PocketSqlSource(train_problems=size), policy(), sql_pool()
    return lambda: searching(pool, InProcessEngine(model, codec), codec, source.train(), attempts)


@cache
def sql_pool() -> VerificationPool:
    """A pool whose worker has started."""
    source = PocketSqlSource(train_problems=1)
    pool = OPEN.enter_context(VerificationPool(source.domain, 1))
    pool.judge_many([(problem, problem.data["gold"]) for problem in source.train()])
    return pool


def policy() -> tuple[Any, TokenCodec]:
    return load_model(BASE).eval(), TokenCodec(load_tokenizer(BASE))


def sampling(size: int, samples: int = 8) -> Callable[[], int]:
    source, (model, codec) = PocketSqlSource(train_problems=size), policy()
    prompts = [codec.encode_prompt(source.domain.prompt(problem)) for problem in source.train()]
    engine = InProcessEngine(model, codec, max_rows=512)

    def run() -> int:
        groups = engine.generate(prompts, samples, Sampling(1.0, 96), seed=0)
        return sum(len(completion.token_ids) for group in groups for completion in group)

    return run


def verdicts(size: int) -> Callable[[], int]:
    problems, pool = PocketSqlSource(train_problems=size).train(), sql_pool()

    def run() -> int:
        before, number = pool.executed, next(NUMBERS)
        # Other ids each time, or the pool would answer from its memory.
        fresh = [replace(problem, id=f"{problem.id} {number} {i}") for problem in problems for i in range(16)]
        pool.judge_many([(problem, problem.data["gold"]) for problem in fresh])
        return pool.executed - before

    return run


def inserts(size: int) -> Callable[[], int]:
    attempts = attempts_of(size, 32)
    return lambda: insert(attempts).attempts


def filed(size: int) -> Callable[[], int]:
    archive = insert(attempts_of(size, 32))

    def run() -> int:
        with tempfile.TemporaryDirectory() as folder:
            archive.save(Path(folder) / "archive.jsonl")
            return len(EliteArchive.load(Path(folder) / "archive.jsonl", {}))

    return run


def draws(size: int, each: int = 8) -> Callable[[], int]:
    problems = {problem.id: problem for problem in make_problems(size)}
    elites = [Elite(i, Cell(f"approach {n}", ""), "x" * 60, "", (1,) * 60) for i in problems for n in range(each)]
    stream = EliteStream(FrozenArchive(elites, {}, 0), problems, ArithmeticDomain(), seed=0)
    return lambda: sum(len(stream.take(16)) for _ in range(size * each // 16))


def update(size: int, samples: int = 8) -> Callable[[], int]:
    model, _ = policy()
    ids = torch.randint(5, 1024, (size, 120 + 40 * samples), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [TokenRow(row[:120], row[start : start + 40]) for row in ids for start in range(120, len(row), 40)]

    def run() -> int:
        trees = [plant(rows, tree) for tree in share_prompts(rows, 2048)]
        for cut in micro_batches(trees, 2048):
            response_logprobs(model, collate([trees[i] for i in cut])).sum().backward()
        return sum(map(len, rows))

    return run


PARTS = {
    "search": Part(search, 16, "attempts, by problems", time.perf_counter),
    "search_longer": Part(lambda size: search(16, size), 16, "attempts, by attempts a problem", time.perf_counter),
    "search_alone": Part(search_alone, 256, "attempts, by problems"),
    "search_alone_longer": Part(lambda size: search_alone(128, size), 16, "attempts, by attempts a problem"),
    "sampling": Part(sampling, 16, "tokens, by prompts"),
    "sampling_wider": Part(lambda size: sampling(16, size), 8, "tokens, by samples of a prompt"),
    "verdicts": Part(verdicts, 64, "verdicts, by problems", time.perf_counter),
    "archive_inserts": Part(inserts, 1024, "attempts, by problems"),
    "archive_files": Part(filed, 128, "elites, by problems"),
    "archive_draws": Part(draws, 1024, "draws, by problems"),
    "archive_draws_deeper": Part(lambda size: draws(1024, size), 4, "draws, by elites of a problem"),
    "update": Part(update, 4, "tokens, by problems"),
    "update_wider": Part(lambda size: update(4, size), 8, "tokens, by responses of a problem"),
}


def measure(part: Part, repeats: int) -> list[float]:
    """Seconds a unit at each factor, after one run of the smallest size to warm up."""
    runs = [part.prepare(part.size * factor) for factor in FACTORS]
    runs[0]()
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, seconds in zip(runs, found, strict=True):
            started = part.clock()
            units = run()
            seconds.append((part.clock() - started) / units)
    return [median(seconds) for seconds in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=[*PARTS], help="any of " + ", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{'':22}{'us a unit':>10}" + "".join(f"{f'{factor}x':>7}" for factor in FACTORS[1:]) + "  worst  unit")
    with OPEN:
        for name, part in PARTS.items():
            if not any(name.startswith(prefix) for prefix in given.parts):
                continue
            first, *others = measure(part, given.repeats)
            ratios = [value / first for value in others]
            shown = "".join(f"{ratio:7.2f}" for ratio in [*ratios, max(1.0, *ratios)])
            print(f"{name:22}{first * 1e6:10.1f}{shown}  {part.unit}", flush=True)


if __name__ == "__main__":
    main()
