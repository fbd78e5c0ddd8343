"""Inserts into the archive and draws from it, a second, beside pyribs' archive with the same cells, in one run.

    pip install -e .[bench] -c constraints.txt -c constraints-bench.txt
    python benchmarks/archive.py --problems 512 --attempts 32

Both sides file the same judged responses under problem, approach and structure, and keep the shorter one of two in a
cell. pyribs gets one `CategoricalArchive` with the problem as its first category, and is fed one by one, as a search
that reacts to every outcome does, and in batches of 512, as it likes best. It has to be told all structures in advance;
ours meets them as it goes. Draws are of 16, as for a training step: ours balanced over problems and then over their
cells, pyribs' uniform over elites. Ours also counts outcomes and keeps token ids, solution and whole cell; pyribs also
keeps statistics. Figures are medians of `--repeats` by processor time, and the sides take turns.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from elite_lightning.archive import EliteArchive
from elite_lightning.sampler import BalancedSampler
from elite_lightning.types import Cell, Judgement, Problem, Verdict

APPROACHES, STRUCTURES, BATCH, DRAWS = 4, 2, 512, 16
Attempt = tuple[Problem, str, Judgement]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=512)
    parser.add_argument("--attempts", type=int, default=32, help="correct responses to each problem")
    parser.add_argument("--draws", type=int, default=16000, help="in all")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def attempts_of(problems: int, attempts: int) -> list[Attempt]:
    draws = random.Random(0)

    def judged(text: str) -> Judgement:
        cell = Cell(f"approach {draws.randrange(APPROACHES)}", f"structure {draws.randrange(STRUCTURES)}")
        return Judgement(text, Verdict(True, 1.0), cell=cell)

    made = [Problem(f"p{i}", "", {}) for i in range(problems)]
    texts = ["x" * draws.randrange(20, 200) for _ in range(problems * attempts)]
    # As a search brings them: some samples of a problem, then some of the next.
    return [(made[i // 4 % problems], text, judged(text)) for i, text in enumerate(texts)]


def insert(attempts: list[Attempt]) -> EliteArchive:
    """All attempts, as a search hands them in."""
    known = {id(text): judgement for _, text, judgement in attempts}
    archive = EliteArchive(lambda _problem, text: known[id(text)], lambda text: range(len(text)), {})
    for problem, text, _ in attempts:
        archive.insert(problem, text)
    return archive


def draw(archive: EliteArchive, draws: int) -> None:
    """Elites to replay, as the data module takes them."""
    elites = {problem: archive.elites(problem) for problem in archive.problem_ids}
    sampler = BalancedSampler({problem: len(own) for problem, own in elites.items()})
    for _ in range(draws // DRAWS):
        [elites[problem][index] for problem, index in sampler.take(DRAWS)]


def ribs_archive(problems: int) -> Any:
    try:
        from ribs.archives import CategoricalArchive
    except ImportError:
        raise SystemExit("pyribs is not installed: pip install -e .[bench]") from None
    names = [f"approach {i}" for i in range(APPROACHES)], [f"structure {i}" for i in range(STRUCTURES)]
    categories = [[f"p{i}" for i in range(problems)], *names]
    return CategoricalArchive(solution_dim=(), categories=categories, solution_dtype=object)


def as_ribs(attempts: list[Attempt]) -> tuple[list[str], list[float], list[list[str]]]:
    cells = [
        [problem.id, judged.cell.approach, judged.cell.structure] for problem, _, judged in attempts if judged.cell
    ]
    return [text for _, text, _ in attempts], [-float(len(text)) for _, text, _ in attempts], cells


def timed(repeats: int, sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            started = time.process_time()
            run()
            seconds[name].append(time.process_time() - started)
    return {name: median(values) for name, values in seconds.items()}


def show(what: str, count: int, seconds: dict[str, float]) -> None:
    ours = next(iter(seconds.values()))
    for name, value in seconds.items():
        print(f"{what:8}{name:24}{count / value:12,.0f}{value / ours:14.2f}", flush=True)


def main() -> None:
    given = arguments()
    attempts = attempts_of(given.problems, given.attempts)
    texts, objectives, cells = as_ribs(attempts)

    def one_by_one() -> Any:
        archive = ribs_archive(given.problems)
        for text, objective, cell in zip(texts, objectives, cells, strict=True):
            archive.add_single(text, objective, cell)
        return archive

    def in_batches() -> Any:
        archive = ribs_archive(given.problems)
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            archive.add(texts[part], objectives[part], cells[part])
        return archive

    ours, theirs = insert(attempts), in_batches()
    lengths = sorted(len(elite.response) for problem in ours.problem_ids for elite in ours.elites(problem))
    for other in (theirs, one_by_one()):
        if lengths != sorted(-other.data("objective")):
            raise SystemExit(f"the sides keep different elites: {len(ours)} and {len(other)}")
    print(f"{given.problems} problems, {len(attempts)} attempts, {len(ours)} elites")
    print(f"{'':32}{'a second':>12}{'ours is x':>14}")
    sides = {"ours": lambda: insert(attempts), "pyribs, one by one": one_by_one, "pyribs, in batches": in_batches}
    show("inserts", len(attempts), timed(given.repeats, sides))
    rounds = given.draws // DRAWS
    drawing = {
        "ours": lambda: draw(ours, given.draws),
        "pyribs": lambda: [theirs.sample_elites(DRAWS) for _ in range(rounds)],
    }
    show("draws", rounds * DRAWS, timed(given.repeats, drawing))


if __name__ == "__main__":
    main()
