"""MAP-Elites over problems: seed samples, then targets at what is uncovered, from parents of other approaches.

Source: EliteReplay, arXiv 2610.22290, after MAP-Elites (Mouret & Clune 2015, arXiv 1504.04909).
"""

from __future__ import annotations

import random

from elite_lightning.search.base import ArchiveSearch
from elite_lightning.search.state import Request, SearchState
from elite_lightning.search.targets import choose_parent, choose_target, turn_order
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Problem


class MapElitesSearch(ArchiveSearch):
    """Aims at approaches that are uncovered, first at those that are likely to succeed and were tried least.

    Rounds begin with plain seed samples of each problem. Every later round serves the problems with the least coverage
    and the fewest attempts, and gives each one target and, mostly, a parent of another approach. A problem without
    any elite gets plain prompts, so that aiming leaves no more problems unsolved than plain sampling does.
    Which approach was asked for decides nothing afterwards: a solution is filed under what it is.

    Targets are approaches whatever tells the cells apart (`settings.cells`), since there is no way to ask for a
    structure. With cells by structure alone, another approach is the way to another structure: what counts as covered
    is every approach that a correct attempt had, also one whose structure a shorter answer of another approach has
    taken since, and parents are of another approach as ever. Whose turn it is goes by the occupied cells.
    """

    method = "map_elites"
    journal_stem = "search"

    def turn(self, problem: Problem, state: SearchState) -> int:
        """Few attempts and few occupied cells first."""
        return turn_order(state.progress[problem.id], self.settings)

    def request(self, problem: Problem, round_: int, state: SearchState) -> Request:
        """A target and mostly a parent; the plain prompt while the problem has no elite (see `plain_every`)."""
        elites = state.archive.elites(problem.id)
        progress = state.progress[problem.id]
        if not elites and progress.turns % self.settings.plain_every == 0:
            return Request(problem)
        rng = random.Random(derive_seed(self.settings.seed or 0, "target", problem.id, round_))
        covered = progress.covered
        target = choose_target(state.targets, covered, progress, state.rates, self.settings, rng)
        shows_parent = rng.random() < self.settings.parent_probability
        return Request(problem, target, choose_parent(elites, target, rng) if shows_parent else None, covered)
