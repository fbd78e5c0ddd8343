"""How PocketSQL's questions are worded, and which wordings are held out.

A question is an opener, a condition and perhaps a filter, each put together from parts. Validation and test use
combinations of parts that training never shows, so that a policy must understand the parts.
"""

from __future__ import annotations

import itertools
import random
from functools import cache

from datamodules.pocketsql.families import Filter

LEADS = ("with", "that have", "having")
LEADER_LEADS = ("the", "only the", "just the")

# Per family three bodies; each may follow each of the three leads.
BODIES: dict[str, tuple[str, str, str]] = {
    "without": ("no {L}", "zero {L}", "not any {L}"),
    "extreme": ("the {word} {num}", "the {word} {num} of all", "the {word} value of {num}"),
    "counted": ("{test} {L}", "{test} rows in {L}", "{test} of the {L}"),
    "both": (
        "{L} with {val} > {x} and also {L} with {val} < {y}",
        "both {L} of {val} above {x} and {L} of {val} below {y}",
        "some {val} above {x} in {L} and some {val} below {y}",
    ),
    "linked": ("{L} of {O} with {ocat} {lit}", "{L} to {O} where {ocat} is {lit}", "some {L} for {O} of {ocat} {lit}"),
    "average": ("{num} {word} average", "a {num} {word} the average", "{num} {word} the average of all"),
    "either": (
        "{num} > {x} or {cat} {lit}", "{num} above {x} or else {cat} = {lit}", "a {num} over {x} or a {cat} {lit}",
    ),
    "extreme_in_category": (
        "the {word} {num} in each {cat}", "the {word} {num} of their {cat}", "the {word} {num} for each {cat}",
    ),
    "every": ("all {L} with {val} > {x}", "only {L} of {val} above {x}", "{val} above {x} in all {L}"),
    "second": ("the second {word} {num}", "the second {word} {num} of all", "the second {word} value of {num}"),
    "crowded_category": ("at least {n} {E}", "{n} or more {E}", "not less than {n} {E}"),
    "some": ("{L} with {val} > {x}", "some {L} of {val} above {x}", "any {L} with {val} over {x}"),
    "between": ("{num} between {x} and {y}", "{num} from {x} to {y}", "a {num} within {x} and {y}"),
    "busiest": ("the most {L}", "the highest number of {L}", "most rows in {L}"),
    "total": (
        "a total {val} above {x} over {L}", "a sum of {val} in {L} > {x}", "more than {x} {val} in total over {L}",
    ),
    "alike": (
        "the same {cat} as {key} {n}", "the {cat} of the one with {key} {n}", "the same {cat} as that of {key} = {n}",
    ),
    "leaders": (
        "{n} with the {word} {num} in order", "first {n} by {word} {num}", "top {n} sorted from the {word} {num}",
    ),
}  # fmt: skip

VERBS = ("list", "show", "give", "find")
ARTICLES = ("", "the ")
LINKS = ("of", "for", "of all", "for all")
JOINERS = (" among those", " , only those", " , just the ones")
RELATIVES = ("with", "where")

Pair = tuple[int, int]

# Held-out combinations: (lead, body), (joiner, relative), and openers by verb and link.
HELD_CONDITIONS: dict[str, frozenset[Pair]] = {
    "validation": frozenset({(2, 0), (0, 2)}),
    "test": frozenset({(1, 1), (2, 2)}),
}
HELD_FILTERS: dict[str, frozenset[Pair]] = {"validation": frozenset({(0, 1)}), "test": frozenset({(1, 0)})}
HELD_OPENERS: dict[str, frozenset[Pair]] = {
    "validation": frozenset({(0, 1), (1, 2)}),
    "test": frozenset({(2, 3), (3, 0)}),
}


def combinations(split: str, held: dict[str, frozenset[Pair]], rows: int, columns: int) -> list[Pair]:
    """The index pairs that a split uses: its own held-out ones, or for training all that nobody holds out."""
    if split in held:
        return sorted(held[split])
    taken = frozenset().union(*held.values())
    return [pair for pair in itertools.product(range(rows), range(columns)) if pair not in taken]


@cache
def conditions(split: str, family: str) -> list[str]:
    """The condition templates of a family that a split uses."""
    leads = LEADER_LEADS if family == "leaders" else LEADS
    pairs = combinations(split, HELD_CONDITIONS, len(leads), 3)
    return [f"{leads[lead]} {BODIES[family][body]}" for lead, body in pairs]


@cache
def openers(split: str) -> list[str]:
    """The opener templates that a split uses."""
    pairs = combinations(split, HELD_OPENERS, len(VERBS), len(LINKS))
    return [f"{VERBS[v]} {article}{{P}} {LINKS[link]} {{E}} {{C}}" for v, link in pairs for article in ARTICLES]


@cache
def filters(split: str) -> list[str]:
    """The filter templates that a split uses."""
    pairs = combinations(split, HELD_FILTERS, len(JOINERS), len(RELATIVES))
    return [f"{JOINERS[joiner]} {RELATIVES[relative]} {{f}}" for joiner, relative in pairs]


def word_question(
    split: str,
    family: str,
    entity: str,
    projection: tuple[str, ...],
    slots: dict[str, str],
    condition: Filter,
    rng: random.Random,
) -> str:
    """Put a question into words with phrasings of a split.

    Args:
        split: `train`, `validation` or `test`; no phrasing is in two of them.
        family: The question's family.
        entity: The table that is asked about.
        projection: The columns asked for; a question about categories asks for the category alone.
        slots: What the family fills into its phrasings.
        condition: The extra condition, if any.
        rng: Chooses among the split's phrasings.
    """
    text = rng.choice(conditions(split, family)).format(**slots)
    question = rng.choice(openers(split)).format(P=" and ".join(projection), E=entity, C=text)
    if not condition.column:
        return question
    operator = "" if condition.operator == "=" else f"{condition.operator} "
    described = f"{condition.column} {operator}{condition.literal}"
    return question + rng.choice(filters(split)).format(f=described)
