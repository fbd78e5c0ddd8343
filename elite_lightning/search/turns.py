"""Who is served next, at a cost that does not grow with the number of problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from elite_lightning.types import Problem


class Turns:
    """Hands out the problems with the smallest turns, and asks for a turn again only after it was taken.

    Sorting all problems in every round would cost a search with many problems, and so with many rounds, more than
    everything else.

    Args:
        problems: In the order that breaks ties. All of them wait at first.
        turn: A problem's turn; it may change only while the problem is served.
    """

    def __init__(self, problems: Sequence[Problem], turn: Callable[[Problem], int]) -> None:
        self._problems, self._turn = problems, turn
        self._waiting: list[tuple[int, int]] = []
        self._served = list(range(len(problems)))

    def take(self, count: int) -> list[Problem]:
        """The next problems to serve, those that were served last included: the smallest turn first.

        Args:
            count: How many, if there are as many.
        """
        for index in self._served:
            heappush(self._waiting, (self._turn(self._problems[index]), index))
        self._served = [heappop(self._waiting)[1] for _ in range(min(count, len(self._waiting)))]
        return [self._problems[index] for index in self._served]
