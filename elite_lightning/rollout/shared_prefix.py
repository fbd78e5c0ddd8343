"""Rows of one prompt share its keys and values: attention reads a prompt once for all of its samples.

At every token, a row attends to its prompt and to its own response. Copies of the prompt in every row make this the
largest part of the work: reading them takes longer than all arithmetic. Here all rows of a prompt are multiplied
with its keys in one matrix product, each row with its own response's keys beside it, and the two softmaxes are put
together by their maxima and sums (the online softmax of Milakov and Gimelshein 2018, arXiv 1805.02867; the split by
shared prefix is Juravsky et al. 2024, "Hydragen", arXiv 2402.05099).

It needs a model that lets its attention function be chosen and attends to everything before a token
(`attention.attends_to_everything`); others use copies (`ExpandedMemory`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import AttentionInterface

from elite_lightning.rollout.memory import Prefilled

ATTENTION = "elite_shared_prefix"
_active: ContextVar[SharedMemory] = ContextVar("shared_prefix_memory")


class SharedMemory:
    """Keys and values of prompts, one copy each, and of responses, one row each.

    Args:
        slots: Most rows at once.
        max_new_tokens: Most tokens of a response.
        device: Where the model is.
    """

    def __init__(self, slots: int, max_new_tokens: int, device: torch.device) -> None:
        # One column more than a row may have tokens: an ended row goes on writing there, and harms nothing.
        self.cache: Cache = ResponseCache(self, slots, max_new_tokens + 1)
        self.prompts: list[tuple[Prefilled | None, int]] = []
        self.prompt_of = torch.zeros(slots, dtype=torch.int64, device=device)
        self.all_rows = torch.arange(slots, device=device)
        self.all_columns = torch.arange(max_new_tokens + 1, device=device)
        self.size = self.columns = 0
        self.stale = True

    def admit(self, rows: slice, length: int, prefilled: Prefilled | None) -> None:
        """Note whose prompt the rows have; nothing is copied per row."""
        self.prompt_of[rows] = len(self.prompts)
        self.prompts.append((prefilled, length - 1))
        self.stale = True

    def advance(self, size: int, written: torch.Tensor, _alive: torch.Tensor) -> None:
        """Column of every row's next token; rows have columns of their own."""
        self.stale |= size != self.size
        self.size, self.column = size, written[:size]
        self.columns = int(self.column.max()) + 1
        self.hidden = (self.all_columns[: self.columns] > self.column[:, None])[:, None, None]
        if self.stale:
            self._regroup()

    def move(self, movers: torch.Tensor, gaps: torch.Tensor) -> None:
        """Copy rows with their responses' keys."""
        self.prompt_of[gaps] = self.prompt_of[movers]
        for layer in cast(list[ResponseLayer], self.cache.layers):
            layer.keys[gaps, :, : self.columns] = layer.keys[movers, :, : self.columns]
            layer.values[gaps, :, : self.columns] = layer.values[movers, :, : self.columns]
        self.stale = True

    def _regroup(self) -> None:
        """Lay out the rows by prompt, and forget prompts without rows."""
        used, group = torch.unique(self.prompt_of[: self.size], return_inverse=True)
        self.prompts = [self.prompts[index] for index in used.tolist()]
        self.prompt_of[: self.size] = group
        counts = group.bincount()
        first = counts.cumsum(0) - counts
        order = group.argsort(stable=True)
        # Row `members[g, j]` is the j-th of prompt g; where a prompt has fewer rows than another, row 0 fills up.
        places = self.all_rows[: self.size] - first[group[order]]
        self.members = torch.zeros(len(counts), int(counts.max()), dtype=torch.int64, device=order.device)
        self.members[group[order], places] = order
        self.place = torch.empty_like(order)
        self.place[order] = group[order] * self.members.shape[1] + places
        self._gather_prompts()
        self.stale = False

    def _gather_prompts(self) -> None:
        lengths = torch.tensor([length for _, length in self.prompts], device=self.all_rows.device)
        longest = max(1, int(lengths.max()))
        self.padding = (torch.arange(longest, device=lengths.device) >= lengths[:, None])[:, None, None]
        for index, layer in enumerate(cast(list[ResponseLayer], self.cache.layers)):
            layer.read_prompts(index, self.prompts, longest)


class ResponseLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer: keys and values of responses `[slots, heads, columns, head size]`, of prompts `[prompts, ...]`."""

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, memory: SharedMemory, slots: int, columns: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory, self.slots, self.columns = memory, slots, columns

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Reserve the memory. Zeros: a hidden column has weight 0, and 0 times a NaN would still be NaN."""
        (_, heads, _, key_size), value_size = key_states.shape, value_states.shape[-1]
        self.keys = key_states.new_zeros(self.slots, heads, self.columns, key_size)
        self.values = value_states.new_zeros(self.slots, heads, self.columns, value_size)
        self.read_prompts(self.memory.cache.layers.index(self), self.memory.prompts, self.memory.padding.shape[-1])
        self.is_initialized = True

    def read_prompts(self, index: int, prompts: list[tuple[Prefilled | None, int]], longest: int) -> None:
        """Put the prompts' keys and values of layer `index` side by side, padded on the right."""
        shape = (len(prompts), self.keys.shape[1], longest)
        self.prompt_keys = self.keys.new_zeros(*shape, self.keys.shape[-1])
        self.prompt_values = self.values.new_zeros(*shape, self.values.shape[-1])
        for place, (prefilled, length) in enumerate(prompts):
            if prefilled is not None:
                source, row = prefilled
                self.prompt_keys[place, :, :length] = source.slot_layers[index].keys[row, :, :length]
                self.prompt_values[place, :, :length] = source.slot_layers[index].values[row, :, :length]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token `[rows, heads, 1, head size]` into every row's column; returns what rows have so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        memory = self.memory
        rows = memory.all_rows[: memory.size]
        self.keys[rows, :, memory.column] = key_states.squeeze(2)
        self.values[rows, :, memory.column] = value_states.squeeze(2)
        return self.keys[: memory.size, :, : memory.columns], self.values[: memory.size, :, : memory.columns]

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """Of responses only; the masks are this module's own."""
        return self.memory.columns, 0

    def get_seq_length(self) -> int:
        """Columns of responses; positions are given to the model, not derived from this."""
        return self.memory.columns

    def get_max_length(self) -> int:
        """Columns reserved."""
        return self.columns

    get_max_cache_shape = get_max_length  # what earlier releases of transformers 5 call it


class ResponseCache(Cache):
    """One `ResponseLayer` per layer of the model, created when the model first writes to it."""

    def __init__(self, memory: SharedMemory, slots: int, columns: int) -> None:
        replicated: Any = partial(ResponseLayer, memory, slots, columns)
        super().__init__(layer_class_to_replicate=replicated)


@contextmanager
def shared_attention(config: Any, memory: SharedMemory) -> Iterator[None]:
    """Within it, the model with this configuration attends through `memory`."""
    before, token = config._attn_implementation, _active.set(memory)
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before
        _active.reset(token)


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    scaling: float | None = None,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one new token a row to its prompt and its response.

    Args:
        module: The attention layer; its `layer_idx` says which.
        query: `[rows, query heads, 1, head size]`.
        key: `[rows, heads, columns, head size]`, the responses' keys.
        value: `[rows, heads, columns, value size]`.
        scaling: Factor of the scores; one over the root of the head size by default.

    Returns:
        `[rows, 1, query heads, value size]`, and None in place of weights.
    """
    memory = _active.get()
    layer = cast(ResponseLayer, memory.cache.layers[cast(int, module.layer_idx)])
    rows, heads, size = query.shape[0], key.shape[1], query.shape[-1]
    scaled = query.reshape(rows, heads, -1, size) * (size**-0.5 if scaling is None else scaling)
    own = _partial(scaled, key, value, memory.hidden)
    by_prompt = scaled[memory.members].transpose(1, 2).flatten(2, 3)
    prompt = _partial(by_prompt, layer.prompt_keys, layer.prompt_values, memory.padding)
    most = memory.members.shape[1]
    ungrouped = (_rows_first(part, most)[memory.place] for part in prompt)
    output = _merge(own, tuple(ungrouped))
    return output.reshape(rows, 1, -1, value.shape[-1]).to(query.dtype), None


def _partial(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, hidden: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Weighted values before division, largest score, and sum of the weights; float32 from the scores on."""
    scores = (query @ key.transpose(-1, -2)).float().masked_fill_(hidden, torch.finfo(torch.float32).min)
    largest = scores.amax(-1, keepdim=True)
    weights = scores.sub_(largest).exp_()
    return (weights.to(value.dtype) @ value).float(), largest, weights.sum(-1, keepdim=True)


def _rows_first(part: torch.Tensor, rows: int) -> torch.Tensor:
    """`[prompts, heads, rows * group, size]` to `[prompts * rows, heads, group, size]`."""
    prompts, heads, _, size = part.shape
    return part.view(prompts, heads, rows, -1, size).transpose(1, 2).reshape(prompts * rows, heads, -1, size)


def _merge(own: tuple[torch.Tensor, ...], prompt: tuple[torch.Tensor, ...]) -> torch.Tensor:
    largest = torch.maximum(own[1], prompt[1])
    mine, theirs = (own[1] - largest).exp_(), (prompt[1] - largest).exp_()
    return (own[0] * mine + prompt[0] * theirs) / (own[2] * mine + prompt[2] * theirs)


AttentionInterface.register(ATTENTION, attend)
