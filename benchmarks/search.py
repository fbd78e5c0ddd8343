"""MAP-Elites beside plain sampling: the same frozen base model, problems and number of generations, in one run.

python benchmarks/search.py --problems 128 --attempts 64
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from datamodules.pocketsql.source import PocketSqlSource
from elite_lightning.policy import TokenCodec, load_model, load_tokenizer, model_fingerprint
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.search import IidSearch, MapElitesSearch, SearchSettings, side_by_side
from elite_lightning.types import Sampling
from elite_lightning.verify import VerificationPool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--attempts", type=int, default=64, help="generations a problem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="elite_lightning/assets/pocketsql_base")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    source = PocketSqlSource(train_problems=given.problems)
    model = load_model(given.model).eval()
    codec = TokenCodec(load_tokenizer(given.model))
    settings = SearchSettings(
        attempts_per_problem=given.attempts, sampling=Sampling(1.0, max_new_tokens=96), seed=given.seed
    )
    reports = {}
    with VerificationPool(source.domain) as pool, tempfile.TemporaryDirectory() as folder:
        for name, kind in {"MAP-Elites": MapElitesSearch, "IID": IidSearch}.items():
            started = time.perf_counter()
            engine, base = InProcessEngine(model, codec), model_fingerprint(model)
            search = kind(source.domain, engine, codec, pool, source.train(), Path(folder), base, settings)
            search.run()
            reports[name] = search.report()
            print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    print(side_by_side(reports))


if __name__ == "__main__":
    main()
