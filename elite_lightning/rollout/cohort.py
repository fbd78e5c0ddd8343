"""Rows that were admitted together: equally long at every step, so that nothing they wrote has to be masked.

All samples of a prompt read one copy of its keys and values: at every token a row attends to its prompt and to its own
response, and copies of the prompt in every row would make reading them the largest part of the work. Here all rows of
a prompt are multiplied with its keys in one matrix product, each row with its own response's keys beside it, and one
softmax goes over both (the split by shared prefix is Juravsky et al. 2024, "Hydragen", arXiv 2402.05099).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from elite_lightning.rollout.cache import SlotCache
from elite_lightning.rollout.memory import Prefilled

# Columns that are reserved at a time: rows that lie close together are read faster, and most end long before the limit.
_GROWTH = 32


@dataclass(frozen=True, slots=True)
class Admitted:
    """Samples of one prompt.

    Args:
        count: How many; they lie side by side.
        length: Cached tokens of the prompt.
        prefilled: Where they are; None if there are none.
    """

    count: int
    length: int
    prefilled: Prefilled | None


@dataclass(frozen=True, slots=True)
class _Prompt:
    """How many rows a prompt has, and how many cached tokens."""

    count: int
    length: int


@dataclass(slots=True)
class _Layer:
    """Keys and values of one layer.

    Args:
        keys: `[rows * heads, columns, head size]`, of the responses.
        values: `[rows * heads, columns, value size]`.
        prompt_keys: `[prompts * heads, head size, longest]`, transposed for the product that reads them.
        prompt_values: `[prompts * heads, longest, value size]`.
    """

    keys: torch.Tensor
    values: torch.Tensor
    prompt_keys: torch.Tensor
    prompt_values: torch.Tensor


class Cohort:
    """Keys and values of rows that were admitted together, and of their prompts.

    Args:
        admitted: Prompts and how many samples each has, in the order of the rows.
        columns: Most tokens of a row.
        device: Where the model is.
    """

    def __init__(self, admitted: Sequence[Admitted], columns: int, device: torch.device) -> None:
        self.columns, self.device = columns, device
        self.column = -1  # where the next token goes; `advance` comes first
        self.prompts = [_Prompt(prompt.count, prompt.length) for prompt in admitted]
        self.layers: list[_Layer] = []
        self._sources = _sources(admitted, device)
        self._regroup()

    @property
    def size(self) -> int:
        """Rows."""
        return sum(prompt.count for prompt in self.prompts)

    def advance(self) -> None:
        """Go to the next column; the last one again when all rows have ended and wait to be taken out."""
        if self.column == 0:  # every layer has its copy of the prompts, so their own caches may be freed
            self._sources = []
        self.column = min(self.column + 1, self.columns - 1)

    def keep(self, rows: torch.Tensor) -> None:
        """Keep some rows, in their order, and forget prompts without rows.

        Args:
            rows: `[kept]` int64, rising.
        """
        counts = self._prompt_of[rows].bincount(minlength=len(self.prompts)).tolist()
        used = [index for index, count in enumerate(counts) if count]
        prompts = None if len(used) == len(counts) else torch.tensor(used, dtype=torch.int64, device=self.device)
        longest = max((self.prompts[index].length for index in used), default=0)
        for layer in self.layers:
            layer.keys, layer.values = self._kept(layer.keys, rows), self._kept(layer.values, rows)
            if prompts is not None:
                keys, values = self._apart(layer.prompt_keys), self._apart(layer.prompt_values)
                layer.prompt_keys = keys[prompts, :, :, :longest].flatten(0, 1)
                layer.prompt_values = values[prompts, :, :longest].flatten(0, 1)
        self.prompts = [_Prompt(counts[index], self.prompts[index].length) for index in used]
        self._regroup()

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Write one new token of each row, and let it attend to its prompt and its response.

        Args:
            layer: Index of the layer.
            query: `[rows, heads, queries of a head, head size]`, scaled.
            key: `[rows, heads, 1, head size]`.
            value: `[rows, heads, 1, value size]`.

        Returns:
            `[rows, heads, queries of a head, value size]`.
        """
        mine, used = self._written(layer, key, value), slice(0, self.column + 1)
        rows, heads, group, size = query.shape
        # Rows and heads as one dimension: products of more than three dimensions cost twice the operations.
        own = torch.bmm(query.reshape(-1, group, size), mine.keys[:, used].mT).view(rows, heads, group, -1)
        prompt = torch.bmm(self._by_prompt(query), mine.prompt_keys)
        if self._padding is not None:
            prompt.view(len(self.prompts), heads, -1, self._longest).masked_fill_(self._padding, -torch.inf)
        scores = torch.cat((prompt, self._by_prompt(own)), -1)
        weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
        from_prompt = torch.bmm(weights[..., : self._longest], mine.prompt_values)
        from_own = self._by_row(weights[..., self._longest :], heads, group).reshape(rows * heads, group, -1)
        attended = torch.bmm(from_own, mine.values[:, used]).view(rows, heads, group, -1)
        return attended.add_(self._by_row(from_prompt, heads, group))

    def _written(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> _Layer:
        if layer == len(self.layers):
            self.layers.append(self._reserve(layer, key, value))
        mine = self.layers[layer]
        if self.column == mine.keys.shape[1]:
            mine.keys, mine.values = self._grown(mine.keys), self._grown(mine.values)
        mine.keys[:, self.column] = key.reshape(-1, key.shape[-1])
        mine.values[:, self.column] = value.reshape(-1, value.shape[-1])
        return mine

    def _by_prompt(self, rows: torch.Tensor) -> torch.Tensor:
        """`[rows, heads, group, size]` to `[prompts * heads, most rows of a prompt * group, size]`."""
        _, heads, group, size = rows.shape
        if self._most == 1:
            return rows.reshape(-1, group, size)
        rows = rows if self._members is None else rows[self._members]
        grouped = rows.view(len(self.prompts), -1, heads, group, size).transpose(1, 2)
        return grouped.reshape(len(self.prompts) * heads, -1, size)

    def _by_row(self, grouped: torch.Tensor, heads: int, group: int) -> torch.Tensor:
        """The way back."""
        size = grouped.shape[-1]
        if self._most == 1:
            return grouped.view(-1, heads, group, size)
        rows = grouped.view(len(self.prompts), heads, -1, group, size).transpose(1, 2)
        rows = rows.reshape(-1, heads, group, size)
        return rows if self._place is None else rows[self._place]

    def _regroup(self) -> None:
        """Which row is whose, where prompts have different numbers of rows."""
        counts = torch.tensor([prompt.count for prompt in self.prompts], dtype=torch.int64)
        lengths = torch.tensor([prompt.length for prompt in self.prompts], dtype=torch.int64)
        self._longest = int(lengths.max()) if len(lengths) else 0
        padding = torch.arange(self._longest) >= lengths[:, None]
        self._padding = padding[:, None, None].to(self.device) if padding.any() else None
        self._prompt_of = torch.arange(len(counts)).repeat_interleave(counts).to(self.device)
        self._members = self._place = None
        self._most = int(counts.max()) if len(counts) else 0
        if len(counts) and counts.min() < self._most:
            filled = torch.arange(self._most) < counts[:, None]  # [prompts, most]
            members = torch.zeros(filled.shape, dtype=torch.int64)  # row 0 fills up
            members[filled] = torch.arange(int(counts.sum()))
            self._members = members.flatten().to(self.device)
            self._place = filled.flatten().nonzero().flatten().to(self.device)

    def _reserve(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> _Layer:
        """Memory for the responses, and the prompts' keys and values side by side, padded on the right."""
        (rows, heads, _, size), value_size = keys.shape, values.shape[-1]
        prompts, longest, columns = len(self.prompts), self._longest, min(_GROWTH, self.columns)
        # What lies behind a prompt's end must be finite: its weight is 0, and 0 times a NaN would still be NaN.
        prompt_keys = keys.new_zeros(prompts, heads, size, longest)
        prompt_values = values.new_zeros(prompts, heads, longest, value_size)
        for cache, places, sources in self._sources:
            theirs = cache.slot_layers[layer]
            width = min(longest, theirs.length)
            prompt_keys[places, :, :, :width] = theirs.keys[sources, :, :width].transpose(-1, -2)
            prompt_values[places, :, :width] = theirs.values[sources, :, :width]
        return _Layer(
            keys.new_empty(rows * heads, columns, size),
            values.new_empty(rows * heads, columns, value_size),
            prompt_keys.flatten(0, 1),
            prompt_values.flatten(0, 1),
        )

    def _grown(self, stored: torch.Tensor) -> torch.Tensor:
        lines, columns, size = stored.shape
        grown = stored.new_empty(lines, min(columns + _GROWTH, self.columns), size)
        grown[:, :columns] = stored
        return grown

    def _kept(self, stored: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        before, used = stored.view(self.size, -1, *stored.shape[1:]), slice(0, self.column + 1)
        kept = stored.new_empty(len(rows), *before.shape[1:])
        kept[:, :, used] = before[rows, :, used]
        return kept.flatten(0, 1)

    def _apart(self, stored: torch.Tensor) -> torch.Tensor:
        """`[prompts * heads, ...]` to `[prompts, heads, ...]`."""
        prompts = len(self.prompts)
        return stored.view(prompts, stored.shape[0] // prompts, *stored.shape[1:])


def _sources(admitted: Sequence[Admitted], device: torch.device) -> list[tuple[SlotCache, torch.Tensor, torch.Tensor]]:
    """Caches in which prompts lie; which prompts, and in which rows."""
    found: dict[int, tuple[SlotCache, list[int], list[int]]] = {}
    for place, prompt in enumerate(admitted):
        if prompt.prefilled is not None:
            cache, row = prompt.prefilled
            _, places, rows = found.setdefault(id(cache), (cache, [], []))
            places.append(place)
            rows.append(row)
    return [
        (cache, torch.tensor(places, device=device), torch.tensor(rows, device=device))
        for cache, places, rows in found.values()
    ]
