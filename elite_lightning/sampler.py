"""Balanced draws: groups evenly, and within each group its items evenly, whatever the archive's shape.

What a group is, its caller says: a problem with its cells, a cell with the problems that have it, or all in one.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.seeds import derive_seed


class BalancedSampler:
    """An endless stream of (group, item), balanced at any time and not only in the long run.

    Every pass goes through all groups once, in a fresh order. A group's successive draws go through its items in
    the same way, each pass over the items in a fresh order. So at every moment the numbers of draws of any two
    groups differ by at most one, and so do those of any two items of a group.

    The stream is a pure function of the seed and of a counter: it is the same on every rank, and the counter is all
    there is to save.

    Args:
        groups: Group to its number of items, at least one; such as problem to its number of occupied cells.
        seed: Decides the orders.
        made_from: What the groups stand for, where their names and sizes do not tell. A position that was saved with
            another one is refused.

    Raises:
        UsageError: If there is no group, or a group without an item.
    """

    def __init__(self, groups: Mapping[str, int], seed: int = 0, made_from: str = "") -> None:
        if not groups:
            raise UsageError("nothing to draw from: there is no problem or other group")
        for group, count in groups.items():
            if count < 1:
                raise UsageError(f"nothing to draw from {group!r}: it has {count} items")
        self.seed = seed
        self.drawn = 0
        self._groups = sorted(groups.items())
        content = json.dumps([made_from, self._groups] if made_from else self._groups)
        self._digest = hashlib.sha256(content.encode()).hexdigest()
        # The current pass over the groups, and each group's current pass over its items.
        self._group_order: tuple[int, list[int]] = (-1, [])
        self._item_orders: dict[str, tuple[int, list[int]]] = {}

    def draw(self) -> tuple[str, int]:
        """The next group and the index of one of its items."""
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
            `n` pairs of group and index of the item.
        """
        start = self.drawn + rank
        self.drawn += n * world_size
        return [self._at(position) for position in range(start, start + n * world_size, world_size)]

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on later: the counter, and what it counts."""
        return {"drawn": self.drawn, "seed": self.seed, "digest": self._digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another sampler over the same groups stopped.

        Args:
            state: What `state_dict` returned.

        Raises:
            UsageError: If the state belongs to other groups or another seed.
        """
        if state["digest"] != self._digest:
            raise UsageError(
                "the saved position of the draws belongs to other problems or cells, or to another balancing of them; "
                "resume with those of that run"
            )
        if state["seed"] != self.seed:
            raise UsageError(
                f"the saved position of the draws belongs to seed {state['seed']}, this run has {self.seed}"
            )
        self.drawn = int(state["drawn"])

    def _at(self, position: int) -> tuple[str, int]:
        """The draw at a position of the stream; a group comes once a pass, so it came `passes` times before."""
        passes, turn = divmod(position, len(self._groups))
        if self._group_order[0] != passes:
            # The words for the seed are those of the first release: another word would be another stream.
            self._group_order = (passes, self._shuffled(len(self._groups), "problems", passes))
        group, count = self._groups[self._group_order[1][turn]]
        return group, self._item(group, count, passes)

    def _item(self, group: str, count: int, earlier_draws: int) -> int:
        if count == 1:
            return 0
        passes, turn = divmod(earlier_draws, count)
        known = self._item_orders.get(group)
        if known is None or known[0] != passes:
            known = (passes, self._shuffled(count, "cells", group, passes))
            self._item_orders[group] = known
        return known[1][turn]

    def _shuffled(self, size: int, *purpose: int | str) -> list[int]:
        order = list(range(size))
        random.Random(derive_seed(self.seed, *purpose)).shuffle(order)
        return order
