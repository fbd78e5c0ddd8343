"""Decide whether two tables are the same up to the order of their columns, without trying every order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from elite_lightning.domains.sql.compare import Row

WORK_ROWS = 2_000_000
"""Rows that are put together before a pair of tables is given up; only tables whose columns hold the same cells as
each other in another order ever come near."""

_Column = tuple[object, ...]


def equal_under_permutation(gold: Sequence[Row], got: Sequence[Row], ordered: bool) -> bool:
    """Whether some order of `got`'s columns gives `gold`'s rows, as a list or as a multiset.

    With the rows in a fixed order this is equality of the multisets of columns. Without, columns are chosen one after
    the other, each among those that hold the same cells as gold's, and a choice is followed only as long as the rows
    so far are gold's as a multiset; columns that are equal row by row are tried once. Tables that are not decided
    after `WORK_ROWS` count as different.
    """
    left, right = _columns(gold), _columns(got)
    if Counter(left) == Counter(right):
        return True
    if ordered or Counter(map(_cells, left)) != Counter(map(_cells, right)):
        return False
    return _Search(gold, left, right).succeeds()


class _Search:
    """Chooses a column of `got` for each of gold's, depth first."""

    def __init__(self, gold: Sequence[Row], left: list[_Column], right: list[_Column]) -> None:
        self._gold = gold
        self._left = left
        self._right = right
        self._cells = {column: _cells(column) for column in left + right}
        self._tries = len(left) ** 2 + WORK_ROWS // len(gold)

    def succeeds(self) -> bool:
        """Whether all columns of `got` can be placed."""
        open_choices = [self._choices(0, [()] * len(self._gold), self._right)]
        while open_choices:
            step = next(open_choices[-1], None)
            if step is None:
                open_choices.pop()
            elif not step[1]:
                return True
            else:
                open_choices.append(self._choices(len(open_choices), *step))
        return False

    def _choices(self, place: int, rows: list[Row], free: list[_Column]) -> Iterator[tuple[list[Row], list[_Column]]]:
        """The rows and the columns left over, for each free column that can stand in this place."""
        wanted = Counter(tuple(row[: place + 1]) for row in self._gold)
        for choice in dict.fromkeys(free):
            if self._cells[choice] != self._cells[self._left[place]] or self._tries <= 0:
                continue
            self._tries -= 1
            grown = [(*row, cell) for row, cell in zip(rows, choice, strict=True)]
            if Counter(grown) == wanted:
                yield grown, _without(free, choice)


def _columns(rows: Sequence[Row]) -> list[_Column]:
    return list(zip(*rows, strict=True))


def _cells(column: _Column) -> frozenset[tuple[object, int]]:
    return frozenset(Counter(column).items())


def _without(columns: list[_Column], choice: _Column) -> list[_Column]:
    index = columns.index(choice)
    return columns[:index] + columns[index + 1 :]
