"""Log-probabilities straight from hidden states, through a plain linear output head.

Written in autograd's own operations, a chunk of logits exists four times: as logits, as log-softmax, as the gradient
with respect to that, and as the gradient with respect to the logits; and the head's gradient exists once more for each
chunk. Here one buffer holds them in turn, and the head's gradient is added to in place.

With logits z = W h + b and p = softmax(z / T), the log-probability of token y is log p_y, and its gradient with respect
to z is (onehot(y) - p) / T.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def is_plain_linear(head: nn.Module) -> bool:
    """Whether a head is just `hidden @ weight.T + bias`.

    Args:
        head: Any output head, with its own `forward` in place; adapters and quantised layers are not plain.
    """
    return type(head) is nn.Linear and "forward" not in head.__dict__


def is_in_one_precision(head: nn.Module, hidden: Tensor) -> bool:
    """Whether a plain head's weights are at hand, whole and in the hidden states' own precision.

    Args:
        head: See `is_plain_linear`.
        hidden: What it would be given.
    """
    weight = cast(nn.Linear, head).weight
    whole = type(weight.data) is Tensor and weight.dtype == hidden.dtype and weight.device == hidden.device
    return whole and not torch.is_autocast_enabled(hidden.device.type)


def linear_logprobs(hidden: Tensor, head: nn.Module, targets: Tensor, temperature: float, chunk_tokens: int) -> Tensor:
    """Log-probability of each target token.

    Args:
        hidden: `[tokens, width]`.
        head: A plain linear layer, see `is_plain_linear` and `is_in_one_precision`.
        targets: `[tokens]` int64.
        temperature: Softmax temperature.
        chunk_tokens: Tokens whose logits exist at a time. Up to so many are kept for the backward pass; more are made
            again there.

    Returns:
        `[tokens]`, float32 (float64 for float64 hidden states), in nats.
    """
    linear = cast(nn.Linear, head)
    found = _LinearLogprobs.apply(hidden, linear.weight, linear.bias, targets, temperature, chunk_tokens)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


class _LinearLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        chunk_tokens: int,
    ) -> Tensor:
        logprobs = hidden.new_empty(len(targets), dtype=torch.promote_types(hidden.dtype, torch.float32))
        largest, total = torch.empty_like(logprobs), torch.empty_like(logprobs)
        logits = None
        for part, logits in _logits(hidden, weight, bias, chunk_tokens):
            largest[part] = logits.amax(dim=-1)
            shifted = logits.sub_(largest[part, None]).div_(temperature)
            chosen = shifted.gather(-1, targets[part, None]).squeeze(-1)
            total[part] = shifted.exp_().sum(dim=-1)
            logprobs[part] = chosen - total[part].log()
        ctx.save_for_backward(hidden, weight, bias, targets, largest, total)
        ctx.temperature, ctx.chunk_tokens = temperature, chunk_tokens
        # exp((z - max) / T) of all tokens, if they fit: a buffer of our own, which the backward pass may overwrite.
        ctx.weights = logits if len(targets) <= chunk_tokens else None
        return logprobs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, largest, total = ctx.saved_tensors
        of_hidden, of_weight, of_bias = (
            torch.zeros_like(tensor) if needed else None
            for tensor, needed in zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)
        )
        kept, ctx.weights = ctx.weights, None  # a second backward pass through the same graph makes them again
        for part, weights in (
            [(slice(None), kept)] if kept is not None else _weights(ctx, hidden, weight, bias, largest)
        ):
            scale = gradient[part, None] / ctx.temperature
            of_logits = weights.mul_(-scale / total[part, None]).scatter_add_(-1, targets[part, None], scale)
            of_logits = of_logits.to(hidden.dtype)
            if of_hidden is not None:
                torch.mm(of_logits, weight, out=of_hidden[part])
            if of_weight is not None:
                of_weight.addmm_(of_logits.t(), hidden[part])
            if of_bias is not None:
                of_bias += of_logits.sum(dim=0)
        return of_hidden, of_weight, of_bias, None, None, None


def _weights(
    ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, largest: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """exp((z - max) / T), chunk by chunk."""
    for part, logits in _logits(hidden, weight, bias, ctx.chunk_tokens):
        yield part, logits.sub_(largest[part, None]).div_(ctx.temperature).exp_()


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, chunk_tokens: int) -> Iterator[tuple[slice, Tensor]]:
    """Logits chunk by chunk in float32 at least, all in one buffer."""
    buffer = hidden.new_empty(min(chunk_tokens, len(hidden)), len(weight))
    for start in range(0, len(hidden), chunk_tokens):
        part = slice(start, min(start + chunk_tokens, len(hidden)))
        place = buffer[: part.stop - start]
        if bias is None:
            logits = torch.mm(hidden[part], weight.t(), out=place)
        else:
            logits = torch.addmm(bias, hidden[part], weight.t(), out=place)
        yield part, logits.to(torch.promote_types(logits.dtype, torch.float32))
