"""EliteReplay beside GRPO on the bundled benchmark: runs both quickstarts over seeds and prints the README's table.

    python benchmarks/quickstart_arms.py --seeds 0 1 2 --parallel 2

Runs that are finished are not run again; each seed has a search of its own. Every figure is a mean over test problems
and seeds; intervals are 95 % bootstrap intervals over problems of the means over seeds; `seeds` is the
standard deviation between seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from elite_lightning.evaluation import ProblemCounts, per_problem, read_counts
from elite_lightning.metrics import bootstrap_interval
from elite_lightning.picture import draw_over_k

ARMS = {"GRPO": "configs/quickstart_grpo.yaml", "EliteReplay": "configs/quickstart.yaml"}
KS = (1, 8, 32, 128)
NAMES = [*(f"pass@{k}" for k in KS), "strategies@128"]


def folder(root: Path, arm: str, seed: int) -> Path:
    return root / f"{arm.lower()}-seed{seed}"


def run(root: Path, arm: str, seed: int, options: list[str]) -> None:
    target = folder(root, arm, seed)
    command = [sys.executable, "train.py", "fit", "--config", ARMS[arm], "--run_dir", str(target)]
    target.mkdir(parents=True, exist_ok=True)
    with (target / "log.txt").open("a") as log:
        subprocess.run(
            [*command, "--seed_everything", str(seed), *options], stdout=log, stderr=subprocess.STDOUT, check=True
        )


def counts_of(root: Path, arm: str, seed: int, step: int | None) -> dict[str, ProblemCounts]:
    """Counts by problem of one run; `step` None is the trained policy."""
    run_folder = folder(root, arm, seed)
    last = json.loads((run_folder / "summary.json").read_text())["steps"]
    return read_counts(run_folder / "eval" / f"step={last if step is None else step}.jsonl")


def figures(root: Path, arm: str, seeds: list[int], step: int | None) -> dict[str, np.ndarray]:
    """Metric to `[seeds, problems]`; `step` None is the trained policy."""
    counts = [counts_of(root, arm, seed, step) for seed in seeds]
    if len({tuple(of_seed) for of_seed in counts}) != 1:
        raise ValueError(f"the runs of {arm} in {root} were evaluated on different problems; run them again elsewhere")
    rows = [per_problem(of_seed, KS) for of_seed in counts]
    return {name: np.stack([row[name] for row in rows]) for name in NAMES}


def cell(table: np.ndarray) -> str:
    # A problem of which the verifier could not judge every sample has no figure.
    table = table[:, ~np.isnan(table).any(axis=0)]
    means = table.mean(axis=1)
    low, high = bootstrap_interval(table.mean(axis=0))
    spread = means.std(ddof=1) if len(means) > 1 else float("nan")
    return f"{means.mean():.3f} [{low:.3f}, {high:.3f}], seeds {spread:.3f}"


def ratio_interval(above: np.ndarray, below: np.ndarray, resamples: int = 2000) -> tuple[float, float, float]:
    """Ratio of two means over problems with its paired bootstrap interval."""
    above, below = above.mean(axis=0), below.mean(axis=0)
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(above), size=(resamples, len(above)))
    ratios = above[drawn].mean(axis=1) / below[drawn].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(above.mean() / below.mean()), float(low), float(high)


def report(root: Path, seeds: list[int]) -> None:
    arms = {"base": figures(root, "GRPO", seeds, 0)} | {arm: figures(root, arm, seeds, None) for arm in ARMS}
    print(f"| metric | {' | '.join(arms)} | EliteReplay - GRPO |\n|---|{'---|' * (len(arms) + 1)}")
    for name in NAMES:
        difference = arms["EliteReplay"][name] - arms["GRPO"][name]
        print(f"| {name} | {' | '.join(cell(arms[arm][name]) for arm in arms)} | {cell(difference)} |")
    ratio = ratio_interval(arms["EliteReplay"]["strategies@128"], arms["GRPO"]["strategies@128"])
    print("\nstrategies@128, EliteReplay over GRPO: {:.2f} [{:.2f}, {:.2f}]".format(*ratio))
    picture = root / "over_k.png"
    runs = {"base": [counts_of(root, "GRPO", seed, 0) for seed in seeds]}
    runs |= {arm: [counts_of(root, arm, seed, None) for seed in seeds] for arm in ARMS}
    draw_over_k(runs, picture, f"test problems, means over seeds {', '.join(map(str, seeds))}")
    print(f"picture: {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=1, help="runs at once; each uses about one core and a half")
    parser.add_argument("--root", type=Path, default=Path("runs/arms"))
    parser.add_argument("options", nargs="*", help="further options of every run, after --")
    given = parser.parse_args()
    jobs = [(given.root, arm, seed, given.options) for seed in given.seeds for arm in ARMS]
    with ThreadPoolExecutor(given.parallel) as executor:
        list(executor.map(lambda job: run(*job), jobs))
    report(given.root, given.seeds)


if __name__ == "__main__":
    main()
