"""How likely the policy finds what it replays, response by response: taken from the passes of training, at no cost.

Whatever the replay term is, this is the length-normalised negative log-likelihood, so that terms can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from elite_lightning.batching import TokenBatch
from elite_lightning.objectives import LossOutput
from elite_lightning.objectives.aggregate import response_means
from elite_lightning.replay_records import ReplayRecord
from elite_lightning.update import Term
from elite_lightning.work import ReplayItem


class ReplayWatch:
    """Collects the likelihood of one step's replayed responses on this rank.

    Args:
        items: This rank's items, in the order of the replay term's rows.
        step: Finished optimizer steps.
    """

    def __init__(self, items: Sequence[ReplayItem], step: int) -> None:
        self._items, self.step = items, step
        self._seen: list[tuple[list[int], Tensor, Tensor]] = []

    def over(self, term: Term) -> Term:
        """The term, watched if it is the one that replays; its loss is the same."""
        if term.name != "replay":
            return term

        def loss(batch: TokenBatch, logprobs: Tensor, indices: list[int]) -> LossOutput:
            # An empty micro-batch has one row, which belongs to nobody.
            mask = batch.response_mask[: len(indices)]
            nll = -response_means(logprobs.detach()[: len(indices)].float(), mask)
            self._seen.append((indices, nll, mask.sum(dim=-1)))
            return term.loss(batch, logprobs, indices)

        return replace(term, loss=loss)

    def records(self) -> list[ReplayRecord]:
        """One record an item of which the cell is known, in the order of the items; call it after the passes."""
        if not self._seen:
            return []
        order = [index for indices, _, _ in self._seen for index in indices]
        nll = torch.cat([values for _, values, _ in self._seen]).tolist()
        tokens = torch.cat([counts for _, _, counts in self._seen]).tolist()
        found = sorted(zip(order, nll, tokens, strict=True))
        return [
            ReplayRecord(self.step, self._items[i].problem_id or "", *cell, count, value)
            for i, value, count in found
            if (cell := self._items[i].cell) is not None
        ]
