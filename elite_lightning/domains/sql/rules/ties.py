"""Which other rows a query could have returned, by what its ORDER BY and LIMIT leave open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from elite_lightning.domains.sql.compare import Row, rows_fit


def possible(full: list[Row], keys: Sequence[int], got: list[Row], offset: int) -> bool:
    """Whether `got` is what a query could return whose ordered rows are `full` and which skips `offset` of them.

    Sort keys are compared without tolerance, as SQLite does: of two that differ at all, one comes first.

    Args:
        full: All rows in order, each with its sort keys, which may lie behind the cells of the result.
        keys: Positions of the sort keys.
        got: Rows of the width of the result.
        offset: Rows of `full` before the first of `got`.
    """
    if not got:
        return True
    if len(full) < offset + len(got):
        return False
    width, start = len(got[0]), 0
    for _, tied in groupby(full, key=lambda row: [row[key] for key in keys]):
        choice = [row[:width] for row in tied]
        taken = got[max(0, start - offset) : max(0, start + len(choice) - offset)]
        if taken and not rows_fit(taken, choice):
            return False
        start += len(choice)
    return True
