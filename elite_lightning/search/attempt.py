"""One attempt of a search, as the journal keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from elite_lightning.archive import Outcome
from elite_lightning.types import Cell


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generated candidate, whatever became of it.

    Args:
        id: Counts the attempts of one journal, from 0.
        round: Round of the search.
        batch: Batch within the round.
        problem_id: What was asked.
        asked: The approach that was asked for, or None for a plain prompt.
        parents: Ids of the attempts that the prompt showed: the edges of a graph.
        response: What the policy wrote.
        solution: What was extracted from it, or None.
        outcome: What became of it.
        reward: The verdict's reward.
        cell: The whole cell that it realises, whatever was asked for and whatever tells cells apart; None unless it is
            correct.
        tokens: Sampled tokens, end-of-sequence included; None where an earlier release did not write them down.
    """

    id: int
    round: int
    batch: int
    problem_id: str
    asked: str | None
    parents: tuple[int, ...]
    response: str
    solution: str | None
    outcome: Outcome
    reward: float
    cell: Cell | None
    tokens: int | None = None
