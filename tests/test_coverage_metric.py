"""either@k and both@k against every subset of the samples, and as metrics over problems."""

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.metrics import BothAtK, EitherAtK, both_at_k, either_at_k, pass_at_k


@st.composite
def hit_tables(draw):
    m = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[st.booleans()] * m), min_size=1, max_size=8))


def share(hits, k, covers):
    """Share of the subsets of k samples of which `covers` says yes to the interpretations that they answer."""
    subsets = list(combinations(hits, k))
    return sum(covers([any(column) for column in zip(*subset, strict=True)]) for subset in subsets) / len(subsets)


@settings(max_examples=150, deadline=None)
@given(hit_tables())
def test_they_are_the_share_of_subsets_that_cover_one_and_all_interpretations(hits):
    for k in range(1, len(hits) + 1):
        assert either_at_k(hits, k) == pytest.approx(share(hits, k, any), abs=1e-15)
        assert both_at_k(hits, k) == pytest.approx(share(hits, k, all), abs=1e-15)
        assert both_at_k(hits, k) <= either_at_k(hits, k)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 90), st.integers(0, 90), st.integers(0, 90), st.integers(1, 128))
def test_two_interpretations_without_overlap_have_the_known_formula(a, b, neither, k):
    n = a + b + neither
    if n < k:
        return
    hits = [(True, False)] * a + [(False, True)] * b + [(False, False)] * neither
    exact = 1 - sum(Fraction(comb(n - c, k), comb(n, k)) for c in (a, b)) + Fraction(comb(neither, k), comb(n, k))
    assert both_at_k(hits, k) == float(exact)
    assert either_at_k(hits, k) == pytest.approx(float(pass_at_k(n, a + b, k)), abs=1e-13)


def test_certain_cases_are_exact():
    hits = [(True, False)] * 127 + [(False, True)]
    assert both_at_k(hits, 128) == 1.0
    assert both_at_k(hits, 1) == 0.0
    assert both_at_k(hits, 64) == 0.5
    assert either_at_k(hits, 1) == 1.0
    assert both_at_k([(True, True, False)] * 300, 128) == 0.0
    # One sample can answer several at once.
    assert both_at_k([(True, True), (False, False)], 1) == 0.5


@pytest.mark.parametrize("function", [either_at_k, both_at_k])
@pytest.mark.parametrize(
    ("hits", "k", "message"),
    [
        ([(True, False)] * 3, 4, "k=4 needs at least 4 samples"),
        ([(True, False)] * 3, 0, "k must be at least 1"),
        ([True, False], 1, "interpretations"),
        (np.zeros((3, 0)), 1, "interpretations"),
        (np.zeros((3, 17)), 1, "16 interpretations"),
        ([], 1, "interpretations"),
    ],
)
def test_impossible_questions_are_refused(function, hits, k, message):
    with pytest.raises(ValueError, match=message):
        function(hits, k)


@settings(max_examples=30, deadline=None)
@given(st.lists(hit_tables().filter(lambda hits: len(hits) >= 2), min_size=1, max_size=4), st.randoms())
def test_the_metrics_are_means_over_problems_in_any_order(problems, lots):
    rows = [(index, hit) for index, hits in enumerate(problems) for hit in hits]
    lots.shuffle(rows)
    for metric, covers in ((EitherAtK(ks=(1, 2)), any), (BothAtK(ks=(1, 2)), all)):
        for index, hit in rows:  # one by one: problems differ in their number of interpretations
            metric.update(torch.tensor([index]), torch.tensor([hit]))
        for k in (1, 2):
            name = f"{metric.name}@{k}"
            exact = [share(hits, k, covers) for hits in problems]
            assert metric.per_problem().figures[name].tolist() == pytest.approx(exact, abs=1e-12)
            assert metric.compute()[name].item() == pytest.approx(np.mean(exact), abs=1e-6)


def test_the_metrics_refuse_what_is_no_table_of_hits():
    for shape in ((3,), (3, 0), (3, 17)):
        with pytest.raises(ValueError, match="hits must be"):
            BothAtK(ks=(1,)).update(torch.zeros(3, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool))
    metric = EitherAtK(ks=(1, 8))
    metric.update(torch.zeros(7, dtype=torch.int64), torch.ones(7, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least 8 samples"):
        metric.compute()
