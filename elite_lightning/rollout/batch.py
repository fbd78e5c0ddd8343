"""The rows that are being written, side by side: one forward pass and one token each per step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from elite_lightning.rollout.memory import Prefilled, RowMemory
from elite_lightning.rollout.sampling import draw

Decode = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, RowMemory], torch.Tensor]


@dataclass(frozen=True, slots=True)
class FinishedRow:
    """Tokens and log-probabilities of a row that has ended; `owner` is whatever number it was admitted under."""

    owner: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class DecodingBatch:
    """Rows in the slots `0 .. size - 1` of a `RowMemory`, dead and alive.

    Ended rows are carried along until `release` takes them out: moving rows costs more than a few wasted rows do.

    Args:
        memory: Holds the rows' keys and values.
        slots: Most rows at once.
        max_new_tokens: Most tokens of a row.
        eos_id: Token that ends a row.
        temperature: Softmax temperature, see `sampling.draw`.
        device: Where the model is.
    """

    def __init__(
        self,
        memory: RowMemory,
        slots: int,
        max_new_tokens: int,
        eos_id: int,
        temperature: float,
        device: torch.device,
    ) -> None:
        self.memory, self.slots, self.max_new_tokens = memory, slots, max_new_tokens
        self.eos_id, self.temperature = eos_id, temperature
        self.size = self.alive_count = 0

        def per_row(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.zeros(slots, *shape, dtype=dtype, device=device)

        self.owner, self.position, self.pending = per_row(), per_row(), per_row()
        self.alive = per_row(dtype=torch.bool)
        # One column more than a row may have tokens: an ended row goes on writing there, and harms nothing.
        self.written = per_row()
        self.uniforms = per_row(max_new_tokens + 1, dtype=torch.float64)
        self.tokens = per_row(max_new_tokens + 1)
        self.logprobs = per_row(max_new_tokens + 1, dtype=torch.float32)

    @property
    def free(self) -> int:
        """Slots that `admit` can still fill."""
        return self.slots - self.size

    def admit(
        self,
        owners: torch.Tensor,
        uniforms: torch.Tensor,
        last_token: int,
        length: int,
        prefilled: Prefilled | None,
    ) -> None:
        """Put samples of one prompt into free slots.

        The prompt's last token is not in the cache: it is the first thing that `step` feeds, so that a row always
        has exactly one pending token.

        Args:
            owners: `[count]` int64, the numbers under which the rows are given back.
            uniforms: `[count, max_new_tokens]` float64, the randomness of each.
            last_token: The prompt's last token.
            length: Length of the prompt.
            prefilled: Cache that holds the prompt's other tokens, and the row in it; None for a one-token prompt.
        """
        rows = slice(self.size, self.size + len(owners))
        self.memory.admit(rows, length, prefilled)
        self.owner[rows], self.uniforms[rows, : self.max_new_tokens] = owners, uniforms
        self.position[rows] = length - 1
        self.pending[rows], self.written[rows], self.alive[rows] = last_token, 0, True
        self.size = rows.stop
        self.alive_count += len(owners)

    def step(self, decode: Decode) -> None:
        """Feed every row's pending token and draw its next one.

        Args:
            decode: Takes ids `[rows, 1]`, the memory's mask, positions `[rows, 1]` and the memory; returns the next
                token's logits `[rows, vocabulary]`.
        """
        rows = slice(0, self.size)
        mask = self.memory.advance(self.size, self.written, self.alive)
        logits = decode(self.pending[rows, None], mask, self.position[rows, None], self.memory)
        at, alive = self.written[rows, None], self.alive[rows]
        tokens, logprobs = draw(logits, self.temperature, self.uniforms[rows].gather(1, at).squeeze(1))
        self.tokens[rows].scatter_(1, at, tokens[:, None])
        self.logprobs[rows].scatter_(1, at, logprobs[:, None])
        self.pending[rows] = tokens
        self.position[rows] += alive  # an ended row stays where it is, so that no position passes the model's limit
        self.written[rows] += alive
        alive &= (tokens != self.eos_id) & (self.written[rows] < self.max_new_tokens)
        self.alive_count = int(alive.sum())

    def release(self) -> list[FinishedRow]:
        """Take ended rows out, so that the others are side by side; returns the ended rows."""
        alive = self.alive[: self.size]
        finished = self._finished((~alive).nonzero().flatten())
        if finished:
            order = self.memory.keep(alive)
            states = (self.owner, self.position, self.pending, self.alive, self.written)
            for state in (*states, self.uniforms, self.tokens, self.logprobs):
                state[: len(order)] = state[order]
        self.size = self.alive_count
        return finished

    def _finished(self, slots: torch.Tensor) -> list[FinishedRow]:
        columns = (self.owner, self.written, self.tokens, self.logprobs)
        return [
            FinishedRow(owner, tuple(tokens[:count]), tuple(logprobs[:count]))
            for owner, count, tokens, logprobs in zip(*(column[slots].tolist() for column in columns), strict=True)
        ]
