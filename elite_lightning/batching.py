"""From rows of token ids to padded tensors, and from many rows to micro-batches within a token budget.

Rows are right-padded: prompt, response, padding. Causal attention then never sees the padding, and positions count
from 0 in every row, so that a model needs neither to agree with the others. Which tokens are valid follows from
lengths and never from a token's value: the padding id may well be the end-of-sequence id.

Responses to one prompt may travel in one row, a tree: the prompt once, then the responses, each of which sees the
prompt and itself and counts its positions on from the prompt. That computes the prompt once, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elite_lightning.tree_attention import Branches, TreeLayout, layout_of


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A prompt and a response to it.

    Args:
        prompt_ids: At least one token: the first response token is predicted from the prompt's last.
        response_ids: The response, end-of-sequence included; may be empty.

    Raises:
        ValueError: If the prompt is empty.
    """

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]

    def __post_init__(self) -> None:
        """Refuse a row whose first response token nothing would predict."""
        if len(self.prompt_ids) == 0:
            raise ValueError("a row needs at least one prompt token to predict its first response token from")

    @property
    def responses(self) -> tuple[Sequence[int]]:
        """The one response, so that a row is the tree that does not branch."""
        return (self.response_ids,)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class TokenTree:
    """A prompt and several responses to it, in one row.

    Args:
        prompt_ids: At least one token.
        responses: One or more, each of which may be empty.
    """

    prompt_ids: Sequence[int]
    responses: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.prompt_ids) + sum(map(len, self.responses))


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Padded rows, and where their response tokens are. All integers are int64.

    Args:
        input_ids: `[batch, time]`; prompt, responses, padding.
        attention_mask: `[batch, time]`, 1 on prompt and response. Where a row is a tree, it does not say who sees whom.
        position_ids: `[batch, time]`; 0, 1, 2, ... in every prompt, and on in every response to it.
        response_ids: `[responses, response_time]`; the responses alone, moved to the left edge.
        response_mask: `[responses, response_time]`, bool; True on the response's tokens.
        predictor_index: `[tokens]`; index into the flattened `[batch * time]` of the position whose output predicts
            each response token.
        slot_index: `[tokens]`; index into the flattened `[responses * response_time]` of each response token.
        tree: Who sees whom where a row is a tree; None where none is.
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    response_ids: Tensor
    response_mask: Tensor
    predictor_index: Tensor
    slot_index: Tensor
    tree: TreeLayout | None = None

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same batch on another device."""
        parts: list[tuple[str, Any]] = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return TokenBatch(**{name: part.to(device) for name, part in parts if part is not None})


def collate(rows: Sequence[TokenRow | TokenTree], pad_id: int = 0) -> TokenBatch:
    """Pad rows into one batch.

    No rows at all give one row without a response: a rank with nothing left to do can then still take part in a
    forward and backward pass, and adds exactly nothing.

    Args:
        rows: Any number of rows.
        pad_id: What to pad with; any valid token id, never looked at.

    Returns:
        The batch, on the CPU; responses in the order of the rows.
    """
    rows = rows or [TokenRow((pad_id,), ())]
    layouts = [_layout(row) for row in rows]
    responses = [response for row in rows for response in row.responses]
    used = _left_aligned(torch.tensor([len(row) for row in rows]), max(map(len, rows)))
    response_mask = _left_aligned(torch.tensor([*map(len, responses)]), max(map(len, responses)))
    starts = range(0, used.numel(), used.shape[1])
    slots = response_mask.nonzero()  # [tokens, 2]: response, place within it
    predictors = [start + place for start, layout in zip(starts, layouts, strict=True) for place in layout.predictors]
    return TokenBatch(
        input_ids=_padded([layout.ids for layout in layouts], used, pad_id),
        attention_mask=used.long(),
        position_ids=_positions(layouts, used),
        response_ids=_padded(responses, response_mask, pad_id),
        response_mask=response_mask,
        predictor_index=torch.tensor(predictors, dtype=torch.int64),
        slot_index=slots[:, 0] * response_mask.shape[1] + slots[:, 1],
        tree=None if len(responses) == len(rows) else layout_of([*map(_branches, rows)], used.shape[1]),
    )


class _Layout(NamedTuple):
    """One row token by token: id, position, and the predictor of each response token."""

    ids: list[int]
    positions: list[int]
    predictors: list[int]


def _layout(row: TokenRow | TokenTree) -> _Layout:
    prompt = len(row.prompt_ids)
    layout = _Layout([*row.prompt_ids], [*range(prompt)], [])
    for response in row.responses:
        start = len(layout.ids)
        layout.ids.extend(response)
        layout.positions.extend(range(prompt, prompt + len(response)))
        # All responses' first tokens are predicted from the prompt's last.
        layout.predictors.extend([prompt - 1, *range(start, len(layout.ids) - 1)][: len(response)])
    return layout


def _positions(layouts: Sequence[_Layout], used: Tensor) -> Tensor:
    """`[batch, time]`; padding counts on, but not beyond the largest position of the batch."""
    taken = torch.tensor([position for layout in layouts for position in layout.positions])
    positions = torch.arange(used.shape[1]).clamp(max=int(taken.max())).repeat(len(layouts), 1)
    positions[used] = taken
    return positions


def _branches(row: TokenRow | TokenTree) -> Branches:
    return Branches(len(row.prompt_ids), [*map(len, row.responses)])


def micro_batches(rows: Sequence[Sized], token_budget: int, at_least: int = 1) -> list[list[int]]:
    """Cut rows into micro-batches of at most `token_budget` tokens, padding included.

    Rows of like length go together, so that little is padded, and the longest first, so that a lack of memory shows at
    once. A row longer than the budget gets a micro-batch to itself. Equal input, equal output.

    Args:
        rows: All rows of the step.
        token_budget: Most tokens of one micro-batch, as rows times longest row.
        at_least: Number of micro-batches to return at the least; more than there are rows adds empty ones. Ranks whose
            forward passes must match pass the largest number that any of them needs.

    Returns:
        Indices into `rows`; together each exactly once.

    Raises:
        ValueError: If `token_budget` or `at_least` is below 1.
    """
    if token_budget < 1 or at_least < 1:
        raise ValueError(f"token_budget and at_least must be at least 1, got {token_budget} and {at_least}")
    cut: list[list[int]] = []
    for index in sorted(range(len(rows)), key=lambda i: (-len(rows[i]), i)):
        # Rows come longest first, so the first row of a micro-batch sets its width.
        if cut and (len(cut[-1]) + 1) * len(rows[cut[-1][0]]) <= token_budget:
            cut[-1].append(index)
        else:
            cut.append([index])
    while len(cut) < at_least:
        largest = max(range(len(cut)), key=lambda i: len(cut[i]), default=None)
        if largest is None or len(cut[largest]) < 2:
            return cut + [[] for _ in range(at_least - len(cut))]
        half = len(cut[largest]) // 2
        cut[largest : largest + 1] = [cut[largest][:half], cut[largest][half:]]
    return cut


def _left_aligned(lengths: Tensor, width: int) -> Tensor:
    """Bool `[batch, width]`: True on the first `lengths[i]` places of row i."""
    return torch.arange(width)[None, :] < lengths[:, None]


def _padded(ids: Sequence[Sequence[int]], mask: Tensor, pad_id: int) -> Tensor:
    """Int64 `[batch, width]`: row i of `ids` where `mask` is True, `pad_id` elsewhere."""
    padded = torch.full(mask.shape, pad_id, dtype=torch.int64)
    padded[mask] = torch.tensor([token for row in ids for token in row], dtype=torch.int64)
    return padded
