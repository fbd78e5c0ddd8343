"""From roles to a question with its solutions: the part that problems and demonstrations share."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from datamodules.pocketsql.families import FAMILIES, FILTERABLE, NEEDS_OTHER, Filter, category_literal, number_near
from datamodules.pocketsql.phrasings import word_question
from datamodules.pocketsql.schema_text import Roles

FILTERED_SHARE = 0.4  # of the questions whose family has room for an extra condition


@dataclass(frozen=True, slots=True)
class Question:
    """A question in words with its candidate solutions, the family's most usual one first."""

    family: str
    text: str
    solutions: tuple[str, ...]
    ordered: bool
    projection: tuple[str, ...]
    condition: Filter


def families_for(roles: Roles) -> list[str]:
    """The families that can be asked with these roles."""
    return [name for name in FAMILIES if roles.other_category or name not in NEEDS_OTHER]


def ask(roles: Roles, family: str, split: str, rng: random.Random) -> Question:
    """Make one question of a family.

    Args:
        roles: The tables and columns that it is about.
        family: A key of `FAMILIES`.
        split: Whose phrasings to use.
        rng: Source of all choices.
    """
    projection = _projection(roles, family, rng)
    condition = _condition(roles, family, rng)
    draft = FAMILIES[family](roles, projection, condition, rng)
    text = word_question(split, family, roles.entity, projection, draft.slots, condition, rng)
    return Question(family, text, draft.solutions, draft.ordered, projection, condition)


def slip(roles: Roles, question: Question, index: int, rng: random.Random) -> str:
    """A careless version of one solution: it answers a question that differs in one detail.

    The detail is a number, a value or a direction where the family has one; else the extra condition is forgotten,
    or other columns are given.

    Args:
        roles: The tables and columns that the question is about.
        question: What was asked.
        index: Which of its solutions to get wrong.
        rng: Source of all choices.
    """
    projection, condition = question.projection, question.condition
    for attempt in itertools.count():
        draft = FAMILIES[question.family](roles, projection, condition, rng)
        if draft.solutions[index] != question.solutions[index]:
            return draft.solutions[index]
        if attempt >= 3:
            condition, projection = (
                Filter(),
                projection if condition.column else _projection(roles, question.family, rng),
            )
    raise AssertionError("unreachable: some projection differs")


def _projection(roles: Roles, family: str, rng: random.Random) -> tuple[str, ...]:
    if family == "crowded_category":
        return (roles.category,)
    choices = ((roles.key,), (roles.name,), (roles.name, roles.number), (roles.key, roles.category))
    return rng.choice(choices)


def _condition(roles: Roles, family: str, rng: random.Random) -> Filter:
    if family not in FILTERABLE or rng.random() >= FILTERED_SHARE:
        return Filter()
    # A bound on the number would often decide by itself which row has the largest one.
    if family == "extreme" or rng.random() < 0.5:
        return Filter(roles.category, "=", category_literal(rng, roles.categories))
    return Filter(roles.number, rng.choice("<>"), str(number_near(rng, 8, 32)))
