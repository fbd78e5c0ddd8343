"""The gradient of one optimizer step: terms of the loss, cut into micro-batches, the same number on every rank.

A term is a weighted sum of shares (`objectives/aggregate.py`): each micro-batch's loss is already divided by the global
count, so shares add up over micro-batches and ranks, and how the step was cut changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from elite_lightning.batching import TokenBatch, TokenRow, collate, micro_batches
from elite_lightning.objectives import LossOutput, MeanParts, merge_metrics
from elite_lightning.packing import plant, share_prompts


@dataclass(frozen=True)
class Term:
    """One term of the mixed loss on this rank.

    Args:
        name: For the log.
        weight: Its share in the mixture.
        rows: Prompts and responses that this rank scores; may be empty.
        loss: From a micro-batch, its log-probabilities `[batch, response_time]` and the indices of its rows to this
            micro-batch's share of the loss.
    """

    name: str
    weight: float
    rows: Sequence[TokenRow]
    loss: Callable[[TokenBatch, Tensor, list[int]], LossOutput]


@dataclass(frozen=True)
class Passes:
    """How a rank gets its forward and backward passes done.

    Args:
        score: Log-probabilities of a micro-batch's response tokens.
        backward: Backward pass of a scalar.
        without_sync: Context in which a backward pass does not exchange gradients with other ranks.
        reduce_max: Element-wise maximum over ranks.
        world_size: Number of ranks whose gradients are averaged.
        device: Where batches go.
        shares_prompts: Whether the model can be given responses to one prompt in one row.
    """

    score: Callable[[TokenBatch], Tensor]
    backward: Callable[[Tensor], None]
    without_sync: Callable[[], AbstractContextManager[None]]
    reduce_max: Callable[[Tensor], Tensor]
    world_size: int
    device: torch.device
    shares_prompts: bool = False


@dataclass
class TermResult:
    """What became of one term on this rank.

    Args:
        loss: Sum of its shares over micro-batches, scalar without gradient, not weighted.
        metrics: Parts of means.
        seconds: Wall-clock seconds of its passes.
    """

    loss: Tensor
    metrics: dict[str, MeanParts]
    seconds: float


def accumulate_gradients(
    terms: Sequence[Term],
    token_budget: int,
    passes: Passes,
    after_term: Callable[[str, bool], None] | None = None,
) -> dict[str, TermResult]:
    """Run all forward and backward passes of one optimizer step.

    Every rank runs equally many, padded with empty ones that add exactly nothing: a rank that skipped a pass would
    leave the others waiting for ever. Gradients are exchanged once, in the last pass.

    Args:
        terms: The terms of the loss; the same names in the same order on every rank.
        token_budget: Most tokens of a micro-batch, padding included.
        passes: How passes are run.
        after_term: Called on every rank after a term's passes with its name and whether it is the last one; must leave
            gradients as they are.

    Returns:
        Term to what became of it.
    """
    cut = _equal_cuts(terms, token_budget, passes)
    results = {term.name: TermResult(torch.zeros((), device=passes.device), {}, 0.0) for term in terms}
    left = sum(map(len, cut))
    for term, batches in zip(terms, cut, strict=True):
        started = time.perf_counter()
        for trees in batches:
            left -= 1
            with passes.without_sync() if left else nullcontext():
                output = _pass(term, trees, passes)
            result = results[term.name]
            result.loss = result.loss + output.loss.detach()
            result.metrics = merge_metrics([result.metrics, output.metrics])
        results[term.name].seconds = time.perf_counter() - started
        if after_term is not None:
            after_term(term.name, term is terms[-1])
    return results


def _pass(term: Term, trees: list[list[int]], passes: Passes) -> LossOutput:
    """Forward and backward pass of one micro-batch."""
    batch = collate([plant(term.rows, indices) for indices in trees]).to(passes.device)
    output = term.loss(batch, passes.score(batch), [index for indices in trees for index in indices])
    # Ranks' gradients are averaged, but shares have to be added up.
    passes.backward(output.loss * (term.weight * passes.world_size))
    return output


def _equal_cuts(terms: Sequence[Term], token_budget: int, passes: Passes) -> list[list[list[list[int]]]]:
    """Each term's micro-batches, equally many on every rank; a micro-batch is trees, a tree is row indices."""
    trees = [_trees(term.rows, token_budget if passes.shares_prompts else None) for term in terms]
    planted = [[plant(term.rows, tree) for tree in own] for term, own in zip(terms, trees, strict=True)]
    lengths = [len(micro_batches(own, token_budget)) for own in planted]
    longest = passes.reduce_max(torch.tensor(lengths, device=passes.device)).tolist()
    cuts = [micro_batches(own, token_budget, at_least=n) for own, n in zip(planted, longest, strict=True)]
    return [[[own[i] for i in batch] for batch in cut] for own, cut in zip(trees, cuts, strict=True)]


def _trees(rows: Sequence[TokenRow], token_budget: int | None) -> list[list[int]]:
    return [[index] for index in range(len(rows))] if token_budget is None else share_prompts(rows, token_budget)
