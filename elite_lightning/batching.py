"""From rows of token ids to padded tensors, and from many rows to micro-batches within a token budget.

Rows are right-padded: prompt, response, padding. Causal attention then never sees the padding, and positions count
from 0 in every row, so that a model needs neither to agree with the others. Which tokens are valid follows from
lengths and never from a token's value: the padding id may well be the end-of-sequence id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


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

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Padded rows, and where their response tokens are. All integers are int64.

    Args:
        input_ids: `[batch, time]`; prompt, response, padding.
        attention_mask: `[batch, time]`; 1 on prompt and response.
        position_ids: `[batch, time]`; 0, 1, 2, ... in every row.
        response_ids: `[batch, response_time]`; the responses alone, moved to the left edge.
        response_mask: `[batch, response_time]`, bool; True on the response's tokens.
        predictor_index: `[tokens]`; index into the flattened `[batch * time]` of the position whose output predicts
            each response token.
        slot_index: `[tokens]`; index into the flattened `[batch * response_time]` of each response token.
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    response_ids: Tensor
    response_mask: Tensor
    predictor_index: Tensor
    slot_index: Tensor

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same batch on another device."""
        return TokenBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def collate(rows: Sequence[TokenRow], pad_id: int = 0) -> TokenBatch:
    """Pad rows into one batch.

    No rows at all give one row without a response: a rank with nothing left to do can then still take part in a
    forward and backward pass, and adds exactly nothing.

    Args:
        rows: Any number of rows.
        pad_id: What to pad with; any valid token id, never looked at.

    Returns:
        The batch, on the CPU.
    """
    rows = rows or [TokenRow((pad_id,), ())]
    prompt_lengths = torch.tensor([len(row.prompt_ids) for row in rows])
    response_lengths = torch.tensor([len(row.response_ids) for row in rows])
    time = int((prompt_lengths + response_lengths).max())
    response_time = int(response_lengths.max())
    attention_mask = _left_aligned(prompt_lengths + response_lengths, time)
    response_mask = _left_aligned(response_lengths, response_time)
    slots = response_mask.nonzero()  # [tokens, 2]: row, place within the response
    predictors = slots[:, 0] * time + prompt_lengths[slots[:, 0]] - 1 + slots[:, 1]
    return TokenBatch(
        input_ids=_padded([[*row.prompt_ids, *row.response_ids] for row in rows], attention_mask, pad_id),
        attention_mask=attention_mask.long(),
        position_ids=torch.arange(time).repeat(len(rows), 1),
        response_ids=_padded([row.response_ids for row in rows], response_mask, pad_id),
        response_mask=response_mask,
        predictor_index=predictors,
        slot_index=slots[:, 0] * response_time + slots[:, 1],
    )


def micro_batches(rows: Sequence[TokenRow], token_budget: int, at_least: int = 1) -> list[list[int]]:
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
