"""How often the intervals of a study hold the truth, on simulated studies whose truth is known.

    python benchmarks/interval_coverage.py

A figure of a seed and a problem is a mean, plus what the seed shifts all problems by, plus what is the problem's own,
plus a rest; all three normal. The default spreads are about those of strategies@128 on the bundled benchmark.
"""

from __future__ import annotations

import argparse

import numpy as np

from elite_lightning.study.resampling import Bootstrap

TRUTH = 0.0


def held(studies: int, seeds: int, problems: int, spreads: tuple[float, float, float], resamples: int) -> list[float]:
    """Share of simulated studies whose interval over problems, and over problems and seeds, holds the truth."""
    draws = np.random.default_rng(0)
    of_seed, of_problem, of_rest = spreads
    hits = np.zeros(2)
    bootstrap = Bootstrap(resamples=resamples)
    for _ in range(studies):
        table = (
            TRUTH
            + draws.normal(0, of_seed, (seeds, 1))
            + draws.normal(0, of_problem, (1, problems))
            + draws.normal(0, of_rest, (seeds, problems))
        )
        figure = bootstrap.figure(table)
        hits += [figure.low <= TRUTH <= figure.high, figure.low_with_seeds <= TRUTH <= figure.high_with_seeds]
    return [float(share) for share in hits / studies]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5, 10])
    parser.add_argument("--problems", type=int, default=96)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--spreads", type=float, nargs=3, default=(0.1, 1.0, 0.6), metavar=("SEED", "PROBLEM", "REST"))
    given = parser.parse_args()
    print("| seeds | 95 % over problems | 95 % over problems and seeds |\n|---|---|---|")
    for seeds in given.seeds:
        over_problems, over_both = held(given.studies, seeds, given.problems, tuple(given.spreads), given.resamples)
        print(f"| {seeds} | {over_problems:.1%} | {over_both:.1%} |")


if __name__ == "__main__":
    main()
