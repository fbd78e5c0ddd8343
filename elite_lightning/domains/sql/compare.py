"""Decide whether two results are the same rows.

The rule is stricter than the benchmarks' own: duplicates count, columns count by position, and the number of
columns counts even without rows. Cells are equal as SQLite's values are in Python: 1 equals 1.0, NULL equals
NULL, '1' does not equal 1, a blob does not equal a text. Two REALs within the stated tolerance are equal too, unless
both are whole numbers: those are exact, be they counts, keys or seconds of a clock.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

Row = tuple[Any, ...]

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12
EXACT_BELOW = 2.0**53
"""From here on a REAL no longer tells a whole number from its neighbours."""
MATCHED_ROWS = 50
"""Up to here a pairing of rows is searched for, which can take the third power of their number."""


class Rows(NamedTuple):
    """What a query returned: the number of its columns, and its rows in the order in which they came."""

    columns: int
    rows: list[Row]


def same_rows(gold: Rows, got: Rows, ordered: bool) -> bool:
    """Whether `got` holds gold's rows, cells compared by `same_cells`: as a list when `ordered`, else as a multiset."""
    if gold.columns != got.columns or len(gold.rows) != len(got.rows):
        return False
    if ordered:
        return gold.rows == got.rows or all(map(_same_row, gold.rows, got.rows))
    return rows_fit(got.rows, gold.rows)


def same_cells(left: Any, right: Any) -> bool:
    """Equality of two values; within the tolerance for two REALs of which one at least is no whole number."""
    if left == right:
        return True
    if not (isinstance(left, float) and isinstance(right, float)) or (_is_exact(left) and _is_exact(right)):
        return False
    return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)


def rows_fit(taken: list[Row], choice: list[Row]) -> bool:
    """Whether every row of `taken` can be paired with an equal row of `choice`, no row of which is used twice.

    Each pair is compared by itself, so that a tolerance never adds up along a chain of numbers. Up to `MATCHED_ROWS`
    a pairing is found if there is one (Kuhn's augmenting paths). Of more rows, those that are the same are paired
    first. The others are parted into blocks such that no row is near a row of another block, and paired within a
    block in the order of their numbers; where numbers do form a chain, a pairing may be missed.
    """
    if not Counter(taken) - Counter(choice):
        return True
    if len(choice) <= MATCHED_ROWS:
        return _matched(taken, choice)
    left, right = _without(taken, choice), _without(choice, taken)
    names = [_chains([*left, *right], column) for column in range(len(taken[0]))]
    free = _blocks(right, names)
    return all(_paired(rows, free.get(block, [])) for block, rows in _blocks(left, names).items())


def _is_exact(number: float) -> bool:
    return number.is_integer() and abs(number) < EXACT_BELOW


def _same_row(left: Row, right: Row) -> bool:
    return left == right or all(map(same_cells, left, right))


def _matched(rows: list[Row], free: list[Row]) -> bool:
    owners: dict[int, int] = {}

    def place(index: int, tried: set[int]) -> bool:
        for number, other in enumerate(free):
            if number not in tried and _same_row(rows[index], other):
                tried.add(number)
                if number not in owners or place(owners[number], tried):
                    owners[number] = index
                    return True
        return False

    return all(place(index, set()) for index in range(len(rows)))


def _without(rows: list[Row], others: list[Row]) -> list[Row]:
    """The rows without those that the others hold too, in the same types: 1 and 1.0 have other neighbours."""
    counts = Counter(map(_typed, others))
    rest = []
    for row, key in zip(rows, map(_typed, rows), strict=True):
        if counts[key]:
            counts[key] -= 1
        else:
            rest.append(row)
    return rest


def _typed(row: Row) -> tuple[Row, tuple[type, ...]]:
    return row, tuple(map(type, row))


def _chains(rows: Iterable[Row], column: int) -> dict[float, float]:
    """For each number of a column the first of its chain of near neighbours; empty without a REAL."""
    cells = [row[column] for row in rows]
    if not any(isinstance(cell, float) for cell in cells):
        return {}
    names: dict[float, float] = {}
    previous = name = -math.inf
    for number in sorted({cell for cell in cells if isinstance(cell, int | float)}):
        if not math.isclose(number, previous, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE):
            name = number
        names[number] = name
        previous = number
    return names


def _blocks(rows: Iterable[Row], names: list[dict[float, float]]) -> dict[Row, list[Row]]:
    """Rows by what is left of them when each number is replaced by the first of its chain."""
    blocks: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        blocks[tuple(name.get(cell, cell) for cell, name in zip(row, names, strict=True))].append(row)
    return blocks


def _paired(rows: list[Row], free: list[Row]) -> bool:
    """Whether each row finds its own among the free ones; all are of one block and so differ in numbers only."""
    rest = iter(sorted(free))
    return all(any(_same_row(row, other) for other in rest) for row in sorted(rows))
