"""An engine and a codec that cost next to nothing, so that only what is around them is measured."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from elite_lightning.types import Completion, FinishReason, Sampling


class Characters:
    """One token a character, and one for the end."""

    fingerprint = "characters"

    def encode_prompt(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def encode_response(self, text: str) -> list[int]:
        return [*self.encode_prompt(text), 0]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids)).rstrip("\0")


class Rewriter:
    """An engine that answers at once: one of some rewritings of the expression in the prompt, or a wrong one."""

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int, _sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        draws = random.Random(seed)
        return [[self._answer("".join(map(chr, prompt)), draws) for _ in range(n)] for prompt in prompts]

    def _answer(self, prompt: str, draws: random.Random) -> Completion:
        first, *terms = re.findall(r"\d+", prompt)[:4]
        draws.shuffle(terms)
        form = draws.choice(["{0}*({1}+{2}+{3})", "({1}+{2}+{3})*{0}", "{0}*{1}+{0}*({2}+{3})", "{1}*({0}+{2}+{3})"])
        ids = (*map(ord, form.format(first, *terms)), 0)
        return Completion(ids, (0.0,) * len(ids), FinishReason.STOP, "".join(map(chr, ids[:-1])))
