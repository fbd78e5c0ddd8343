"""Rarefied strategy counts against every subset of the samples, and the metrics on two ranks."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import comb, prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.metrics import (
    DistinctStrategies,
    PassAtK,
    effective_strategies,
    extra_strategies,
    gini_simpson,
    pass_at_k,
    rarefaction,
    rarefied_strategies,
    strategies_among_correct,
)

# One sample is a strategy, or None when it is wrong.
samples = st.lists(st.sampled_from([None, "join", "in", "exists"]), min_size=1, max_size=9)


def brute_force(answers, k):
    """Mean number of distinct correct strategies over all subsets of size k."""
    subsets = list(combinations(answers, k))
    return sum(len(set(subset) - {None}) for subset in subsets) / len(subsets)


def counts_of(answers):
    return list(Counter(answer for answer in answers if answer is not None).values())


@settings(max_examples=60, deadline=None)
@given(samples)
def test_it_is_the_mean_over_all_subsets(answers):
    counts, n = counts_of(answers), len(answers)
    for k in range(1, n + 1):
        assert rarefied_strategies(counts, n, k) == pytest.approx(brute_force(answers, k), abs=1e-12)
        assert rarefied_strategies(counts, n, k) >= float(pass_at_k(n, sum(counts), k)) - 1e-12


def test_all_samples_give_the_count_and_one_sample_the_accuracy():
    counts = [50, 7, 1, 0]
    assert rarefied_strategies(counts, 200, 200) == 3
    assert rarefied_strategies(counts, 200, 1) == pytest.approx(58 / 200, abs=1e-15)
    assert rarefied_strategies([], 200, 128) == 0


@settings(max_examples=40, deadline=None)
@given(samples.filter(any))
def test_among_correct_samples_accuracy_does_not_matter(answers):
    correct = [answer for answer in answers if answer is not None]
    for k in range(1, len(correct) + 1):
        assert strategies_among_correct(counts_of(answers), k) == pytest.approx(brute_force(correct, k), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), min_size=3, max_size=3), min_size=1, max_size=5), st.data())
def test_many_problems_at_once_equal_exact_fractions(counts, data):
    spare = data.draw(st.lists(st.integers(1, 60), min_size=len(counts), max_size=len(counts)))
    n = [sum(row) + more for row, more in zip(counts, spare, strict=True)]
    k = data.draw(st.integers(1, min(n)))
    exact = [
        sum(1 - Fraction(comb(total - c, k), comb(total, k)) for c in row) for row, total in zip(counts, n, strict=True)
    ]
    assert rarefaction(counts, n, k).tolist() == pytest.approx([float(value) for value in exact], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_extra_strategies_are_those_beyond_the_first_right_one(answers):
    for k in range(1, len(answers) + 1):
        subsets = list(combinations(answers, k))
        beyond = sum(max(0, len(set(subset) - {None}) - 1) for subset in subsets)
        expected = float(Fraction(beyond, len(subsets)))
        assert extra_strategies(counts_of(answers), len(answers), k) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(samples.filter(lambda answers: sum(map(bool, answers)) >= 2))
def test_the_gini_simpson_index_is_the_share_of_pairs_that_differ(answers):
    pairs = list(combinations([answer for answer in answers if answer is not None], 2))
    exact = float(Fraction(sum(one != other for one, other in pairs), len(pairs)))
    assert float(gini_simpson(counts_of(answers))) == pytest.approx(exact, abs=1e-12)
    assert float(gini_simpson([*counts_of(answers), 0])) == float(gini_simpson(counts_of(answers)))


def test_the_gini_simpson_index_estimates_that_of_the_policy_without_bias():
    """Over every sequence of four draws from known shares, weighted by its chance."""
    shares = {"join": Fraction(1, 2), "in": Fraction(1, 3), "exists": Fraction(1, 6)}
    expected = Fraction(0)
    for drawn in product(shares, repeat=4):
        chance = prod(shares[strategy] for strategy in drawn)
        expected += chance * Fraction(float(gini_simpson(counts_of(drawn)))).limit_denominator(1000)
    assert expected == 1 - sum(share**2 for share in shares.values())


def test_effective_strategies_undo_the_index_and_are_infinite_where_no_two_agree():
    assert effective_strategies([0.0, 0.5, 0.75]).tolist() == [1.0, 2.0, 4.0]
    assert gini_simpson([[5, 0], [1, 1]]).tolist() == [0.0, 1.0]
    assert effective_strategies(gini_simpson([1, 1])) == np.inf
    assert np.isnan(effective_strategies(np.nan))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gini_simpson([[2, 1], [1, 0]]), "at least 2 correct samples .* got 1"),
        (lambda: gini_simpson([3, -1]), "no negative count"),
        (lambda: effective_strategies([0.5, 1.01]), "within 0..1"),
        (lambda: effective_strategies(-0.01), "within 0..1"),
        (lambda: rarefaction([[1], [1]], [4, 2], 3), "k=3 needs at least 3"),
        (lambda: extra_strategies([3, 3], 5, 2), "more than the 5 samples"),
        (lambda: rarefied_strategies([1], 4, 5), "at least 5 samples"),
        (lambda: rarefied_strategies([], 4, 5), "at least 5 samples"),
        (lambda: rarefied_strategies([3, 3], 5, 2), "more than the 5 samples"),
        (lambda: rarefied_strategies([-1, 2], 5, 2), "outside"),
        (lambda: strategies_among_correct([1, 1], 3), "at least 3 samples"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def rows_of(problems):
    """Samples of several problems as three tensors; wrong ones carry a strategy that must not count."""
    rows = [(p, answer is not None, hash_of(answer)) for p, answers in problems.items() for answer in answers]
    problem, correct, strategy = (torch.tensor(column, dtype=torch.int64) for column in zip(*rows, strict=True))
    return problem, correct.bool(), strategy


def hash_of(answer):
    return {"join": 2**62 + 1, "in": -(2**63), "exists": 2**62, None: 5}[answer]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([None, "join", "in", "exists"]), min_size=4, max_size=7), min_size=1, max_size=4)
)
def test_the_metric_is_the_mean_of_the_problems(problems):
    metric = DistinctStrategies(ks=(1, 4))
    metric.update(*rows_of(dict(enumerate(problems))))
    for k in (1, 4):
        exact = [brute_force(answers, k) for answers in problems]
        assert metric.per_problem().figures[f"strategies@{k}"].tolist() == pytest.approx(exact, abs=1e-12)
        assert metric.compute()[f"strategies@{k}"].item() == pytest.approx(np.mean(exact), abs=1e-6)


SHARES = {
    # One problem is split over the ranks, another was given to both by a sampler that evens them out.
    "uneven": [
        {0: ["join", None, "in"], 2: ["in", "in", None, "exists"]},
        {0: ["join"], 5: [None] * 4, 2: ["join"] * 4},
    ],
    "one rank idle": [{0: ["join", None, "in", "in"], 1: ["exists", None, None, None]}, {}],
}


def ranked_worker(rank, folder):
    """One of two ranks: both metrics, and the whole on a single process beside them."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results = {}
    for name, shares in SHARES.items():
        for metric, columns in ((PassAtK(ks=(1, 4)), 2), (DistinctStrategies(ks=(1, 4)), 3)):
            if shares[rank]:
                metric.update(*rows_of(shares[rank])[:columns])
            means = {key: value.item() for key, value in metric.compute().items()}
            results[name, columns] = (means, metric.per_problem())
    torch.distributed.destroy_process_group()
    torch.save(results, folder / f"rank{rank}.pt")


def test_two_ranks_agree_with_the_whole_however_uneven_their_shares(tmp_path):
    torch.multiprocessing.spawn(ranked_worker, (tmp_path,), nprocs=2)
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in (0, 1))
    for name, shares in SHARES.items():
        whole = {p: shares[0].get(p, []) + shares[1].get(p, []) for p in sorted({**shares[0], **shares[1]})}
        for (means, per_problem), prefix, columns in (
            (first[name, 2], "pass", 2),
            (first[name, 3], "strategies", 3),
        ):
            assert means == second[name, columns][0]
            assert per_problem.problems.tolist() == list(whole)
            for k in (1, 4):
                if prefix == "pass":
                    whole_k = [
                        brute_force([answer and "correct" for answer in answers], k) for answers in whole.values()
                    ]
                else:
                    whole_k = [brute_force(answers, k) for answers in whole.values()]
                assert per_problem.figures[f"{prefix}@{k}"].tolist() == pytest.approx(whole_k, abs=1e-12)
                assert means[f"{prefix}@{k}"] == pytest.approx(np.mean(whole_k), abs=1e-6)
