"""Where a batch's rows keep their keys and values: the seam between the rows and the cache that the model sees."""

from __future__ import annotations

from typing import Protocol

import torch
from transformers.cache_utils import Cache

from elite_lightning.rollout.cache import SlotCache

Prefilled = tuple[SlotCache, int]
"""A cache of prompts, all but the last token of each, and the row in it."""


class RowMemory(Protocol):
    """Keys and values of the rows in slots `0 .. size - 1`."""

    @property
    def cache(self) -> Cache:
        """What the model reads and writes."""

    def admit(self, rows: slice, length: int, prefilled: Prefilled | None) -> None:
        """Give rows the keys of a prompt of `length` tokens but for its last; None for a prompt of one token."""

    def advance(self, size: int, written: torch.Tensor, alive: torch.Tensor, /) -> torch.Tensor | None:
        """Make room for one more token of each row.

        Args:
            size: Rows in use.
            written: `[slots]` int64, tokens that each row has.
            alive: `[slots]` bool, rows that have not ended.

        Returns:
            The attention mask that the model is to be given, `[size, columns so far]` bool, or None.
        """

    def keep(self, alive: torch.Tensor) -> torch.Tensor:
        """Take ended rows out.

        Args:
            alive: `[size]` bool, rows that stay.

        Returns:
            `[kept]` int64: which row each of the first slots holds now.
        """


class ExpandedMemory:
    """Every row holds a copy of its prompt: works for any model with a plain cache, at the price of reading all copies.

    Every row's next token goes into the same column; a row that was admitted later, or has a shorter prompt, starts
    further to the right and does not see what is left of its start. So the distance of two tokens is the distance of
    their columns, which sliding-window masks rely on.

    Args:
        slots: Most rows at once.
        columns: Columns of the cache.
        device: Where the model is.
    """

    def __init__(self, slots: int, columns: int, device: torch.device) -> None:
        self.cache = SlotCache(slots, columns)
        self.columns, self.column = columns, 0
        self.start = torch.zeros(slots, dtype=torch.int64, device=device)
        self.visible = torch.zeros(slots, columns, dtype=torch.bool, device=device)
        self._columns = torch.arange(columns, device=device)

    def admit(self, rows: slice, length: int, prefilled: Prefilled | None) -> None:
        """Copy the prompt's keys into each row, to end before the next column."""
        if rows.start == 0:
            self.column = length - 1
        if prefilled is not None:
            self.cache.place(rows, self.column, *prefilled, length - 1)
        self.cache.seek(self.column)
        self.start[rows] = self.column - (length - 1)
        self.visible[rows] = self._columns >= self.start[rows, None]

    def advance(self, size: int, _written: torch.Tensor, alive: torch.Tensor) -> torch.Tensor:
        """The next column; shifts the cache when it is full."""
        if self.column == self.columns:
            self._shift(size, alive)
        self.column += 1
        return self.visible[:size, : self.column]

    def keep(self, alive: torch.Tensor) -> torch.Tensor:
        """Close the gaps with rows from the end: copying keys is what this costs."""
        count = int(alive.sum())
        order = torch.arange(count, device=alive.device)
        gaps = (~alive[:count]).nonzero().flatten()
        movers = alive[count:].nonzero().flatten() + count
        if len(gaps):
            order[gaps] = movers
            self.start[gaps], self.visible[gaps] = self.start[movers], self.visible[movers]
            self.cache.move(movers, gaps)
        return order

    def _shift(self, size: int, alive: torch.Tensor) -> None:
        """Make room on the right by giving up the columns left of the first one that a living row needs."""
        rows = slice(0, size)
        unused = int(self.start[rows][alive[rows]].min())
        self.cache.shift(unused)
        self.column -= unused
        self.start[rows] = (self.start[rows] - unused).clamp_(min=0)
        self.visible[rows] = self._columns >= self.start[rows, None]
