"""Whether a unit of work costs the same at 1, 4 and 16 times the work: search, sampling, verdicts, archive and update.

    python benchmarks/growth.py                      # all parts, about 6 minutes
    python benchmarks/growth.py --parts archive search_alone

Every line is one part with one thing that grows: the microseconds a unit takes at the smallest size, and what it takes
at the larger ones as multiples of that. Sizes take turns, and the medians of `--repeats` count. Below 1 is what a
larger batch saves; what must not happen is a figure far above 1. `search` samples with the bundled model;
`search_alone` has an engine that answers at once, so that nothing hides what the search itself costs.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from archive import attempts_of, insert

from datamodules.pocketsql.source import PocketSqlSource
from elite_lightning.archive import EliteArchive
from elite_lightning.batching import TokenRow, collate, micro_batches
from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.logprobs import response_logprobs
from elite_lightning.packing import plant, share_prompts
from elite_lightning.policy import TokenCodec, load_model, load_tokenizer
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.sampler import BalancedSampler
from elite_lightning.search import MapElitesSearch, SearchSettings
from elite_lightning.types import Completion, FinishReason, Sampling
from elite_lightning.verify import VerificationPool

BASE = "elite_lightning/assets/pocketsql_base"
FACTORS = (1, 4, 16)
# From a size, a function that does the work and returns how many units it was.
Part = Callable[[int], Callable[[], int]]


class Characters:
    """One token a character, and one for the end."""

    fingerprint = "characters"

    def encode_prompt(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def encode_response(self, text: str) -> list[int]:
        return [*self.encode_prompt(text), 0]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids)).rstrip("\0")


class Rewriter:
    """An engine that answers at once: one of some rewritings of the expression in the prompt, or a wrong one."""

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int, _sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        draws = random.Random(seed)
        return [[self._answer("".join(map(chr, prompt)), draws) for _ in range(n)] for prompt in prompts]

    def _answer(self, prompt: str, draws: random.Random) -> Completion:
        first, *terms = re.findall(r"\d+", prompt)[:4]
        draws.shuffle(terms)
        form = draws.choice(["{0}*({1}+{2}+{3})", "({1}+{2}+{3})*{0}", "{0}*{1}+{0}*({2}+{3})", "{1}*({0}+{2}+{3})"])
        ids = (*map(ord, form.format(first, *terms)), 0)
        return Completion(ids, (0.0,) * len(ids), FinishReason.STOP, "".join(map(chr, ids[:-1])))


def searching(domain: Any, engine: Any, codec: Any, problems: Sequence[Any], attempts: int, workers: int) -> int:
    settings = SearchSettings(attempts_per_problem=attempts, sampling=Sampling(1.0, 96), seed=0)
    with VerificationPool(domain, workers) as pool, tempfile.TemporaryDirectory() as folder:
        search = MapElitesSearch(domain, engine, codec, pool, problems, Path(folder), "", settings)
        search.run()
        return search.merged().attempts


def search_alone(size: int, attempts: int = 16) -> Callable[[], int]:
    problems = make_problems(size)
    return lambda: searching(ArithmeticDomain(), Rewriter(), Characters(), problems, attempts, workers=0)


def search(size: int, attempts: int = 16) -> Callable[[], int]:
    source, (model, codec) = PocketSqlSource(train_problems=size), policy()
    return lambda: searching(source.domain, InProcessEngine(model, codec), codec, source.train(), attempts, workers=1)


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
    source = PocketSqlSource(train_problems=size)
    pairs = [(problem, problem.data["gold"] + " " * (i + 1)) for problem in source.train() for i in range(4)]

    def run() -> int:
        with VerificationPool(source.domain, 1) as pool:
            return len(pool.judge_many(pairs))

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


def draws(size: int) -> Callable[[], int]:
    archive = insert(attempts_of(size, 32))
    sampler = BalancedSampler({problem: len(archive.elites(problem)) for problem in archive.problem_ids})
    return lambda: sum(len(sampler.take(16)) for _ in range(4 * size))


def update(size: int) -> Callable[[], int]:
    model, _ = policy()
    ids = torch.randint(5, 1024, (size, 160), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [TokenRow(row[:120], [*row[120:], i]) for row in ids for i in range(8)]

    def run() -> int:
        trees = [plant(rows, tree) for tree in share_prompts(rows, 2048)]
        for cut in micro_batches(trees, 2048):
            response_logprobs(model, collate([trees[i] for i in cut])).sum().backward()
        return sum(map(len, rows))

    return run


PARTS: dict[str, tuple[Part, int, str]] = {
    "search": (search, 64, "attempts, by problems"),
    "search_longer": (lambda size: search(64, size), 16, "attempts, by attempts a problem"),
    "search_alone": (search_alone, 256, "attempts, by problems"),
    "search_alone_longer": (lambda size: search_alone(256, size), 16, "attempts, by attempts a problem"),
    "sampling": (sampling, 32, "tokens, by prompts"),
    "sampling_wider": (lambda size: sampling(32, size), 8, "tokens, by samples of a prompt"),
    "verdicts": (verdicts, 64, "verdicts, by problems"),
    "archive_inserts": (inserts, 256, "attempts, by problems"),
    "archive_files": (filed, 128, "elites, by problems"),
    "archive_draws": (draws, 256, "draws, by problems"),
    "update": (update, 8, "tokens, by problems"),
}


def measure(part: Part, size: int, repeats: int) -> list[float]:
    """Seconds a unit at each factor, after one run of the smallest size to warm up."""
    runs = [part(size * factor) for factor in FACTORS]
    runs[0]()
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for run, seconds in zip(runs, found, strict=True):
            started = time.perf_counter()
            units = run()
            seconds.append((time.perf_counter() - started) / units)
    return [median(seconds) for seconds in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=[*PARTS], help="any of " + ", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"{'':22}{'us a unit':>11}" + "".join(f"{f'{factor}x':>8}" for factor in FACTORS[1:]) + "  unit")
    for name in [part for part in PARTS if any(part.startswith(prefix) for prefix in given.parts)]:
        part, size, unit = PARTS[name]
        seconds = measure(part, size, given.repeats)
        ratios = "".join(f"{value / seconds[0]:8.2f}" for value in seconds[1:])
        print(f"{name:22}{seconds[0] * 1e6:11.1f}{ratios}  {unit}", flush=True)


if __name__ == "__main__":
    main()
