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
from dataclasses import dataclass
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


class Places(NamedTuple):
    """Where each of some vectors is found among others. All integers are int64.

    Args:
        found_at: `[vectors]`; 0 for one that is found nowhere.
        nowhere: Which ones are found nowhere.
    """

    found_at: Tensor
    nowhere: Tensor


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """Where prompts and responses lie in a batch of rows `[batch, time]`.

    Prompts are attended to in a block `[batch, longest prompt]`, responses in one `[responses, response_time]`, both
    padded. Blocks are flattened, one after the other.

    Args:
        longest: Tokens of the longest prompt.
        counts: Responses of each row.
        visible: `[responses, 1, response_time, longest prompt + response_time]`, bool: what each response token sees
            of its prompt's and its own response's keys.
        blocks: Where each place of the blocks is in the flattened rows.
        rows: Where each token of the flattened rows is in the blocks.
    """

    longest: int
    counts: tuple[int, ...]
    visible: Tensor
    blocks: Places
    rows: Places

    def to(self, device: torch.device | str) -> TreeLayout:
        """The same layout on another device."""
        blocks, rows = (Places(*(part.to(device) for part in places)) for places in (self.blocks, self.rows))
        return TreeLayout(self.longest, self.counts, self.visible.to(device), blocks, rows)


def layout_of(rows: Sequence[Branches], time: int) -> TreeLayout:
    """The layout of rows that are padded to `time` tokens.

    Args:
        rows: Their prompts and responses.
        time: Length of every row, at least that of the longest.
    """
    prompts = torch.tensor([row.prompt for row in rows])
    lengths = torch.tensor([length for row in rows for length in row.responses], dtype=torch.int64)
    longest, width = int(prompts.max()), max((length for row in rows for length in row.responses), default=0)
    is_prompt, is_response = torch.arange(longest) < prompts[:, None], torch.arange(width) < lengths[:, None]
    used = torch.cat((is_prompt.flatten(), is_response.flatten()))
    # Responses follow on their prompt, so both are found in their blocks in the order of the rows.
    column = torch.arange(time)
    in_prompt = column < prompts[:, None]
    in_response = ~in_prompt & (column < torch.tensor([sum(row.responses, row.prompt) for row in rows])[:, None])
    tokens = torch.cat((in_prompt.flatten().nonzero(), in_response.flatten().nonzero())).flatten()
    counts = torch.tensor([len(row.responses) for row in rows])
    sees_prompt = is_prompt.repeat_interleave(counts, 0)[:, None].expand(-1, width, -1)
    sees_itself = torch.ones(width, width, dtype=torch.bool).tril().expand(len(lengths), -1, -1)
    return TreeLayout(
        longest,
        tuple(counts.tolist()),
        torch.cat((sees_prompt, sees_itself), -1)[:, None],
        _places(used.nonzero().flatten(), tokens, len(used)),
        _places(tokens, used.nonzero().flatten(), len(rows) * time),
    )


def _places(which: Tensor, where: Tensor, number: int) -> Places:
    found_at, nowhere = torch.zeros(number, dtype=torch.int64), torch.ones(number, dtype=torch.bool)
    found_at[which], nowhere[which] = where, False
    return Places(found_at, nowhere.nonzero().flatten())


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
    (asking, own_asking), (keys, own_keys), (values, own_values) = (
        _in_blocks(states, layout) for states in (query, key, value)
    )
    # Of a row with a shorter prompt, this computes something for what pads it too, which is not used.
    prompts = _sdpa(asking, keys, values, is_causal=True, scale=scaling)
    keys, values = _in_front(keys, own_keys, layout.counts), _in_front(values, own_values, layout.counts)
    responses = _sdpa(own_asking, keys, values, attn_mask=layout.visible, scale=scaling)
    blocks = torch.cat((prompts.flatten(0, 1), responses.flatten(0, 1)))
    return _moved(blocks, layout.rows, layout.blocks).view(batch, time, heads, -1)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Attention with time before heads, `[rows, time, heads, size]`."""
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    return F.scaled_dot_product_attention(query, key, value, **options).transpose(1, 2)


def _in_blocks(states: Tensor, layout: TreeLayout) -> tuple[Tensor, Tensor]:
    """`[batch, heads, time, size]` to `[batch, longest, heads, size]` and `[responses, response_time, heads, size]`."""
    batch, heads, _, size = states.shape
    blocks = _moved(states.transpose(1, 2).flatten(0, 1), layout.blocks, layout.rows)
    count, _, width, _ = layout.visible.shape
    prompts, responses = torch.split(blocks, [batch * layout.longest, count * width])
    return prompts.view(batch, layout.longest, heads, size), responses.view(count, width, heads, size)


def _moved(values: Tensor, there: Places, back: Places) -> Tensor:
    return cast(Tensor, _Moved.apply(values, *there, *back))  # type: ignore[no-untyped-call]


def _in_front(prompts: Tensor, own: Tensor, counts: tuple[int, ...]) -> Tensor:
    return cast(Tensor, _InFront.apply(prompts, own, counts))  # type: ignore[no-untyped-call]


class _Moved(torch.autograd.Function):
    """`values` at other places, where none is moved twice: so gradients are moved back instead of being added up."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, found_at: Tensor, nowhere: Tensor, *back: Tensor) -> Tensor:
        ctx.save_for_backward(*back)
        return values.index_select(0, found_at).index_fill_(0, nowhere, 0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        found_at, nowhere = ctx.saved_tensors
        return gradient.index_select(0, found_at).index_fill_(0, nowhere, 0), None, None, None, None


class _InFront(torch.autograd.Function):
    """`[responses, longest + response_time, ...]`: each response's vectors behind a copy of its prompt's.

    Gradients of a prompt's copies are summed in a fixed order, which an index with repetitions would not promise.
    """

    @staticmethod
    def forward(ctx: Any, prompts: Tensor, own: Tensor, counts: tuple[int, ...]) -> Tensor:
        ctx.longest, ctx.counts = prompts.shape[1], counts
        both = own.new_empty(len(own), prompts.shape[1] + own.shape[1], *own.shape[2:])
        for copies, prompt in zip(torch.split(both, [*counts]), prompts, strict=True):
            copies[:, : ctx.longest] = prompt
        both[:, ctx.longest :] = own
        return both

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        of_copies, of_own = torch.split(gradient, [ctx.longest, gradient.shape[1] - ctx.longest], 1)
        return torch.stack([copies.sum(0) for copies in torch.split(of_copies, [*ctx.counts])]), of_own, None


AttentionInterface.register("sdpa", attend)
