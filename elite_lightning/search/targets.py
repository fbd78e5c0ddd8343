"""Which approach to ask for next, which parent to show, and whose turn it is. Rules and counts, no generation."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from elite_lightning.search.settings import SearchSettings
from elite_lightning.types import Elite


@dataclass
class Progress:
    """What was spent on one problem, and which approaches it brought about.

    Args:
        attempts: All attempts.
        turns: Rounds after the seed samples that served it.
        asked: Rounds that asked for each approach.
        cells: Occupied cells of the archive.
        found: Approaches of the correct attempts. Where cells are told apart by the approach, each has an elite.
    """

    attempts: int = 0
    turns: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    cells: int = 0
    found: set[str] = field(default_factory=set)

    @property
    def covered(self) -> tuple[str, ...]:
        """The approaches that need no more asking for as long as others are left, sorted."""
        return tuple(sorted(self.found))


class SuccessRates:
    """How often asking for an approach brings it about, over all problems that have a given approach covered.

    Which approaches fit a problem depends on the problem, and what is covered already tells: where `NOT IN` solves a
    problem, so does `NOT EXISTS`. Hence the counts are kept by pairs of a covered approach and a target.
    """

    def __init__(self) -> None:
        self._attempts: Counter[tuple[str | None, str]] = Counter()
        self._hits: Counter[tuple[str | None, str]] = Counter()

    def record(self, covered: Iterable[str], target: str, hit: bool) -> None:
        """Count one attempt.

        Args:
            covered: Approaches that were covered when it was asked for.
            target: The approach that was asked for.
            hit: Whether a correct solution of that approach came back.
        """
        for pair in _pairs(covered, target):
            self._attempts[pair] += 1
            self._hits[pair] += hit

    def rate(self, covered: Iterable[str], target: str) -> float:
        """Chance that one attempt brings about `target`, with Laplace's rule: 1/2 as long as nothing is known.

        Args:
            covered: Approaches that the problem has covered; their counts are added up.
            target: The approach to ask for.
        """
        pairs = _pairs(covered, target)
        return (1 + sum(self._hits[p] for p in pairs)) / (2 + sum(self._attempts[p] for p in pairs))


def _pairs(covered: Iterable[str], target: str) -> list[tuple[str | None, str]]:
    return [(approach, target) for approach in covered] or [(None, target)]


def choose_target(
    approaches: Sequence[str],
    covered: Sequence[str],
    progress: Progress,
    rates: SuccessRates,
    settings: SearchSettings,
    rng: random.Random,
) -> str:
    """The approach to ask for: an uncovered one first, then the covered one that was asked for least.

    The uncovered ones are ordered by their chance of success. A chance is divided by 1 + the rounds that asked in
    vain, so that with equal rates the least tried comes first. Those below `min_success_rate` are as good as
    impossible here and come last. Ties are broken by lot.

    Args:
        approaches: The domain's vocabulary.
        covered: Approaches of the problem's correct attempts.
        progress: What was spent on the problem.
        rates: What is known from all problems.
        settings: `use_success_rates` and `min_success_rate`.
        rng: Draws the lots.
    """

    def order(approach: str) -> tuple[int, float, float]:
        tried = progress.asked[approach]
        if approach in covered:
            return (1, tried, rng.random())
        if not settings.use_success_rates:
            return (0, tried, rng.random())
        chance = rates.rate(covered, approach) / (1 + tried)
        return (0 if chance >= settings.min_success_rate else 2, -chance, rng.random())

    return min(approaches, key=order)


def choose_parent(elites: Sequence[Elite], target: str, rng: random.Random) -> Elite | None:
    """The elite to start from: any of another approach than the target, else any; None if there are none."""
    others = [elite for elite in elites if elite.cell.approach != target]
    return rng.choice(others or elites) if elites else None


def turn_order(progress: Progress, settings: SearchSettings) -> int:
    """Problems with the smallest value are served first: those with few attempts and few occupied cells.

    An occupied cell weighs as much as a round of attempts. So a problem in which nothing is found gets more than its
    share, but not all of it for ever.

    Args:
        progress: What was spent on the problem, and what came of it.
        settings: `samples_per_target`.
    """
    return progress.attempts + settings.samples_per_target * progress.cells
