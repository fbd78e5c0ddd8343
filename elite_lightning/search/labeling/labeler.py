"""Labelers: what names the approach of a solution instead of the domain. One is here: a language model."""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from elite_lightning.errors import UsageError
from elite_lightning.search.labeling.cache import CachedChat
from elite_lightning.search.labeling.chat import Chat, Endpoint, EndpointChat, PolicyChat
from elite_lightning.search.labeling.prompts import (
    label_prompt,
    merge_prompt,
    name_prompt,
    read_merged,
    read_proposal,
    templates,
)
from elite_lightning.search.labeling.vocabulary import Approach, Vocabulary
from elite_lightning.types import Codec, Problem, RolloutEngine


class Solved(NamedTuple):
    """A problem and a correct solution."""

    problem: Problem
    solution: str


class LabelingSession(Protocol):
    """A labeler at work."""

    def check(self) -> None:
        """Raise `UsageError` now rather than after hours of search if it cannot work."""
        ...

    def induce(self, seeds: Sequence[Solved]) -> Vocabulary:
        """A vocabulary from the seed solutions; the same seeds give the same vocabulary."""
        ...

    def label(self, solved: Sequence[Solved], vocabulary: Vocabulary) -> list[str]:
        """For each solution a name of the vocabulary, or `OTHER`."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class Labeler(ABC):
    """Names approaches from the seed solutions of a search, and then the approach of every correct solution."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of all that decides the labels; archives and journals of another one are refused."""

    @abstractmethod
    def open(self, engine: RolloutEngine, codec: Codec, cache: Path) -> LabelingSession:
        """Begin to work.

        Args:
            engine: The frozen policy, for labelers that ask it.
            codec: Text to tokens.
            cache: A file for what should survive a kill; each rank has its own.
        """


class LlmLabeler(Labeler):
    """A language model names the approaches: an endpoint that speaks OpenAI's protocol, or the frozen policy itself.

    Before the search aims at anything, the model gives a name to the approach of a sample of the correct seed solutions
    one by one, then merges the names into at most `max_approaches`, and the list is frozen. From then on it puts every
    correct solution under one of the names, or under `other`. It is asked at temperature 0, and every answer is kept
    in `labels.sqlite` in the run folder.

    Args:
        endpoint: Where to ask; null asks the policy that is trained, which must be able to follow instructions.
        max_approaches: Most names of the vocabulary.
        induction_samples: Most seed solutions that are named one by one; spread evenly over the problems.
        max_new_tokens: Longest answer in tokens. A model that thinks first needs more.

    Raises:
        UsageError: If a number is below 1.
    """

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        max_approaches: int = 16,
        induction_samples: int = 128,
        max_new_tokens: int = 1024,
    ) -> None:
        self.endpoint = endpoint
        self.max_approaches, self.induction_samples = max_approaches, induction_samples
        self.max_new_tokens = max_new_tokens
        for name in ("max_approaches", "induction_samples", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"labeler.{name} must be at least 1, got {getattr(self, name)}")

    def fingerprint(self) -> str:
        """Hash of the model's name, its settings and the prompts; the address of the server does not matter."""
        asked = ["policy"] if self.endpoint is None else [self.endpoint.model, dict(self.endpoint.extra)]
        numbers = [self.max_approaches, self.induction_samples, self.max_new_tokens]
        return _hash(["llm", asked, numbers, templates()])

    def open(self, engine: RolloutEngine, codec: Codec, cache: Path) -> LabelingSession:
        """Begin to ask.

        Raises:
            UsageError: If the endpoint has no address, or the cache cannot be used.
        """
        chat: Chat
        if self.endpoint is None:
            chat = PolicyChat(engine, codec, self.max_new_tokens)
        else:
            chat = EndpointChat(self.endpoint, self.max_new_tokens)
        return _LlmSession(chat, CachedChat(chat, cache, self.fingerprint()), self)


class _LlmSession:
    """A language model at work."""

    def __init__(self, chat: Chat, cached: CachedChat, labeler: LlmLabeler) -> None:
        self._chat, self._cached, self._labeler = chat, cached, labeler

    def check(self) -> None:
        """Ask an endpoint something, so that one that is down is found out before the search."""
        if self._labeler.endpoint is not None:
            list(self._chat.complete(["Answer with the word OK."]))

    def induce(self, seeds: Sequence[Solved]) -> Vocabulary:
        """Name a sample one by one, merge the names.

        Where the model's merged list cannot be read, the most frequent names are taken as they are.

        Raises:
            UsageError: If the model names nothing.
        """
        sample = spread(seeds, self._labeler.induction_samples)
        answers = self._cached.ask([name_prompt(*solved) for solved in sample])
        proposals = [p for p in map(read_proposal, answers) if p is not None]
        if not proposals:
            raise UsageError(
                f"the labeler named no approach in {len(sample)} correct seed solutions: take a model that follows "
                "instructions (search.labeler), more search.seed_samples, or no labeler"
            )
        counts = Counter(proposal.name for proposal in proposals)
        firsts: Mapping[str, Approach] = {p.name: p for p in reversed(proposals)}
        ranked = [(firsts[name], count) for name, count in counts.most_common()]
        limit = self._labeler.max_approaches
        merged = read_merged(self._cached.ask([merge_prompt(ranked, limit)])[0], counts, limit)
        return Vocabulary(merged or tuple(proposal for proposal, _ in ranked[:limit]))

    def label(self, solved: Sequence[Solved], vocabulary: Vocabulary) -> list[str]:
        """Ask for each solution."""
        answers = self._cached.ask([label_prompt(*one, vocabulary) for one in solved])
        return [vocabulary.label_of(answer) for answer in answers]

    def close(self) -> None:
        """Close the cache."""
        self._cached.close()


def spread(seeds: Sequence[Solved], most: int) -> list[Solved]:
    """At most `most` of the seeds, every problem once before any problem twice; the same for the same seeds.

    Args:
        seeds: Solutions in any order; equal ones count once.
        most: Size of the sample.
    """
    by_problem: dict[str, list[Solved]] = {}
    for solved in sorted({(s.problem.id, s.solution): s for s in seeds}.items()):
        by_problem.setdefault(solved[0][0], []).append(solved[1])
    lots = random.Random(0)
    queues = list(by_problem.values())
    lots.shuffle(queues)
    for queue in queues:
        lots.shuffle(queue)
    turns = [queue[turn] for turn in range(max(map(len, queues), default=0)) for queue in queues if turn < len(queue)]
    return turns[:most]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
