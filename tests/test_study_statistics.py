"""Figures of a study against loops, enumerated draws and numbers by hand, written without the code under test."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from elite_lightning.metrics import bootstrap_interval
from elite_lightning.study.resampling import Bootstrap, weighted_means
from elite_lightning.study.statistics import differences, figures, per_problem, ratios

NAN = float("nan")


def mean_of_cells(table, seeds, problems):
    """Mean over the given problems of the mean over the given seeds, as loops; None if there is nothing."""
    of_problems = []
    for problem in problems:
        known = [table[seed][problem] for seed in seeds if not np.isnan(table[seed][problem])]
        if known:
            of_problems.append(sum(known) / len(known))
    return sum(of_problems) / len(of_problems) if of_problems else None


def table_of(seeds, problems, seed=0, missing=0.0):
    generator = np.random.default_rng(seed)
    table = generator.random((seeds, problems))
    table[generator.random(table.shape) < missing] = np.nan
    return table


def samples_and_strategies(runs):
    """Arrays from lists of answers, `runs[seed][problem]`; an answer is a strategy, or None when it is wrong."""
    counts = [[[answers.count(name) for name in "abc"] for answers in run] for run in runs]
    return np.array([[len(answers) for answers in run] for run in runs]), np.array(counts)


RUNS = [
    [["a", "a", "b", None, "c"], ["a", None, None, None, None], [None] * 5, ["b", "b", "b", "b", None]],
    [["a", "b"], ["c", "c", "c", "a", "b"], ["a", "a", None, None, None], ["b", None, None, None, "a"]],
]


def test_every_metric_is_the_mean_over_subsets_and_undefined_where_samples_are_too_few():
    tables = per_problem(*samples_and_strategies(RUNS), ks=(1, 2, 5), correct_ks=(2, 4))
    for (seed, run), problem in product(enumerate(RUNS), range(4)):
        answers = run[problem]
        right = [answer for answer in answers if answer]
        expected = {}
        for k in (1, 2, 5):
            subsets = [set(subset) - {None} for subset in combinations(answers, k)]
            expected[f"pass@{k}"] = [min(len(subset), 1) for subset in subsets]
            expected[f"strategies@{k}"] = [len(subset) for subset in subsets]
            expected[f"extra_strategies@{k}"] = [max(len(subset) - 1, 0) for subset in subsets]
        for k in (2, 4):
            expected[f"strategies_among_correct@{k}"] = [len(set(subset)) for subset in combinations(right, k)]
        expected["gini_simpson"] = [one != other for one, other in combinations(right, 2)]
        assert set(expected) == set(tables)
        for name, values in expected.items():
            exact = float(Fraction(sum(values), len(values))) if values else NAN
            assert tables[name][seed, problem] == pytest.approx(exact, abs=1e-12, nan_ok=True), name


def test_weighted_means_are_means_over_what_was_drawn():
    table = table_of(3, 4, missing=0.6)
    generator = np.random.default_rng(1)
    seeds, problems = generator.integers(3, size=(200, 3)), generator.integers(4, size=(200, 4))
    times = [np.array([np.bincount(row, minlength=size) for row in rows]) for rows, size in ((seeds, 3), (problems, 4))]
    means = weighted_means(table, *(weights.astype(float) for weights in times))
    exact = [mean_of_cells(table, *drawn) for drawn in zip(seeds, problems, strict=True)]
    assert None in exact  # some draws hold nothing
    assert means.tolist() == pytest.approx([NAN if mean is None else mean for mean in exact], abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_both_intervals_approach_the_distribution_over_every_draw(missing):
    """As many seeds as problems, and large on the diagonal, so that draws of one that follow the other's are seen."""
    table = table_of(3, 3, seed=2, missing=missing) + np.eye(3)
    assert np.isnan(table).any() == bool(missing)
    problems = list(product(range(3), repeat=3))
    kinds = {"low high": [range(3)], "low_with_seeds high_with_seeds": list(product(range(3), repeat=3))}
    figure = Bootstrap(level=0.8, resamples=40_000, seed=3).figure(table)
    for names, seeds in kinds.items():
        means = [mean_of_cells(table, *drawn) for drawn in product(seeds, problems)]
        exact = np.quantile([mean for mean in means if mean is not None], [0.1, 0.9])
        assert [getattr(figure, name) for name in names.split()] == pytest.approx(exact.tolist(), abs=0.01)


def test_a_figure_by_hand():
    figure = Bootstrap(resamples=50).figure(np.array([[1.0, 2.0, NAN, NAN], [3.0, NAN, 5.0, NAN]]))
    assert figure.mean == pytest.approx((2.0 + 2.0 + 5.0) / 3)
    assert figure.by_seed == (1.5, 4.0)
    assert figure.seed_deviation == pytest.approx(2.5 / 2**0.5)
    assert (figure.problems, figure.pairs) == (3, 4)


def test_the_interval_over_problems_is_that_of_a_single_evaluation():
    """Of the means over seeds, with the same draws as everywhere else in the package."""
    table = table_of(5, 31)
    figure = Bootstrap(resamples=300, seed=7).figure(table)
    assert (figure.low, figure.high) == pytest.approx(bootstrap_interval(table.mean(axis=0), resamples=300, seed=7))
    assert figure.mean == pytest.approx(table.mean())


def test_only_the_interval_with_seeds_knows_that_another_seed_would_have_given_another_mean():
    """Five seeds whose means differ; the truth is 0. Both are meant to hold it in 95 of 100 cases."""
    generator = np.random.default_rng(0)
    bootstrap, held = Bootstrap(resamples=200), np.zeros(2)
    for _ in range(200):
        noise = generator.normal(0, 0.1, (5, 60)) + generator.normal(0, 0.1, 60)
        figure = bootstrap.figure(noise + generator.normal(0, 0.05, (5, 1)))
        held += [figure.low <= 0 <= figure.high, figure.low_with_seeds <= 0 <= figure.high_with_seeds]
    assert held[0] / 200 < 0.75
    assert 0.85 < held[1] / 200 < 0.98


def test_one_seed_has_no_interval_over_seeds():
    figure = Bootstrap(resamples=50).figure(table_of(1, 9))
    assert figure.low < figure.mean < figure.high
    assert np.isnan([figure.low_with_seeds, figure.high_with_seeds, figure.seed_deviation]).all()


def arm_of(table):
    return {"gini_simpson": table, "strategies@8": 1 + table}


def test_arms_are_drawn_together_so_that_what_they_share_cancels():
    reference = table_of(4, 25) / 2 + np.arange(4)[:, np.newaxis] / 10
    arm = {name: table + 0.125 for name, table in arm_of(reference).items()}
    gap = differences(arm, arm_of(reference), Bootstrap(resamples=100))["strategies@8"]
    ends = [gap.mean, gap.low, gap.high, gap.low_with_seeds, gap.high_with_seeds, *gap.by_seed]
    assert ends == pytest.approx([0.125] * 9, abs=1e-12)
    assert gap.seed_deviation == pytest.approx(0, abs=1e-12)


def test_only_pairs_that_both_arms_have_are_compared():
    """Conditional metrics: an arm that solves only easy problems must not be compared on hard ones."""
    one = np.array([[0.9, 0.5, NAN, NAN], [0.7, NAN, 0.3, NAN]])
    other = np.array([[0.5, NAN, 0.1, 0.9], [0.6, 0.2, 0.1, 0.9]])
    gaps = differences(arm_of(one), arm_of(other), Bootstrap(resamples=50))
    gap = gaps["gini_simpson"]
    assert gap.mean == pytest.approx(((0.4 + 0.1) / 2 + 0.2) / 2)  # problem 0 in both seeds, problem 2 in one
    assert gap.by_seed == pytest.approx((0.4, (0.1 + 0.2) / 2))
    assert (gap.problems, gap.pairs) == (2, 3)
    assert gaps["effective_strategies"].mean == pytest.approx(1 / (1 - 0.55) - 1 / (1 - (1.1 / 2 + 0.1) / 2))


def test_a_ratio_is_one_of_means_and_draws_both_arms_together():
    reference = table_of(3, 20, seed=4)
    tripled = ratios({"strategies@8": 3 * reference}, {"strategies@8": reference}, Bootstrap(resamples=60))
    figure = tripled["strategies@8"]
    assert [figure.mean, figure.low, figure.high, figure.low_with_seeds, figure.high_with_seeds] == pytest.approx(
        [3.0] * 5
    )
    other = table_of(3, 20, seed=5)
    figure = ratios({"strategies@8": other}, {"strategies@8": reference}, Bootstrap(resamples=60))["strategies@8"]
    assert figure.mean == pytest.approx(other.mean() / reference.mean())
    assert figure.by_seed == pytest.approx(tuple(other.mean(axis=1) / reference.mean(axis=1)))
    means = [
        np.array([table.mean(axis=0)[drawn].mean() for drawn in drawn_problems(20, 60)]) for table in (other, reference)
    ]
    assert [figure.low, figure.high] == pytest.approx(np.quantile(means[0] / means[1], [0.025, 0.975]).tolist())


def drawn_problems(problems, resamples):
    generator = np.random.default_rng(0)
    return [generator.integers(problems, size=problems) for _ in range(resamples)]


def test_effective_strategies_come_of_the_mean_index():
    table = np.array([[0.0, 1.0, 0.5], [0.2, 1.0, 0.6]])
    effective = figures({"gini_simpson": table}, Bootstrap(resamples=200, level=0.99))["effective_strategies"]
    assert effective.mean == pytest.approx(1 / (1 - 3.3 / 6))
    assert effective.by_seed == pytest.approx((2.0, 1 / (1 - 1.8 / 3)))
    assert not np.isfinite(effective.high)  # draws of problem 1 alone, where no two right answers agree


def test_a_metric_that_no_problem_has_is_undefined_and_not_an_error():
    figure = Bootstrap(resamples=50).figure(np.full((2, 3), NAN))
    assert np.isnan([figure.mean, figure.low, figure.high_with_seeds, figure.seed_deviation]).all()
    assert (figure.problems, figure.pairs) == (0, 0)


@pytest.mark.parametrize("arguments", [{"level": 1.0}, {"level": 0.0}, {"resamples": 0}])
def test_senseless_settings_are_refused(arguments):
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        Bootstrap(**arguments)
