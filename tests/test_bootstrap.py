"""Bootstrap intervals against the exact resampling distribution, and what a confidence level promises."""

from itertools import product

import numpy as np
import pytest

from elite_lightning.metrics import bootstrap_interval, paired_bootstrap_difference


def test_it_approaches_the_exact_resampling_distribution():
    values = [0.0, 0.1, 0.4, 1.0, 1.1]
    every_mean = [np.mean(resample) for resample in product(values, repeat=5)]
    exact = np.quantile(every_mean, [0.1, 0.9])
    interval = bootstrap_interval(values, level=0.8, resamples=4000, seed=3)
    assert list(interval) == pytest.approx(list(exact), abs=0.025)


def test_about_as_many_intervals_hold_the_truth_as_the_level_says():
    generator = np.random.default_rng(0)
    held = 0
    for seed in range(200):
        low, high = bootstrap_interval(generator.random(60) < 0.3, level=0.9, resamples=300, seed=seed)
        held += low <= 0.3 <= high
    assert 0.82 <= held / 200 <= 0.96


def test_equal_seeds_give_equal_intervals_and_others_do_not():
    values = np.random.default_rng(1).random(40)
    assert bootstrap_interval(values, seed=5) == bootstrap_interval(values, seed=5)
    assert bootstrap_interval(values, seed=5) != bootstrap_interval(values, seed=6)


def test_problems_without_spread_have_an_interval_without_width():
    assert bootstrap_interval([0.25] * 9) == (0.25, 0.25)


def test_a_paired_difference_does_not_count_the_problems_own_spread():
    generator = np.random.default_rng(2)
    difficulty = generator.random(50)
    better = difficulty + 0.05 + generator.normal(0, 0.01, 50)
    difference = paired_bootstrap_difference(better, difficulty, seed=1)
    assert difference.mean == pytest.approx(np.mean(better) - np.mean(difficulty))
    assert 0.03 < difference.low < difference.mean < difference.high < 0.07
    alone = bootstrap_interval(better, seed=1)
    assert alone.high - alone.low > 10 * (difference.high - difference.low)


def test_a_paired_difference_changes_sign_with_its_arms():
    one, other = np.random.default_rng(3).random((2, 30))
    forward, backward = (paired_bootstrap_difference(*arms, seed=4) for arms in ((one, other), (other, one)))
    assert [-value for value in backward] == pytest.approx([forward.mean, forward.high, forward.low])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval([]), "at least one"),
        (lambda: bootstrap_interval([[1.0, 2.0]]), "one figure per problem"),
        (lambda: bootstrap_interval([1.0, float("nan")]), "finite"),
        (lambda: bootstrap_interval([1.0], level=1.0), "level"),
        (lambda: bootstrap_interval([1.0], resamples=0), "resamples"),
        (lambda: paired_bootstrap_difference([1.0], [1.0, 2.0]), "same problems, got 1 and 2"),
    ],
)
def test_input_that_would_give_nonsense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
