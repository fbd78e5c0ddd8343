"""pass@k against exact fractions and against every subset of the samples."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.metrics import PassAtK, key_id, pass_at_k


def test_a_known_value():
    assert float(pass_at_k(200, 3, 128)) == pytest.approx(0.954591, abs=5e-7)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_it_equals_exact_fractions(data):
    n = data.draw(st.integers(1, 300))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - Fraction(comb(n - c, k), comb(n, k))
    assert float(pass_at_k(n, c, k)) == pytest.approx(float(exact), abs=1e-13)


@pytest.mark.parametrize("n", range(1, 8))
def test_it_is_the_share_of_subsets_with_a_correct_sample(n):
    for c in range(n + 1):
        for k in range(1, n + 1):
            subsets = list(combinations([i < c for i in range(n)], k))
            assert float(pass_at_k(n, c, k)) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


def test_shapes_broadcast_and_certain_cases_are_exact():
    values = pass_at_k([[10], [200]], [0, 3, 10], 8)
    assert values.shape == (2, 3)
    assert values.dtype == np.float64
    assert values[:, 0].tolist() == [0.0, 0.0]
    assert values[0, 1:].tolist() == [1.0, 1.0]  # fewer than k wrong samples


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        ([128, 64], [1, 1], 128, "k=128 needs at least 128 samples of every problem, got 64"),
        (8, 1, 0, "k must be at least 1, got 0"),
        (8, 9, 2, "outside"),
        (8, -1, 2, "outside"),
    ],
)
def test_impossible_questions_are_refused(n, c, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


def test_the_metric_averages_over_problems_and_not_over_samples():
    metric = PassAtK(ks=(4, 1))
    metric.update(torch.tensor([7] * 4), torch.tensor([True, False, False, False]))
    metric.update(torch.tensor([9] * 12), torch.tensor([False] * 12))
    values = {name: value.item() for name, value in metric.compute().items()}
    assert values == {"pass@1": 0.125, "pass@4": 0.5}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=9), min_size=1, max_size=5), st.data())
def test_the_metric_does_not_depend_on_order_or_batches(problems, data):
    samples = [(problem, correct) for problem, row in enumerate(problems) for correct in row]
    samples = data.draw(st.permutations(samples))
    cut = data.draw(st.integers(0, len(samples)))
    metric = PassAtK(ks=(1, 5))
    for batch in (samples[:cut], samples[cut:]):
        metric.update(
            torch.tensor([p for p, _ in batch], dtype=torch.int64),
            torch.tensor([c for _, c in batch], dtype=torch.bool),
        )
    n, c = [len(row) for row in problems], [sum(row) for row in problems]
    for k in (1, 5):
        exact = [1 - comb(total - right, k) / comb(total, k) for total, right in zip(n, c, strict=True)]
        assert metric.per_problem().figures[f"pass@{k}"].tolist() == pytest.approx(exact, abs=1e-12)
        assert metric.compute()[f"pass@{k}"].item() == pytest.approx(np.mean(exact), abs=1e-6)


def test_the_metric_forgets_on_reset_and_says_when_it_knows_nothing():
    metric = PassAtK(ks=(1,))
    for right in (True, False):
        metric.update(torch.tensor([0]), torch.tensor([right]))
        assert metric.compute() == {"pass@1": torch.tensor(float(right))}
        metric.reset()
    with pytest.raises(ValueError, match="before any sample"):
        metric.per_problem()


def test_the_metric_refuses_too_few_samples_and_senseless_arguments():
    metric = PassAtK(ks=(1, 8))
    metric.update(torch.tensor([0] * 7), torch.tensor([True] * 7))
    with pytest.raises(ValueError, match="at least 8 samples of every problem, got 7"):
        metric.compute()
    with pytest.raises(ValueError, match="one length"):
        metric.update(torch.tensor([0, 1]), torch.tensor([True]))
    for ks in ((), (0, 1)):
        with pytest.raises(ValueError, match="ks must be"):
            PassAtK(ks=ks)


def test_a_text_has_the_same_integer_in_every_process():
    assert key_id("abc") == int.from_bytes(bytes.fromhex("ba7816bf8f01cfea"), "big", signed=True)
    assert torch.tensor(key_id("abc"), dtype=torch.int64).item() == key_id("abc")
