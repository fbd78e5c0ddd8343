"""Drawing tokens: randomness that belongs to a row, and inverse-CDF sampling that uses one number a token."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

import numpy as np
import torch

# The largest uniform that is handed out: rounding u * total must never reach the total itself.
_BELOW_ONE = 1.0 - 2.0**-50


def prompt_digest(prompt: Sequence[int]) -> bytes:
    """32 bytes that stand for a prompt's content.

    Args:
        prompt: Token ids.
    """
    return hashlib.blake2b(array("q", prompt).tobytes(), digest_size=32).digest()


def row_uniforms(seed: int, prompt: bytes, sample: int, count: int) -> torch.Tensor:
    """The uniforms in [0, 1) that decide one row, `[count]` float64, one a token.

    They depend on nothing but the arguments: not on the batch, its size or its order. A longer row starts with
    the numbers of a shorter one. Philox is counter-based, so that nearby keys give unrelated streams (Salmon 2011,
    "Parallel random numbers: as easy as 1, 2, 3").

    Args:
        seed: Seed of the call.
        prompt: `prompt_digest` of the row's prompt.
        sample: Which of this prompt's samples the row is.
        count: How many tokens the row may have.
    """
    key = hashlib.blake2b(f"{seed} {sample} ".encode() + prompt, digest_size=16).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    return torch.from_numpy(np.minimum(generator.random(count), _BELOW_ONE))


def draw(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row, and its log-probability.

    Inverse-CDF sampling: the token is the first whose cumulative probability exceeds the row's uniform. The
    probabilities are float32; they are added up in float64, because a float32 sum near 1 moves in steps of 6e-8
    and would swallow or inflate every rarer token behind it.

    Args:
        logits: `[rows, vocabulary]`, any floating dtype.
        temperature: Softmax temperature; 0 takes the most probable token.
        uniforms: `[rows]` float64 in [0, 1); unused when greedy.

    Returns:
        Token ids `[rows]` int64, and natural log-probabilities `[rows]` float32: under `softmax(logits /
        temperature)`, or under `softmax(logits)` when greedy, where the distribution drawn from says nothing.
    """
    scaled = logits.float()
    if temperature not in (0.0, 1.0):
        # Shifted first, so that a very small temperature overflows to -inf and not to inf - inf.
        scaled = (scaled - scaled.amax(-1, keepdim=True)) / temperature
    logprobs = scaled.log_softmax(-1)
    if temperature == 0.0:
        tokens = logprobs.argmax(-1)
    else:
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        targets = uniforms[:, None] * cumulative[:, -1:]
        # The clamp only matters for NaN logits, which no comparison exceeds; the caller sees the NaN log-probability.
        tokens = torch.searchsorted(cumulative, targets, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
    return tokens, logprobs.gather(-1, tokens[:, None]).squeeze(-1)
