"""A deterministic engine and codec for arithmetic, in pure Python: what the tests of the search generate with.

It reads the prompt, takes the parent (or the problem's own expression) and rewrites it by chance, in the direction
of the form that is asked for, and sometimes wrongly.
"""

import random
import re
import time
import zlib

from elite_lightning.types import Completion, FinishReason

END = 0


class CharacterCodec:
    """One token a character, and one for the end."""

    fingerprint = "characters"

    def encode_prompt(self, text):
        return [ord(character) for character in text]

    def encode_response(self, text):
        return [*(ord(character) for character in text), END]

    def decode(self, token_ids):
        return "".join(chr(token) for token in token_ids if token != END)


def direct(a, terms, rng):
    return f"{a} * ({' + '.join(map(str, terms))})"


def commuted(a, terms, rng):
    head, *rest = terms
    inner = f"{head} + {rest[0]}" if rng.random() < 0.5 else f"{rest[0]} + {head}"
    return f"({inner} + {rest[1]}) * {a}"


def grouped(a, terms, rng):
    x, y, z = rng.sample(terms, 3)
    return rng.choice([f"{a} * ({x} + {y}) + {a} * {z}", f"{a} * ({x} + ({y} + {z}))"])


def expanded(a, terms, rng):
    x, y, z = rng.sample(terms, 3)
    return f"{a} * {x} + {a} * {y} + {a} * {z}"


FORMS = {"direct": direct, "commuted": commuted, "grouped": grouped, "expanded": expanded}


class RewritingEngine:
    """Plain prompts give `direct` nine times out of ten; a target is met mostly, with a parent more often.

    Args:
        seconds: Sleep per call, for tests that kill.
        share_right: Share of responses that are right.
        always: A fixed response to every prompt, or None.
    """

    def __init__(self, seconds=0.0, share_right=0.7, always=None):
        self.seconds, self.share_right, self.always = seconds, share_right, always
        self.prompts = []

    def generate(self, prompts, n, sampling, seed):
        time.sleep(self.seconds)
        texts = ["".join(map(chr, prompt)) for prompt in prompts]
        self.prompts.extend(text for text in texts)
        return [
            [self._completion(random.Random(f"{seed}/{row}/{i}"), text, sampling) for i in range(n)]
            for row, text in enumerate(texts)
        ]

    def _completion(self, rng, prompt, sampling):
        text = self.always if self.always is not None else self._respond(rng, prompt)
        tokens = [*map(ord, text), END]
        whole = len(tokens) <= sampling.max_new_tokens
        tokens = tokens[: sampling.max_new_tokens]
        reason = FinishReason.STOP if whole else FinishReason.LENGTH
        return Completion(tuple(tokens), (0.0,) * len(tokens), reason, text[: sampling.max_new_tokens])

    def _respond(self, rng, prompt):
        a, *terms = map(int, re.findall(r"\d+", prompt.splitlines()[0]))
        asked = re.search(r"form: (\w+)", prompt)
        hits = 0.7 if "from:" in prompt else 0.5
        if asked is None:
            form = "direct" if rng.random() < 0.9 else rng.choice(list(FORMS))
        else:
            form = asked[1] if rng.random() < hits else rng.choice(list(FORMS))
        # Some problems are hard: they differ by their numbers, not by chance.
        hard = zlib.crc32(prompt.splitlines()[0].encode()) % 4 == 0
        right = rng.random() < (self.share_right / 10 if hard else self.share_right)
        text = FORMS[form](a, terms, rng)
        return text.replace(" ", "") * (rng.random() < 0.5) or text if right else rng.choice([text + " + 1", "?", ""])
