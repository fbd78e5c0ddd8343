"""A tiny Llama whose weights start as copying heads, so that it learns within minutes to use names it never saw.

Text-to-SQL is mostly copying: the table and column names of an answer stand in the prompt. A transformer learns the
two-layer circuit for that, "induction heads" (Olsson 2022, "In-context Learning and Induction Heads",
arXiv 2209.11895), only after a long plateau; a model of a million parameters may never leave it. Here the circuit is
written into the weights of a stock `LlamaForCausalLM` at the start. Training is free to change it, and nothing about
the architecture differs, so that the model loads anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def new_tiny_llama(
    vocab_size: int,
    hidden: int = 128,
    layers: int = 4,
    heads: int = 4,
    intermediate: int = 384,
    max_positions: int = 4096,
    rope_theta: float = 100_000.0,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    seed: int = 0,
) -> LlamaForCausalLM:
    """A randomly initialised float32 Llama with tied embeddings; 0.98 M parameters at a vocabulary of 1,024.

    Args:
        vocab_size: Size of the vocabulary.
        hidden: Width of the residual stream.
        layers: Number of layers.
        heads: Attention heads per layer; no grouped queries.
        intermediate: Width of the feed-forward layers.
        max_positions: Longest sequence, in tokens.
        rope_theta: Base of the rotary frequencies.
        bos_id: Beginning-of-sequence token.
        eos_id: End-of-sequence token.
        pad_id: Padding token.
        seed: Seed of the weights; the global generator is left as it was.
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        tie_word_embeddings=True,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        pad_token_id=pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


# Peak attention scores in nats. A head has to beat the sum over some hundred other tokens, so exp(score) must be
# well above the length of a prompt times what a chance resemblance scores.
_OFFSET_SCORE = 45.0
_MATCH_SCORE = 20.0
_IDENTITY_SCALE = 0.05  # size of an embedding entry that says which token it is
_CONSTANT = 3.0  # the constant feature, in units of the identity scale
_QUIET = 0.2  # what is left of the random weights where the circuit is written
_SLOW = 1 / 250  # radians a token: pairs that turn more slowly still match over a prompt's length


@dataclass(frozen=True)
class _Circuit:
    """Which features of the residual stream carry what, and how large they are behind the norms.

    Feature 0 is a constant. Up to half of the width is the token's identity, entries of equal size and random sign, so
    that every token is as large as any other and resembles itself as much; the first of them are its sketch. Behind
    the identity lie the sketch of the token before and of the one before that. The rest is free.
    """

    hidden: int
    heads: int
    rope_theta: float

    @property
    def head(self) -> int:
        """Size of a head."""
        return self.hidden // self.heads

    @property
    def frequencies(self) -> torch.Tensor:
        """Radians by which a token turns each pair of a head, `[head / 2]`; pair i is entries i and i + head / 2."""
        return self.rope_theta ** (-torch.arange(0, self.head, 2) / self.head)

    @property
    def slow(self) -> list[int]:
        """Entries of a head that hardly turn within a prompt: content compared there is compared at any distance."""
        pairs = (self.frequencies < _SLOW).nonzero().flatten().tolist()
        return pairs + [pair + self.head // 2 for pair in pairs]

    @property
    def identity(self) -> slice:
        """Features that say which token it is."""
        return slice(1, self.hidden // 2)

    def sketch(self, offset: int) -> slice:
        """Features that hold the sketch of the token `offset` places before: 0, 1 or 2."""
        size = len(self.slow)
        start = 1 if offset == 0 else self.hidden // 2 + (offset - 1) * size
        return slice(start, start + size)

    def rms(self, sketches: int) -> float:
        """Root mean square of the residual stream when so many earlier tokens' sketches are written."""
        features = _CONSTANT**2 + (self.hidden // 2 - 1) + sketches * len(self.slow)
        return _IDENTITY_SCALE * math.sqrt(features / self.hidden)


@torch.no_grad()
def initialise_copy_heads(model: LlamaForCausalLM, seed: int = 0, copies: float = 1.5, sharpness: float = 1.5) -> None:
    """Write an induction circuit into the first two layers of a freshly initialised Llama, in place.

    Layer 0, heads 0 and 1, look one and two tokens back, whatever stands there: their keys are a constant vector in
    quickly turning rotary pairs and their queries the same vector turned back by the offset, so that the score is a
    sum of cosines that peaks at the offset. They write a sketch of the token they see.

    Layer 1 looks for an earlier place whose preceding token is the current one (first half of the heads), or whose two
    preceding tokens are the current two (second half), and adds the identity of the token found there to the
    residual stream: with tied embeddings that raises its logit. `A B .. A` continues with `B`.

    Args:
        model: Tied embeddings, as many key/value heads as heads, an even number of heads, at least two layers.
        seed: Seed of the embeddings.
        copies: How much of the found token's identity each half of layer 1 adds, relative to a token's own.
        sharpness: Factor on the final norm; larger means more confident copies.

    Raises:
        ValueError: If the model's shape has no room for the circuit.
    """
    config = model.config
    rotary: Any = config.rope_parameters
    circuit = _Circuit(config.hidden_size, config.num_attention_heads, float(rotary["rope_theta"]))
    _check_room(config, circuit)
    embedding = model.model.embed_tokens.weight
    embedding.mul_(_QUIET)
    embedding[:, 0] = _CONSTANT * _IDENTITY_SCALE
    identity = embedding[:, circuit.identity]
    signs = torch.randint(0, 2, identity.shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    identity.copy_(_IDENTITY_SCALE * signs)
    for layer in model.model.layers:
        # Whatever else is written to the residual stream is noise to the circuit until it has learnt something.
        layer.self_attn.o_proj.weight.mul_(_QUIET)
        layer.mlp.down_proj.weight.mul_(_QUIET)
    for offset in (1, 2):
        _look_back(model.model.layers[0].self_attn, circuit, offset)
    for head in range(circuit.heads):
        _match_and_copy(model.model.layers[1].self_attn, circuit, head, copies)
    model.model.norm.weight.mul_(sharpness)


def _check_room(config: LlamaConfig, circuit: _Circuit) -> None:
    grouped = config.num_key_value_heads != config.num_attention_heads
    if grouped or not config.tie_word_embeddings or config.num_hidden_layers < 2 or circuit.heads % 2:
        raise ValueError(
            "copy heads need tied embeddings, no grouped queries, at least 2 layers and an even head count"
        )
    if not 2 <= len(circuit.slow) <= circuit.hidden // 4:
        raise ValueError(
            f"copy heads need 2 to {circuit.hidden // 4} slowly turning entries a head, got {len(circuit.slow)} with "
            f"heads of {circuit.head} and rope_theta={circuit.rope_theta}: change the width, the heads or rope_theta"
        )


def _look_back(attention: Any, circuit: _Circuit, offset: int) -> None:
    """Make head `offset - 1` attend `offset` tokens back and write the sketch of what is there."""
    head = offset - 1
    rows = _quieten(attention, circuit, head)
    half, size = circuit.head // 2, len(circuit.slow)
    # A unit vector over the pairs that are not slow. The quickest weigh most and tell neighbours apart; the others
    # keep the sum of cosines from peaking again at some distance.
    key = torch.zeros(circuit.head)
    quick = half - size // 2
    key[:quick] = 0.8 ** (torch.arange(quick) / 2)
    key /= key.norm()
    angle = -offset * circuit.frequencies
    cos, sin = angle.cos(), angle.sin()
    query = torch.cat([key[:half] * cos - key[half:] * sin, key[half:] * cos + key[:half] * sin])
    constant = _CONSTANT * _IDENTITY_SCALE / circuit.rms(sketches=0)
    gain = math.sqrt(_OFFSET_SCORE * math.sqrt(circuit.head)) / constant
    attention.k_proj.weight[rows, 0] = gain * key
    attention.q_proj.weight[rows, 0] = gain * query
    written = slice(rows.start, rows.start + size)
    attention.v_proj.weight[written, circuit.sketch(0)] += torch.eye(size)
    # Undoes the norm, so that a written sketch is as large as the token's own.
    attention.o_proj.weight[circuit.sketch(offset), written] += circuit.rms(sketches=0) * torch.eye(size)


def _match_and_copy(attention: Any, circuit: _Circuit, head: int, copies: float) -> None:
    """Make a head attend to what followed the current token, or the current two, before, and add its identity."""
    rows = _quieten(attention, circuit, head)
    two_tokens = head >= circuit.heads // 2
    scale = _IDENTITY_SCALE / circuit.rms(sketches=2)
    gain = math.sqrt(_MATCH_SCORE * math.sqrt(circuit.head) / len(circuit.slow)) / scale
    for index, entry in enumerate(circuit.slow):
        # The current token's sketch meets sketches of tokens before; in the second half of the heads every other
        # entry compares the token before with the one two before.
        looks_back = int(two_tokens and index % 2 == 1)
        attention.q_proj.weight[rows.start + entry, circuit.sketch(looks_back).start + index] += gain
        attention.k_proj.weight[rows.start + entry, circuit.sketch(looks_back + 1).start + index] += gain
    # The heads of one half share the identity's features among them.
    first = circuit.identity.start + head % (circuit.heads // 2) * circuit.head
    for entry, feature in enumerate(range(first, min(first + circuit.head, circuit.identity.stop))):
        attention.v_proj.weight[rows.start + entry, feature] += 1.0
        attention.o_proj.weight[feature, rows.start + entry] += copies * circuit.rms(sketches=2)


def _quieten(attention: Any, circuit: _Circuit, head: int) -> slice:
    """Shrink a head's random weights, so that the circuit stands out; returns the head's rows."""
    rows = slice(head * circuit.head, (head + 1) * circuit.head)
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[rows] *= _QUIET
    attention.o_proj.weight[:, rows] = 0.0
    return rows
