"""Which problems are for training, validation and testing, where a data set does not say so itself.

Whole databases are dealt, so that no split has seen another's schemas. The order is that of the SHA-256 of their names:
the same on every machine, and a database keeps its place when others are added or left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from elite_lightning.types import Problem

HELD_OUT = 0.1
"""Share of the training file's databases that validation gets."""

TEST = VALIDATION = 0.2
"""Shares of the databases where one file has to serve for everything."""

Problems = tuple[Problem, ...]


class Splits(NamedTuple):
    """The three lists of problems."""

    train: Problems
    validation: Problems
    test: Problems


def in_hash_order(names: Sequence[str]) -> list[str]:
    """Distinct names in the order of their SHA-256."""
    return sorted(set(names), key=_hash)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def database_of(problem: Problem) -> str:
    """The name of the problem's database in its data set."""
    return str(problem.data["db_id"])


def hold_out(problems: Sequence[Problem]) -> tuple[Problems, Problems]:
    """Problems to train on, and those on a tenth of the databases, at least one, for validation.

    Nothing is held out where there is but one database.
    """
    names = in_hash_order([database_of(problem) for problem in problems])
    held = set(names[: max(1, round(HELD_OUT * len(names)))]) if len(names) > 1 else set()
    train = tuple(problem for problem in problems if database_of(problem) not in held)
    return train, tuple(problem for problem in problems if database_of(problem) in held)


def share_out(problems: Sequence[Problem]) -> Splits:
    """Three fifths of the databases to train on, a fifth each for validation and test, at least one.

    With fewer than three databases the questions themselves are dealt, by the hash of their ids.
    """
    unit: Callable[[Problem], str] = database_of if can_share_out(problems) else lambda problem: problem.id
    names = in_hash_order([unit(problem) for problem in problems])
    validating, testing = (max(1, round(share * len(names))) for share in (VALIDATION, TEST))
    test, validation = set(names[:testing]), set(names[testing : testing + validating])
    return Splits(
        tuple(problem for problem in problems if unit(problem) not in test | validation),
        tuple(problem for problem in problems if unit(problem) in validation),
        tuple(problem for problem in problems if unit(problem) in test),
    )


def can_share_out(problems: Sequence[Problem]) -> bool:
    """Whether there are enough databases to give each split some of its own."""
    return len({database_of(problem) for problem in problems}) >= 3


def sample(problems: Sequence[Problem], most: int | None) -> Problems:
    """At most so many of the problems, drawn by the hash of their ids, in their old order; all for None."""
    if most is None or len(problems) <= most:
        return tuple(problems)
    chosen = set(in_hash_order([problem.id for problem in problems])[:most])
    return tuple(problem for problem in problems if problem.id in chosen)
