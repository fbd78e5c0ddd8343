"""What a language model is asked when it names approaches, and how its answers are read. Nothing is sent from here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from elite_lightning.search.labeling.vocabulary import OTHER, Approach, Vocabulary, name_of, without_thoughts
from elite_lightning.types import Problem

_NAME = """\
Below are a problem and one correct solution. Name the approach: the way in which it solves the problem, as an expert \
would tell it from other ways to solve the same problem. Leave out what belongs to this problem alone, such as names, \
topics and numbers.

Problem: {question}

Solution:
{solution}

Answer with one line and nothing else: a name of one to four words, a colon, and a definition of at most 15 words."""

_MERGE = """\
Below are names of approaches that were given to solutions one by one, each with the number of solutions and a \
definition. Several of them mean the same. Merge synonyms, and merge what is only a special case, so that at most \
{limit} approaches remain, clearly different from each other.

{proposals}

Answer with a JSON list and nothing else. One object an approach, with three keys: "name" (one to four words), \
"definition" (at most 15 words), and "merges" (the names from the list above that it stands for)."""

_LABEL = """\
Below are a problem, one correct solution, and a list of approaches. Say which approach the solution takes.

Problem: {question}

Solution:
{solution}

Approaches:
{approaches}
{other}: none of these

Answer with one name from the list and nothing else."""


def templates() -> list[str]:
    """The texts that all prompts are made of, for a fingerprint."""
    return [_NAME, _MERGE, _LABEL]


def name_prompt(problem: Problem, solution: str) -> str:
    """Ask for the name of one solution's approach."""
    return _NAME.format(question=problem.question, solution=solution)


def read_proposal(answer: str) -> Approach | None:
    """A proposed approach: the first line that begins with a name; None if there is none."""
    for line in without_thoughts(answer).splitlines():
        head, _, definition = line.partition(":")
        name = name_of(head)
        if name is not None:
            return Approach(name, " ".join(definition.split()).strip(" *`\"'"))
    return None


def merge_prompt(proposals: Sequence[tuple[Approach, int]], limit: int) -> str:
    """Ask for at most `limit` approaches from proposals and the number of solutions behind each."""
    lines = [f"- {proposal.name} ({count}): {proposal.definition}" for proposal, count in proposals]
    return _MERGE.format(limit=limit, proposals="\n".join(lines))


def read_merged(answer: str, counts: Mapping[str, int], limit: int) -> tuple[Approach, ...]:
    """The approaches that remain after merging, those with the most solutions first.

    A name is taken once: what is listed twice belongs to the first. What merges nothing that was proposed is left
    out, since no seed solution stands behind it.

    Args:
        answer: A JSON list, perhaps with prose or a fence around it.
        counts: Solutions behind each proposed name.
        limit: Most approaches.

    Returns:
        At most `limit` approaches; none if the answer cannot be read.
    """
    taken: set[str] = set()
    merged: list[tuple[int, Approach]] = []
    for item in _json_list(answer):
        if not isinstance(item, dict) or not isinstance(item.get("merges"), list):
            continue
        name = name_of(str(item.get("name", "")))
        listed = [n for n in map(name_of, map(str, item["merges"])) if n in counts and n not in taken]
        if name is None or name in taken or not (listed or name in counts):
            continue
        members = dict.fromkeys([name, *(n for n in listed if n is not None)])
        taken.update(members)
        definition = " ".join(str(item.get("definition", "")).split())
        weight = sum(counts.get(member, 0) for member in members)
        merged.append((weight, Approach(name, definition, tuple(members)[1:])))
    merged.sort(key=lambda pair: -pair[0])
    return tuple(approach for _, approach in merged[:limit])


def _json_list(answer: str) -> list[Any]:
    """The first list of objects in the text; an empty one if there is none."""
    text = without_thoughts(answer)
    for start in re.finditer(r"\[\s*\{", text):
        try:
            return list(json.JSONDecoder().raw_decode(text, start.start())[0])
        except (ValueError, RecursionError):
            continue
    return []


def label_prompt(problem: Problem, solution: str, vocabulary: Vocabulary) -> str:
    """Ask which approach a solution takes."""
    approaches = "\n".join(map(vocabulary.describe, vocabulary.names))
    return _LABEL.format(question=problem.question, solution=solution, approaches=approaches, other=OTHER.upper())
