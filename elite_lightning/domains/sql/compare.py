"""Decide whether two results are the same rows.

The rule is stricter than the benchmarks' own: duplicates count, columns count by position, and the number of
columns counts even without rows. Cells are equal as SQLite's values are in Python: 1 equals 1.0, NULL equals
NULL, '1' does not equal 1, a blob does not equal a text. Floats within the stated tolerance are equal.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

Row = tuple[Any, ...]

RELATIVE_TOLERANCE = 1e-9
ABSOLUTE_TOLERANCE = 1e-12


class Rows(NamedTuple):
    """What a query returned: the number of its columns, and its rows in the order in which they came."""

    columns: int
    rows: list[Row]


def same_rows(gold: Rows, got: Rows, ordered: bool) -> bool:
    """Whether `got` holds gold's rows: as a list when `ordered`, else as a multiset.

    Floats are compared by clusters: the sorted distinct numbers of a column, taken from both sides, are cut where
    two neighbours are further apart than `RELATIVE_TOLERANCE` and `ABSOLUTE_TOLERANCE` allow, and numbers of one
    cluster are equal. Unlike a pairwise tolerance this is an equivalence, so the order of rows cannot matter.
    """
    if gold.columns != got.columns or len(gold.rows) != len(got.rows):
        return False
    if _equal(gold.rows, got.rows, ordered):
        return True
    names = [number_clusters(gold.rows, got.rows, column) for column in range(gold.columns)]
    if not any(names):
        return False
    return _equal(with_clusters(gold.rows, names), with_clusters(got.rows, names), ordered)


def _equal(left: list[Row], right: list[Row], ordered: bool) -> bool:
    return left == right if ordered else Counter(left) == Counter(right)


def number_clusters(left: list[Row], right: list[Row], column: int) -> dict[float, float]:
    """The first number of its cluster for each number of a column; empty if the column holds no float."""
    cells = [row[column] for rows in (left, right) for row in rows]
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


def with_clusters(rows: list[Row], names: list[dict[float, float]]) -> list[Row]:
    """The rows with every number replaced by its cluster's first."""
    return [tuple(name.get(cell, cell) for cell, name in zip(row, names, strict=True)) for row in rows]
