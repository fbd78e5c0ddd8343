"""From values per token to one scalar, in two layers: over a response's own tokens first, over responses second.

Every loss here is a *share*: its numerator is a sum over the rows at hand, its denominator a count over all
micro-batches of the step and all ranks. Shares of micro-batches therefore add up to the loss of the whole step, however
it was cut. (A wrapper that averages gradients over W ranks, such as DDP, needs the share times W.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["response", "token", "constant"]
"""How values per token become one scalar.

* `response`: `(1/R) sum_i (1/|y_i|) sum_t`, R responses. Shao 2024, arXiv 2402.03300 (GRPO).
* `token`: `sum_i sum_t / sum_i |y_i|`, so a long response has more say. Yu 2025, arXiv 2503.14476 (DAPO).
* `constant`: `(1/R) sum_i (1/L) sum_t` with one L for all. Liu 2025, arXiv 2503.20783 (Dr. GRPO), whose code takes the
  longest response that is allowed; with L = 1 it is the gradient of whole sequences' log-probabilities.
"""


def response_means(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of each row over its own valid tokens.

    Args:
        values: `[batch, time]`, floating; anything at all, infinities included, where `mask` is False.
        mask: `[batch, time]`, bool; True on the response's tokens.

    Returns:
        `[batch]`; 0, with a gradient of 0, for a row without valid tokens.
    """
    # `where` and not a product: 0 * inf is NaN, and a NaN reaches the gradient even when the loss looks finite.
    cleared = torch.where(mask, values, 0.0)
    return cleared.sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)


def count_responses(mask: Tensor) -> Tensor:
    """Number of rows with at least one valid token, the unit of the per-response denominator.

    Rows that are masked out whole (truncated, or not judged because our verifier failed) leave the numerator, so they
    must leave the denominator too, or the others are diluted.

    Args:
        mask: `[batch, time]`, bool.

    Returns:
        Scalar float32; add it up over micro-batches and ranks.
    """
    return mask.any(dim=-1).sum().to(torch.float32)


def aggregate_sum(values: Tensor, mask: Tensor, aggregation: Aggregation) -> Tensor:
    """Numerator of an aggregate, to be divided by the sum of `aggregate_count` over micro-batches and ranks.

    Args:
        values: `[batch, time]`, floating; anything at all where `mask` is False.
        mask: `[batch, time]`, bool.
        aggregation: See `Aggregation`.

    Returns:
        Scalar.
    """
    if aggregation == "response":
        return response_means(values, mask).sum()
    return torch.where(mask, values, 0.0).sum()


def aggregate_count(mask: Tensor, aggregation: Aggregation, constant_length: int | None = None) -> Tensor:
    """Denominator that goes with `aggregate_sum`.

    Args:
        mask: `[batch, time]`, bool.
        aggregation: See `Aggregation`.
        constant_length: L of `constant`, in tokens.

    Returns:
        Scalar float32; add it up over micro-batches and ranks.
    """
    if aggregation == "token":
        return mask.sum().to(torch.float32)
    return count_responses(mask) * (constant_length or 1)


def divide_by_total(numerator: Tensor, total: float | Tensor) -> Tensor:
    """Divide a share's numerator by the global count; a count of 0 gives 0 with a graph, never 0 / 0.

    Args:
        numerator: Scalar.
        total: Global count over micro-batches and ranks, at least 0.

    Returns:
        Scalar of `numerator`'s dtype.
    """
    count = torch.as_tensor(total, dtype=numerator.dtype, device=numerator.device)
    return numerator / torch.where(count > 0, count, 1.0)


@dataclass(frozen=True, slots=True)
class MeanParts:
    """A mean in two parts, so that it survives being cut into micro-batches and ranks.

    Args:
        total: Scalar sum, without gradient.
        count: Scalar number of things summed, without gradient.
    """

    total: Tensor
    count: Tensor

    def __add__(self, other: MeanParts) -> MeanParts:
        return MeanParts(self.total + other.total, self.count + other.count)

    @property
    def mean(self) -> Tensor:
        """The mean; 0 when nothing was counted."""
        return divide_by_total(self.total, self.count)

    @classmethod
    def over_tokens(cls, values: Tensor, mask: Tensor) -> MeanParts:
        """Parts of the mean of `values` `[batch, time]` over the valid tokens of `mask`, detached."""
        cleared = torch.where(mask, values.detach(), 0.0)
        return cls(cleared.sum(), mask.sum().to(cleared.dtype))


def merge_metrics(metrics: Iterable[Mapping[str, MeanParts]]) -> dict[str, MeanParts]:
    """Add up the metrics of several micro-batches, name by name.

    Args:
        metrics: One mapping per micro-batch; a name may be absent from some.

    Returns:
        Name to the parts of the mean over all of them.
    """
    merged: dict[str, MeanParts] = {}
    for part in metrics:
        for name, value in part.items():
            merged[name] = merged[name] + value if name in merged else value
    return merged
