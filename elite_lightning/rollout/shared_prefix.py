"""Rows of one prompt share its keys and values: attention reads a prompt once for all of its samples.

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

from elite_lightning.rollout.cohort import Admitted, Cohort
from elite_lightning.rollout.memory import Prefilled

ATTENTION = "elite_shared_prefix"
_active: ContextVar[SharedMemory] = ContextVar("shared_prefix_memory")


class SharedMemory:
    """Keys and values of prompts, one copy each, and of responses, one row each; rows lie in cohorts, oldest first.

    Args:
        max_new_tokens: Most tokens of a response.
        device: Where the model is.
    """

    def __init__(self, max_new_tokens: int, device: torch.device) -> None:
        self.device, self.columns = device, max_new_tokens
        # Apart from the memory: with memory and cache holding each other, nothing would be freed before the garbage
        # collector comes by.
        self.cohorts: list[Cohort] = []
        self.cache: Cache = ResponseCache(self.cohorts)
        self._waiting: list[Admitted] = []

    def admit(self, rows: slice, length: int, prefilled: Prefilled | None) -> None:
        """Note whose prompt the rows have; nothing is copied per row."""
        self._waiting.append(Admitted(rows.stop - rows.start, length - 1, prefilled))

    def advance(self, _size: int, _written: torch.Tensor, _alive: torch.Tensor) -> None:
        """Go to every row's next column; what was admitted since the last step is a cohort."""
        if self._waiting:
            self.cohorts.append(Cohort(self._waiting, self.columns, self.device))
            self._waiting = []
        for cohort in self.cohorts:
            cohort.advance()

    def keep(self, alive: torch.Tensor) -> torch.Tensor:
        """Take ended rows out; the others keep their order, so that cohorts stay together."""
        sizes = [cohort.size for cohort in self.cohorts]
        for cohort, part in zip(self.cohorts, torch.split(alive, sizes), strict=True):
            rows = part.nonzero().flatten()
            if len(rows) < len(part):
                cohort.keep(rows)
        self.cohorts[:] = [cohort for cohort in self.cohorts if cohort.size]
        return alive.nonzero().flatten()

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """`Cohort.attend` for the rows of all cohorts, one cohort after the other."""
        sizes = [cohort.size for cohort in self.cohorts]
        if len(sizes) == 1:
            return self.cohorts[0].attend(layer, query, key, value)
        parts = zip(self.cohorts, *(torch.split(whole, sizes) for whole in (query, key, value)), strict=True)
        return torch.cat([cohort.attend(layer, *part) for cohort, *part in parts])


class ResponseLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of the cohorts as a model sees it; writing and reading are the attention function's."""

    is_sliding = False

    def __init__(self, cohorts: list[Cohort]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cohorts = cohorts

    def lazy_initialization(self, _key_states: torch.Tensor, _value_states: torch.Tensor) -> None:
        """Cohorts reserve their own memory."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hand one token `[rows, heads, 1, head size]` of every row on to `attend`, which writes it."""
        return key_states, value_states

    def get_mask_sizes(self, _query_length: int) -> tuple[int, int]:
        """Of responses only; no mask is made from it."""
        return self.get_seq_length(), 0

    def get_seq_length(self) -> int:
        """Columns of responses; positions are given to the model, not derived from this."""
        return max((cohort.column + 1 for cohort in self.cohorts), default=0)

    def get_max_length(self) -> int:
        """Columns reserved."""
        return max((cohort.columns for cohort in self.cohorts), default=0)

    get_max_cache_shape = get_max_length  # what earlier releases of transformers 5 call it


class ResponseCache(Cache):
    """One `ResponseLayer` per layer of the model, created when the model first writes to it."""

    def __init__(self, cohorts: list[Cohort]) -> None:
        replicated: Any = partial(ResponseLayer, cohorts)  # called without arguments, so a partial serves as well
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
        key: `[rows, heads, 1, head size]`.
        value: `[rows, heads, 1, value size]`.
        scaling: Factor of the scores; one over the root of the head size by default.

    Returns:
        `[rows, 1, query heads, value size]`, and None in place of weights.
    """
    rows, heads, size = query.shape[0], key.shape[1], query.shape[-1]
    scaled = query.reshape(rows, heads, -1, size) * (size**-0.5 if scaling is None else scaling)
    output = _active.get().attend(cast(int, module.layer_idx), scaled, key, value)
    return output.reshape(rows, 1, -1, value.shape[-1]).to(query.dtype), None


AttentionInterface.register(ATTENTION, attend)
