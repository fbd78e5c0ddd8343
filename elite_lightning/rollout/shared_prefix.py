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

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_utils import AttentionInterface

from elite_lightning.rollout.memory import Prefilled

ATTENTION = "elite_shared_prefix"
_active: ContextVar[SharedMemory] = ContextVar("shared_prefix_memory")


@dataclass
class _Layout:
    """Which row has which prompt and how far it has come: what all layers go by.

    Apart from the memory, which holds the layers: with the two holding each other, nothing would be freed before the
    garbage collector comes by.
    """

    rows: torch.Tensor  # [size], 0, 1, 2, ...
    column: torch.Tensor  # [size], where each row's next token goes
    columns: int  # of which any row has written or will write now
    hidden: torch.Tensor  # [size, 1, 1, columns], True where a row has written nothing
    prompts: list[tuple[Prefilled | None, int]]  # cached tokens of each prompt, and how many
    padding: torch.Tensor  # [prompts, 1, 1, longest], True behind a prompt's end
    members: torch.Tensor  # [prompts, most rows of one], the rows of each prompt; row 0 fills up
    place: torch.Tensor  # [size], where in the flattened members each row is

    @property
    def longest(self) -> int:
        """Columns that the prompts' keys take."""
        return self.padding.shape[-1]


class SharedMemory:
    """Keys and values of prompts, one copy each, and of responses, one row each.

    Args:
        slots: Most rows at once.
        max_new_tokens: Most tokens of a response.
        device: Where the model is.
    """

    def __init__(self, slots: int, max_new_tokens: int, device: torch.device) -> None:
        # One column more than a row may have tokens: an ended row goes on writing there, and harms nothing.
        columns = max_new_tokens + 1
        none = torch.zeros(0, dtype=torch.int64, device=device)
        self.layout = _Layout(none, none, 0, none, [], none, none, none)
        self.cache: Cache = ResponseCache(self.layout, slots, columns)
        self._prompt_of = torch.zeros(slots, dtype=torch.int64, device=device)
        self._all_rows = torch.arange(slots, device=device)
        self._all_columns = torch.arange(columns, device=device)
        self._stale = True

    def admit(self, rows: slice, length: int, prefilled: Prefilled | None) -> None:
        """Note whose prompt the rows have; nothing is copied per row."""
        self._prompt_of[rows] = len(self.layout.prompts)
        self.layout.prompts.append((prefilled, length - 1))
        self._stale = True

    def advance(self, size: int, written: torch.Tensor, _alive: torch.Tensor) -> None:
        """Column of every row's next token; rows have columns of their own."""
        layout = self.layout
        self._stale |= size != len(layout.rows)
        layout.rows, layout.column = self._all_rows[:size], written[:size]
        layout.columns = int(layout.column.max()) + 1
        layout.hidden = (self._all_columns[: layout.columns] > layout.column[:, None])[:, None, None]
        if self._stale:
            self._regroup(size)

    def move(self, movers: torch.Tensor, gaps: torch.Tensor) -> None:
        """Copy rows with their responses' keys."""
        self._prompt_of[gaps] = self._prompt_of[movers]
        columns = self.layout.columns
        for layer in cast(list[ResponseLayer], self.cache.layers):
            layer.keys[gaps, :, :columns] = layer.keys[movers, :, :columns]
            layer.values[gaps, :, :columns] = layer.values[movers, :, :columns]
        self._stale = True

    def _regroup(self, size: int) -> None:
        """Lay out the rows by prompt, and forget prompts without rows."""
        layout = self.layout
        used, group = torch.unique(self._prompt_of[:size], return_inverse=True)
        layout.prompts = [layout.prompts[index] for index in used.tolist()]
        self._prompt_of[:size] = group
        counts = group.bincount()
        first = counts.cumsum(0) - counts
        order = group.argsort(stable=True)
        places = layout.rows - first[group[order]]
        layout.members = torch.zeros(len(counts), int(counts.max()), dtype=torch.int64, device=order.device)
        layout.members[group[order], places] = order
        layout.place = torch.empty_like(order)
        layout.place[order] = group[order] * layout.members.shape[1] + places
        lengths = torch.tensor([length for _, length in layout.prompts], device=order.device)
        longest = max(1, int(lengths.max()))
        layout.padding = (torch.arange(longest, device=order.device) >= lengths[:, None])[:, None, None]
        for layer in cast(list[ResponseLayer], self.cache.layers):
            layer.read_prompts()
        self._stale = False


class ResponseLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer: keys and values of responses `[slots, heads, columns, head size]`, of prompts `[prompts, ...]`."""

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, layout: _Layout, slots: int, columns: int, index: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layout, self.slots, self.columns, self.index = layout, slots, columns, index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Reserve the memory. Zeros: a hidden column has weight 0, and 0 times a NaN would still be NaN."""
        (_, heads, _, key_size), value_size = key_states.shape, value_states.shape[-1]
        self.keys = key_states.new_zeros(self.slots, heads, self.columns, key_size)
        self.values = value_states.new_zeros(self.slots, heads, self.columns, value_size)
        self.read_prompts()
        self.is_initialized = True

    def read_prompts(self) -> None:
        """Put the prompts' keys and values of this layer side by side, padded on the right."""
        shape = (len(self.layout.prompts), self.keys.shape[1], self.layout.longest)
        self.prompt_keys = self.keys.new_zeros(*shape, self.keys.shape[-1])
        self.prompt_values = self.values.new_zeros(*shape, self.values.shape[-1])
        for place, (prefilled, length) in enumerate(self.layout.prompts):
            if prefilled is not None:
                layer, row = prefilled[0].slot_layers[self.index], prefilled[1]
                self.prompt_keys[place, :, :length] = layer.keys[row, :, :length]
                self.prompt_values[place, :, :length] = layer.values[row, :, :length]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token `[rows, heads, 1, head size]` into every row's column; returns what rows have so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        layout, size = self.layout, len(self.layout.rows)
        self.keys[layout.rows, :, layout.column] = key_states.squeeze(2)
        self.values[layout.rows, :, layout.column] = value_states.squeeze(2)
        return self.keys[:size, :, : layout.columns], self.values[:size, :, : layout.columns]

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """Of responses only; the masks are this module's own."""
        return self.layout.columns, 0

    def get_seq_length(self) -> int:
        """Columns of responses; positions are given to the model, not derived from this."""
        return self.layout.columns

    def get_max_length(self) -> int:
        """Columns reserved."""
        return self.columns

    get_max_cache_shape = get_max_length  # what earlier releases of transformers 5 call it


class ResponseCache(Cache):
    """One `ResponseLayer` per layer of the model, created in their order when the model first writes to it."""

    def __init__(self, layout: _Layout, slots: int, columns: int) -> None:
        indices = itertools.count()
        replicated: Any = lambda: ResponseLayer(layout, slots, columns, next(indices))  # noqa: E731 - an argument
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
    layout, layer = memory.layout, cast(ResponseLayer, memory.cache.layers[cast(int, module.layer_idx)])
    rows, heads, size = query.shape[0], key.shape[1], query.shape[-1]
    scaled = query.reshape(rows, heads, -1, size) * (size**-0.5 if scaling is None else scaling)
    own = _partial(scaled, key, value, layout.hidden)
    by_prompt = scaled[layout.members].transpose(1, 2).flatten(2, 3)
    prompt = _partial(by_prompt, layer.prompt_keys, layer.prompt_values, layout.padding)
    most = layout.members.shape[1]
    ungrouped = (_rows_first(part, most)[layout.place] for part in prompt)
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
