"""The passes of one step: as many as any rank needs, and one exchange of gradients."""

from contextlib import contextmanager

import pytest
import torch
from conftest import tiny_model

from elite_lightning.batching import TokenRow
from elite_lightning.logprobs import response_logprobs
from elite_lightning.objectives import ReplayNll
from elite_lightning.terms import replay_term
from elite_lightning.update import Passes, accumulate_gradients

ROWS = [TokenRow((1, 5, 6), (*range(7, 7 + n), 0)) for n in (1, 4, 2)]


class Counting:
    """Counts passes, and those among them that exchange gradients."""

    def __init__(self, model, others_need=0):
        self.model, self.others_need = model, others_need
        self.passes = self.exchanges = 0
        self.syncs = True

    @contextmanager
    def without_sync(self):
        self.syncs = False
        yield
        self.syncs = True

    def backward(self, loss):
        self.passes += 1
        self.exchanges += self.syncs
        loss.backward()

    def as_passes(self):
        return Passes(
            score=lambda batch: response_logprobs(self.model, batch),
            backward=self.backward,
            without_sync=self.without_sync,
            reduce_max=lambda counts: counts.clamp(min=self.others_need),
            world_size=1,
            device=torch.device("cpu"),
        )


def gradient_of(rows, token_budget, others_need=0):
    model = tiny_model().eval()
    counting = Counting(model, others_need)
    terms = [replay_term(ReplayNll(), rows, [1.0] * len(rows), torch.tensor(3.0), weight) for weight in (0.25, 0.75)]
    results = accumulate_gradients(terms, token_budget, counting.as_passes())
    return torch.cat([p.grad.flatten() for p in model.parameters()]), results, counting


@pytest.mark.parametrize("others_need", [1, 2, 5])
@pytest.mark.parametrize("token_budget", [1, 10**6])
def test_a_rank_runs_as_many_passes_as_any_other_and_adds_nothing(others_need, token_budget):
    expected, _, _ = gradient_of(ROWS, 10**6)
    gradient, results, counting = gradient_of(ROWS, token_budget, others_need)
    own = 1 if token_budget > 1 else 3
    assert counting.passes == 2 * max(own, others_need)
    assert counting.exchanges == 1
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-8)
    assert set(results) == {"replay"}


def test_a_rank_without_rows_takes_part_with_a_gradient_of_zero():
    gradient, results, counting = gradient_of([], 100, others_need=2)
    assert counting.passes == 4
    assert torch.equal(gradient, torch.zeros_like(gradient))
    assert results["replay"].loss == 0
