"""A frozen vocabulary of approaches, its file, and how a language model's answer is read as one of its names.

Source of the procedure: EliteReplay, arXiv 2610.22290, where an approach vocabulary comes before the search. Its
prompts and formats are not published; those here are our own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.run_folder import write_atomically

OTHER = "other"
"""The label of a solution that fits none of the approaches. It is no target: nobody could aim at it."""

MAX_NAME_WORDS = 6

_THOUGHTS = re.compile(r"\A.*</think>|<think>.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Approach:
    """One way of solving.

    Args:
        name: Lower-case words joined by underscores.
        definition: One line that tells it from the others.
        synonyms: Other names that were proposed for it.
    """

    name: str
    definition: str
    synonyms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Vocabulary:
    """The closed list of approaches of one search. It never changes once the search has begun to aim.

    Args:
        approaches: At least one, with different names.

    Raises:
        ValueError: If there is none, a name is not made of words, or a name or synonym occurs twice.
    """

    approaches: tuple[Approach, ...]

    def __post_init__(self) -> None:
        """Check the names."""
        names = [name for approach in self.approaches for name in (approach.name, *approach.synonyms)]
        if not names or OTHER in names or len(set(names)) < len(names) or any(n != name_of(n) for n in names):
            raise ValueError(f"a vocabulary needs different names of lower-case words other than {OTHER!r}: {names}")

    @property
    def names(self) -> tuple[str, ...]:
        """The approaches' names, which is what a search may ask for."""
        return tuple(approach.name for approach in self.approaches)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of names, definitions and synonyms in their order."""
        return hashlib.sha256(json.dumps(self._content()).encode()).hexdigest()

    @cached_property
    def _phrases(self) -> Mapping[tuple[str, ...], str]:
        named = [(name, a.name) for a in self.approaches for name in (a.name, *a.synonyms)]
        return {tuple(words_of(name)): canonical for name, canonical in named}

    def describe(self, name: str) -> str:
        """A name with its definition, as a policy is asked for it."""
        definition = next(approach.definition for approach in self.approaches if approach.name == name)
        return f"{name}: {definition}" if definition else name

    def label_of(self, answer: str) -> str:
        """Read an answer as one of the names, or `OTHER`. Never raises.

        Case, punctuation and `<think>` sections do not count, and a synonym stands for its approach. A line that is a
        name and nothing else decides. Without one, prose decides if it holds exactly one of the names and does not
        begin with OTHER; a name within a longer name does not count. Whatever is not clear is `OTHER`.
        """
        lines = [words_of(line) for line in without_thoughts(answer).splitlines()]
        whole = {self._phrases[tuple(words)] for words in lines if tuple(words) in self._phrases}
        words = [word for line in lines for word in line]
        if not whole and words[:1] != [OTHER]:
            whole = self._mentioned(words)
        return whole.pop() if len(whole) == 1 else OTHER

    def _mentioned(self, words: Sequence[str]) -> set[str]:
        """Approaches whose names occur in the words, each place counting for the longest name that fits there."""
        found: set[str] = set()
        longest = max(map(len, self._phrases))
        start = 0
        while start < len(words):
            lengths = range(min(longest, len(words) - start), 0, -1)
            length = next((n for n in lengths if tuple(words[start : start + n]) in self._phrases), 0)
            if length:
                found.add(self._phrases[tuple(words[start : start + length])])
            start += length or 1
        return found

    def save(self, path: Path, labeler: str) -> None:
        """Write the vocabulary as JSON that people can read, whole or not at all.

        Args:
            path: The file.
            labeler: Fingerprint of the labeler that induced it.
        """
        content = {"labeler": labeler, "fingerprint": self.fingerprint, "approaches": self._content()}
        write_atomically(path, json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, path: Path, labeler: str) -> Vocabulary:
        """Read what `save` wrote.

        Args:
            path: The file.
            labeler: Fingerprint of the labeler that will use it.

        Raises:
            UsageError: If the file is missing, is no vocabulary, was edited, or is that of another labeler.
        """
        try:
            content = json.loads(path.read_text())
            approaches = [Approach(a["name"], a["definition"], tuple(a["synonyms"])) for a in content["approaches"]]
            vocabulary = cls(tuple(approaches))
            if vocabulary.fingerprint != content["fingerprint"]:
                raise ValueError("it was edited after it was frozen")
            if content["labeler"] != labeler:
                raise ValueError("another labeler induced it")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path} is not a frozen vocabulary of approaches ({error}); restore it, or choose another run folder"
            ) from error
        return vocabulary

    def _content(self) -> list[dict[str, Any]]:
        return [{**asdict(approach), "synonyms": list(approach.synonyms)} for approach in self.approaches]


def without_thoughts(answer: str) -> str:
    """An answer without what a reasoning model thinks before it, also where the section is open at either end."""
    return _THOUGHTS.sub("", answer)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; underscores and punctuation separate."""
    return re.findall(r"[^\W_]+", text.lower())


def name_of(text: str) -> str | None:
    """A text as a name, or None if it has no word, more than six, or is `OTHER`."""
    words = words_of(text)
    return "_".join(words) if 0 < len(words) <= MAX_NAME_WORDS and words != [OTHER] else None
