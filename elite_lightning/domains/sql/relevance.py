"""Which tables and columns have most to do with a question, by the words that they share. No model, no data.

The score of a name is the sum over the words that it shares with the question of 1 / (number of the schema's names that
have the word), the inverse document frequency in its simplest form (Sparck Jones 1972, Journal of Documentation 28): a
word that half of the columns have says little.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

Key = TypeVar("Key")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")


def words_of(text: str) -> frozenset[str]:
    """The words of a text or a name in lower case, split at case changes and underscores, without a plural's s."""
    return frozenset(_singular(word.lower()) for word in _WORD.findall(text))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 2 and word.endswith("s") and not word.endswith("ss") else word


def relevance(names: Mapping[Key, Iterable[str]], question: str) -> dict[Key, float]:
    """Score of each name against a question; 0 where they share no word.

    Args:
        names: What each thing is called, in one or several texts.
        question: The question and whatever else tells what is wanted.
    """
    asked = words_of(question)
    words = {key: frozenset().union(*map(words_of, texts)) for key, texts in names.items()}
    spread = Counter(word for found in words.values() for word in found)
    return {key: sum(1 / spread[word] for word in sorted(found & asked)) for key, found in words.items()}
