"""Balanced draws: problems evenly, and within each problem its cells evenly, whatever the archive's shape."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.seeds import derive_seed


class BalancedSampler:
    """An endless stream of (problem, cell), balanced at any time and not only in the long run.

    Every pass goes through all problems once, in a fresh order. A problem's successive draws go through its cells in
    the same way, each pass over the cells in a fresh order. So at every moment the numbers of draws of any two
    problems differ by at most one, and so do those of any two cells of a problem.

    The stream is a pure function of the seed and of a counter: it is the same on every rank, and the counter is all
    there is to save.

    Args:
        cells: Problem to its number of occupied cells, at least one.
        seed: Decides the orders.

    Raises:
        UsageError: If there is no problem, or a problem without a cell.
    """

    def __init__(self, cells: Mapping[str, int], seed: int = 0) -> None:
        if not cells:
            raise UsageError("nothing to draw from: there is no problem with a cell")
        for problem_id, count in cells.items():
            if count < 1:
                raise UsageError(f"nothing to draw from problem {problem_id!r}: it has {count} cells")
        self.seed = seed
        self.drawn = 0
        self._cells = sorted(cells.items())
        self._digest = hashlib.sha256(json.dumps(self._cells).encode()).hexdigest()
        # The current pass over the problems, and each problem's current pass over its cells.
        self._problem_order: tuple[int, list[int]] = (-1, [])
        self._cell_orders: dict[str, tuple[int, list[int]]] = {}

    def draw(self) -> tuple[str, int]:
        """The next problem and the index of one of its cells, in the archive's order of cells."""
        return self.take(1)[0]

    def take(self, n: int, rank: int = 0, world_size: int = 1) -> list[tuple[str, int]]:
        """This rank's share of the next `n * world_size` draws.

        Ranks take turns, so that together they draw what one rank alone would draw, without overlap. Every rank has
        to ask for the same `n`.

        Args:
            n: Draws for this rank.
            rank: This rank's index.
            world_size: Number of ranks that share the stream.

        Returns:
            `n` pairs of problem and index of the cell.
        """
        start = self.drawn + rank
        self.drawn += n * world_size
        return [self._at(position) for position in range(start, start + n * world_size, world_size)]

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later: the counter, and what it counts."""
        return {"drawn": self.drawn, "seed": self.seed, "digest": self._digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler over the same archive stopped.

        Args:
            state: What `state_dict` returned.

        Raises:
            UsageError: If the state belongs to another archive or another seed.
        """
        if state["digest"] != self._digest:
            raise UsageError(
                "the saved position of the draws belongs to other problems or cells; resume with those of that run"
            )
        if state["seed"] != self.seed:
            raise UsageError(
                f"the saved position of the draws belongs to seed {state['seed']}, this run has {self.seed}"
            )
        self.drawn = int(state["drawn"])

    def _at(self, position: int) -> tuple[str, int]:
        """The draw at a position of the stream; a problem comes once a pass, so it came `passes` times before."""
        passes, turn = divmod(position, len(self._cells))
        if self._problem_order[0] != passes:
            self._problem_order = (passes, self._shuffled(len(self._cells), "problems", passes))
        problem_id, count = self._cells[self._problem_order[1][turn]]
        return problem_id, self._cell(problem_id, count, passes)

    def _cell(self, problem_id: str, count: int, earlier_draws: int) -> int:
        if count == 1:
            return 0
        passes, turn = divmod(earlier_draws, count)
        known = self._cell_orders.get(problem_id)
        if known is None or known[0] != passes:
            known = (passes, self._shuffled(count, "cells", problem_id, passes))
            self._cell_orders[problem_id] = known
        return known[1][turn]

    def _shuffled(self, size: int, *purpose: int | str) -> list[int]:
        order = list(range(size))
        random.Random(derive_seed(self.seed, *purpose)).shuffle(order)
        return order
