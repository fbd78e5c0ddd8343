"""PocketSQL's problems: questions whose candidate solutions agree on every copy of the database.

The first candidate that agrees with most others gives the gold rows; candidates that are right by luck on one
copy only, or wrong because of NULLs and ties, are dropped, and a question keeps at least three right ones.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from datamodules.pocketsql.families import FAMILIES
from datamodules.pocketsql.questions import Question, ask, families_for
from datamodules.pocketsql.schema_text import PocketSchema, roles_of
from elite_lightning.types import Problem

LEAST_SOLUTIONS = 3
MOST_TRIES = 300  # for one question of a family; a small database may have none, such as leaders where all are tied
LARGEST_ANSWER = 12  # rows; larger answers are mostly all rows, and then many wrong queries are right

Rows = tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class PocketProblem:
    """A problem with the solutions that its maker knows; these are for tests, never for training."""

    problem: Problem
    family: str
    solutions: tuple[str, ...]


def make_problems(
    split: str, schemas: dict[str, PocketSchema], folder: Path, count: int, seed: int
) -> list[PocketProblem]:
    """Make `count` different problems on the databases of a split, evenly over families.

    Args:
        split: `train`, `validation` or `test`: chooses the phrasings.
        schemas: The split's databases by name.
        folder: Where `write_databases` put their files.
        count: How many problems.
        seed: Of all choices.

    Raises:
        ValueError: If the databases do not have so many questions.
    """
    made: dict[tuple[str, str], PocketProblem] = {}
    candidates = _candidates(split, schemas, folder, random.Random(f"pocketsql-problems:{seed}:{split}"))
    repeated = 0
    while len(made) < count:
        database, question, solutions = next(candidates)
        if (database, question.text) in made:
            repeated += 1
            if repeated > MOST_TRIES:
                raise ValueError(f"the {split} databases have only {len(made)} of {count} questions; ask for fewer")
            continue
        repeated = 0
        data = {"database": database, "gold": solutions[0], "ordered": question.ordered, "family": question.family}
        problem = Problem(f"pocketsql-{split}-{len(made):04d}", question.text, data)
        made[database, question.text] = PocketProblem(problem, question.family, solutions)
    return list(made.values())


def _candidates(
    split: str, schemas: dict[str, PocketSchema], folder: Path, rng: random.Random
) -> Iterator[tuple[str, Question, tuple[str, ...]]]:
    """Accepted questions for ever, one family after the other so that none is rare.

    Raises:
        ValueError: If no family has a question.
    """
    roles = {name: roles_of(schema) for name, schema in schemas.items()}
    names = list(schemas)
    possible = {family for found in roles.values() for chosen in found for family in families_for(chosen)}
    families = [family for family in FAMILIES if family in possible]
    while True:
        found = 0
        for family in families:
            for _ in range(MOST_TRIES):
                database = rng.choice(names)
                chosen = rng.choice(roles[database])
                if family not in families_for(chosen):
                    continue
                question = ask(chosen, family, split, rng)
                accepted = agreeing(question, sorted((folder / database).glob("*.sqlite")))
                if accepted is not None:
                    found += 1
                    yield database, question, accepted
                    break
        if not found:
            raise ValueError(f"the {split} databases have no question with an answer; give their tables more rows")


def agreeing(question: Question, paths: list[Path]) -> tuple[str, ...] | None:
    """The candidate solutions that agree with most others on all databases, or None if the question is no good."""
    answers = [_answers(solution, question.ordered, paths) for solution in question.solutions]
    (best, votes), *_ = Counter(answers).most_common(1)
    if votes < LEAST_SOLUTIONS or not all(0 < len(rows) <= LARGEST_ANSWER for rows in best):
        return None
    return tuple(solution for solution, answer in zip(question.solutions, answers, strict=True) if answer == best)


def _answers(solution: str, ordered: bool, paths: list[Path]) -> tuple[Rows, ...]:
    answers = []
    for path in paths:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute(solution).fetchall()
        answers.append(tuple(rows if ordered else sorted(rows, key=repr)))
    return tuple(answers)
