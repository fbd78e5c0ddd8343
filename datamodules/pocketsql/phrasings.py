"""How PocketSQL's questions are worded: four phrasings a family for training, one each for validation and test.

The held-out phrasings are made of words that training shows in other places, put together as it never does.
"""

from __future__ import annotations

import random

from datamodules.pocketsql.families import Filter

# Per family: four training phrasings, then the validation phrasing, then the test phrasing.
CONDITIONS: dict[str, tuple[str, ...]] = {
    "without": (
        "that have no {L}", "without any {L}", "that are in no {L}", "having zero {L}",
        "that have zero {L}", "with no {L}",
    ),
    "extreme": (
        "with the {word} {num}", "that have the {word} {num} of all", "whose {num} is the {word}",
        "having the {word} {num}", "whose {num} is the {word} of all", "that have the {word} {num}",
    ),
    "counted": (
        "with {test} {L}", "that have {test} {L}", "whose number of {L} is {test}", "having {test} rows in {L}",
        "that have {test} rows in {L}", "having {test} {L}",
    ),
    "both": (
        "that have {L} with {val} > {x} and also {L} with {val} < {y}",
        "with both {L} of {val} above {x} and {L} of {val} below {y}",
        "having {val} above {x} in some {L} and {val} below {y} in other {L}",
        "whose {L} have both some {val} > {x} and some {val} < {y}",
        "with {L} of {val} above {x} and also {L} of {val} below {y}",
        "that have both {L} with {val} > {x} and {L} with {val} < {y}",
    ),
    "linked": (
        "that have {L} of {O} with {ocat} {lit}", "with {L} whose {O} have {ocat} = {lit}",
        "linked through {L} to {O} with {ocat} {lit}", "having some {L} to {O} of {ocat} {lit}",
        "linked through {L} to {O} of {ocat} {lit}", "that have {L} to {O} with {ocat} = {lit}",
    ),
    "average": (
        "with {num} {word} average", "whose {num} is {word} the average", "that have {num} {word} the average of all",
        "having {num} {word} average", "that have {num} {word} average", "whose {num} is {word} the average of all",
    ),
    "either": (
        "with {num} > {x} or {cat} {lit}", "that have {num} above {x} or {cat} = {lit}",
        "whose {num} is above {x} or whose {cat} is {lit}", "having {num} > {x} or else {cat} {lit}",
        "having {num} above {x} or else {cat} {lit}", "that have {num} > {x} or {cat} {lit}",
    ),
    "extreme_in_category": (
        "with the {word} {num} in each {cat}", "that have the {word} {num} of their {cat}",
        "whose {num} is the {word} in each {cat}", "having the {word} {num} for each {cat}",
        "with the {word} {num} of their {cat}", "that have the {word} {num} in each {cat}",
    ),
    "every": (
        "whose {L} all have {val} > {x}", "with {val} above {x} in all {L}",
        "that have {L} and all of them with {val} > {x}", "having only {L} of {val} above {x}",
        "with {val} > {x} in all {L}", "whose {L} all have {val} above {x}",
    ),
    "second": (
        "with the second {word} {num}", "whose {num} is the second {word}", "that have the second {word} {num} of all",
        "that are second by {word} {num}", "whose {num} is the second {word} of all",
        "that have the second {word} {num}",
    ),
    "crowded_category": (
        "with at least {n} {E}", "that have {n} or more {E}", "shared by at least {n} {E}",
        "having not less than {n} {E}", "shared by {n} or more {E}", "that have at least {n} {E}",
    ),
    "some": (
        "that have {L} with {val} > {x}", "with some {L} of {val} above {x}", "having any {L} with {val} > {x}",
        "with at least one of {L} above {x} in {val}", "having some {L} of {val} above {x}",
        "with any {L} of {val} > {x}",
    ),
    "between": (
        "with {num} between {x} and {y}", "whose {num} is at least {x} and at most {y}",
        "that have {num} from {x} to {y}", "having {num} within {x} and {y}",
        "whose {num} is from {x} to {y}", "that have {num} between {x} and {y}",
    ),
    "busiest": (
        "with the most {L}", "that have the highest number of {L}", "whose number of {L} is the highest",
        "having most rows in {L}", "with most rows in {L}", "that have the most {L}",
    ),
    "total": (
        "whose {L} have a total {val} above {x}", "with a sum of {val} over all {L} > {x}",
        "that have more than {x} {val} in total over {L}", "having {L} that sum to more than {x} {val}",
        "whose {L} sum to a {val} above {x}", "with a total {val} over all {L} > {x}",
    ),
    "alike": (
        "with the same {cat} as the one with {key} {n}", "that share the {cat} of {key} {n}",
        "whose {cat} equals that of {key} = {n}", "having the {cat} of the one with {key} = {n}",
        "that share the {cat} of the one with {key} {n}", "whose {cat} equals that of {key} {n}",
    ),
    "leaders": (
        "the {n} with the {word} {num} in order", "the first {n} by {word} {num}",
        "only {n} of them sorted from the {word} {num}", "top {n} ordered by {word} {num}",
        "the first {n} sorted from the {word} {num}", "top {n} by {word} {num} in order",
    ),
}  # fmt: skip

OPENERS = (
    "list {P} of {E} {C}", "show {P} for {E} {C}", "give the {P} of all {E} {C}", "find {E} {C} and show {P}",
    "show the {P} of {E} {C}", "find {P} of all {E} {C}",
)  # fmt: skip

FILTERS = (
    "{q} among those with {f}", "{q} , only with {f}", "{q} and with {f} too", "{q} where {f}",
    "{q} , only those with {f}", "{q} among those where {f}",
)  # fmt: skip

_CHOICES = {"train": (0, 1, 2, 3), "validation": (4,), "test": (5,)}


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
    text = CONDITIONS[family][rng.choice(_CHOICES[split])].format(**slots)
    opener = OPENERS[rng.choice(_CHOICES[split])]
    question = opener.format(P=" and ".join(projection), E=entity, C=text)
    if not condition.column:
        return question
    operator = "" if condition.operator == "=" else f"{condition.operator} "
    described = f"{condition.column} {operator}{condition.literal}"
    return FILTERS[rng.choice(_CHOICES[split])].format(q=question, f=described)
