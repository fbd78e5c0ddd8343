"""A key/value cache whose rows are slots: memory is reserved once and rows come, go and move within it.

The caches of transformers grow by `torch.cat`, which copies all keys and values at every token. Here a token is
written in place and attention reads a view.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, each `[slots, heads, columns, head size]`.

    All rows share the column that is written next; a row that started later has unused columns on its left, which
    the attention mask hides. The memory starts as zeros: a hidden column has weight 0, and 0 times a NaN that
    happened to lie there would still be NaN.

    Args:
        slots: Most rows at once.
        columns: Most tokens, counted from the first column that is still needed.
    """

    is_sliding = False
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, slots: int, columns: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.slots, self.columns, self.length = slots, columns, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Reserve the memory, with head count, head size, dtype and device of `[rows, heads, time, head size]`."""
        (_, heads, _, key_size), value_size = key_states.shape, value_states.shape[-1]
        self.keys = key_states.new_zeros(self.slots, heads, self.columns, key_size)
        self.values = value_states.new_zeros(self.slots, value_states.shape[1], self.columns, value_size)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[rows, heads, time, head size]` behind what is there; returns views of the first `rows` slots."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, end = key_states.shape[0], self.length + key_states.shape[2]
        self.keys[:rows, :, self.length : end] = key_states
        self.values[:rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of what attention sees when `query_length` tokens are added."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Columns written so far."""
        return self.length

    def get_max_length(self) -> int:
        """Columns reserved."""
        return self.columns

    get_max_cache_shape = get_max_length  # what earlier releases of transformers 5 call it


class SlotCache(Cache):
    """One `SlotLayer` per layer of the model, created when the model first writes to it.

    Args:
        slots: Most rows at once.
        columns: Most tokens of a row, plus what the rows' different starts waste.
    """

    def __init__(self, slots: int, columns: int) -> None:
        self._new_layer = partial(SlotLayer, slots, columns)
        replicated: Any = self._new_layer  # called without arguments, so a partial serves as well as a class
        super().__init__(layer_class_to_replicate=replicated)

    def seek(self, column: int) -> None:
        """Write the next token at this column; what is behind it is forgotten."""
        for layer in self.slot_layers:
            layer.length = column

    def place(self, slots: slice, column: int, source: SlotCache, row: int, length: int) -> None:
        """Copy the first `length` columns of a row of another cache into each of `slots`, to end before `column`."""
        while len(self.layers) < len(source.layers):
            self.layers.append(self._new_layer())
        for mine, theirs in zip(self.slot_layers, source.slot_layers, strict=True):
            if not theirs.is_initialized:  # a layer that reads another layer's keys and has none of its own
                continue
            if not mine.is_initialized:
                mine.lazy_initialization(theirs.keys, theirs.values)
            mine.keys[slots, :, column - length : column] = theirs.keys[row, :, :length]
            mine.values[slots, :, column - length : column] = theirs.values[row, :, :length]

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy the rows `sources` over the rows `targets`; both are `[count]` int64."""
        for layer in self._written():
            layer.keys[targets, :, : layer.length] = layer.keys[sources, :, : layer.length]
            layer.values[targets, :, : layer.length] = layer.values[sources, :, : layer.length]

    def shift(self, columns: int) -> None:
        """Forget the first `columns` columns, which no row needs any more, and move the others to the left."""
        for layer in self._written():
            kept = slice(columns, layer.length)
            layer.length -= columns
            layer.keys[:, :, : layer.length] = layer.keys[:, :, kept].clone()
            layer.values[:, :, : layer.length] = layer.values[:, :, kept].clone()

    @property
    def slot_layers(self) -> list[SlotLayer]:
        """The layers that exist so far."""
        return cast(list[SlotLayer], self.layers)

    def _written(self) -> list[SlotLayer]:
        return [layer for layer in self.slot_layers if layer.is_initialized]
