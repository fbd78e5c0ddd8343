"""Attention of responses to a prompt that they share in one row, at the price of what each of them looks at.

A row holds a prompt and then its responses, each of which sees the prompt and itself. A mask over the whole row would
compute all pairs of its tokens and throw most of them away. Here the prompts attend among themselves, and each
response is given a copy of its prompt's keys in front of its own, which is cheap beside the layers' weights.

It takes over the `sdpa` attention of transformers where a layout is given, which travels with the model's other
arguments, and leaves it as it is everywhere else. A name of its own would not do: activations that are made again in
the backward pass look the attention up again, when nothing would know any more that another one was meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import AttentionInterface

ARGUMENT = "tree_layout"


class Branches(NamedTuple):
    """A row: how long its prompt is, and each of its responses, which follow on each other."""

    prompt: int
    responses: Sequence[int]


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """Where prompts and responses lie in a batch of rows `[batch, time]`. All integers are int64.

    Args:
        prompts: `[longest prompt]`, 0, 1, 2, ...: the columns that hold prompts, and in rows with shorter prompts what
            follows on them.
        responses: `[responses, response_time]`, index into the flattened `[batch * time]` of each response token.
        owner: `[responses]`, the row of each response.
        visible: `[responses, 1, response_time, longest prompt + response_time]`, bool: what each response token sees
            of its prompt's and its own response's keys.
        from_blocks: `[batch * time]`, where each token is in the prompts' columns, flattened, followed by the
            responses, flattened.
        to_blocks: The way back; `batch * time` for what is no token.
        to_responses: `[batch * time]`, where each token is in the flattened responses; their number for others.
    """

    prompts: Tensor
    responses: Tensor
    owner: Tensor
    visible: Tensor
    from_blocks: Tensor
    to_blocks: Tensor
    to_responses: Tensor

    def to(self, device: torch.device | str) -> TreeLayout:
        """The same layout on another device."""
        return TreeLayout(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def layout_of(rows: Sequence[Branches], time: int) -> TreeLayout:
    """The layout of rows that are padded to `time` tokens.

    Args:
        rows: Their prompts and responses.
        time: Length of every row, at least that of the longest.
    """
    longest = max(row.prompt for row in rows)
    lengths = [length for row in rows for length in row.responses]
    width = max(lengths, default=0)
    owner = torch.tensor([index for index, row in enumerate(rows) for _ in row.responses], dtype=torch.int64)
    starts = [
        index * time + row.prompt + sum(row.responses[:place])
        for index, row in enumerate(rows)
        for place in range(len(row.responses))
    ]
    columns, used = torch.arange(width), torch.arange(width) < torch.tensor(lengths, dtype=torch.int64)[:, None]
    # What pads a response is some token of the batch; nothing looks at it, and what becomes of it is dropped.
    responses = torch.where(used, torch.tensor(starts, dtype=torch.int64)[:, None] + columns, 0)
    prompt_lengths = torch.tensor([row.prompt for row in rows])[owner]
    sees_prompt = (torch.arange(longest) < prompt_lengths[:, None])[:, None].expand(-1, width, -1)
    sees_itself = torch.ones(width, width, dtype=torch.bool).tril().expand(len(lengths), -1, -1)
    count, blocks = len(rows) * time, len(rows) * longest
    token = torch.arange(count).view(len(rows), time)
    is_prompt = torch.arange(time) < torch.tensor([row.prompt for row in rows])[:, None]
    from_blocks = torch.zeros(count, dtype=torch.int64)
    from_blocks[token[is_prompt]] = torch.arange(blocks).view(len(rows), longest)[is_prompt[:, :longest]]
    slots = torch.arange(responses.numel()).view(responses.shape)
    from_blocks[responses[used]] = blocks + slots[used]
    to_blocks = torch.full((blocks + responses.numel(),), count)
    to_blocks[from_blocks[token[is_prompt]]] = token[is_prompt]
    to_blocks[blocks + slots[used]] = responses[used]
    to_responses = torch.full((count,), responses.numel())
    to_responses[responses[used]] = slots[used]
    visible = torch.cat((sees_prompt, sees_itself), -1)[:, None]
    return TreeLayout(torch.arange(longest), responses, owner, visible, from_blocks, to_blocks, to_responses)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The `sdpa` attention of transformers, and where a layout is given, that of trees.

    Args:
        module: The attention layer.
        query: `[batch, query heads, time, head size]`.
        key: `[batch, heads, time, head size]`.
        value: `[batch, heads, time, value size]`.
        attention_mask: Not looked at where a layout is given.
        dropout: Must be 0 where a layout is given.
        scaling: Factor of the scores; one over the root of the head size by default.
        options: Others; a `TreeLayout` under the name `ARGUMENT` among them.

    Returns:
        `[batch, time, query heads, value size]`, and None in place of weights.

    Raises:
        ValueError: If there is dropout.
    """
    layout: TreeLayout | None = options.pop(ARGUMENT, None)
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    if dropout:
        raise ValueError(f"attention to a shared prompt knows no dropout, got {dropout}")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    return _attend(query, key, value, layout, scaling), None


def _attend(query: Tensor, key: Tensor, value: Tensor, layout: TreeLayout, scaling: float | None) -> Tensor:
    batch, heads, time, _ = query.shape
    longest = len(layout.prompts)
    asking, keys, values = (states[:, :, :longest] for states in (query, key, value))
    # Of a row with a shorter prompt, this computes something for what follows on it too, which is not used.
    prompts = F.scaled_dot_product_attention(asking, keys, values, is_causal=True, scale=scaling)
    asking, own_keys, own_values = (_responses(states, layout) for states in (query, key, value))
    keys = torch.cat((keys.index_select(0, layout.owner), own_keys), 2)
    values = torch.cat((values.index_select(0, layout.owner), own_values), 2)
    responses = F.scaled_dot_product_attention(asking, keys, values, attn_mask=layout.visible, scale=scaling)
    blocks = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in (prompts, responses)])
    return _moved(blocks, layout.from_blocks, layout.to_blocks).view(batch, time, heads, -1)


def _responses(states: Tensor, layout: TreeLayout) -> Tensor:
    """`[batch, heads, time, size]` to `[responses, heads, response_time, size]`."""
    tokens = states.transpose(1, 2).flatten(0, 1)
    moved = _moved(tokens, layout.responses.flatten(), layout.to_responses)
    return moved.view(*layout.responses.shape, *tokens.shape[1:]).transpose(1, 2)


def _moved(values: Tensor, there: Tensor, back: Tensor) -> Tensor:
    return cast(Tensor, _Moved.apply(values, there, back))  # type: ignore[no-untyped-call]


class _Moved(torch.autograd.Function):
    """`values[there]`, where no value is moved twice: so gradients are moved back instead of being added up.

    `back` has for each value where it went, and the number of places for a value that went nowhere.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return values.index_select(0, there)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        nothing = gradient.new_zeros(1, *gradient.shape[1:])
        return torch.cat((gradient, nothing)).index_select(0, back), None, None


AttentionInterface.register("sdpa", attend)
