"""Which approach is asked for, which parent is shown, and whose turn it is."""

import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elite_lightning.errors import UsageError
from elite_lightning.search.settings import SearchSettings
from elite_lightning.search.targets import Progress, SuccessRates, choose_parent, choose_target, turn_order
from elite_lightning.types import Cell, Elite, Sampling

VOCABULARY = ("in", "exists", "join", "except")
BLIND = SearchSettings(use_success_rates=False)


def choose(covered=(), asked=None, rates=None, settings=BLIND, seed=0):
    progress = Progress(asked=Counter(asked or {}))
    return choose_target(VOCABULARY, covered, progress, rates or SuccessRates(), settings, random.Random(seed))


def rates_of(**hits_of_ten):
    rates = SuccessRates()
    for target, hits in hits_of_ten.items():
        for number in range(10):
            rates.record((), target, number < hits)
    return rates


@given(
    st.sets(st.sampled_from(VOCABULARY)), st.dictionaries(st.sampled_from(VOCABULARY), st.integers(0, 5)), st.integers()
)
def test_uncovered_comes_first_then_the_least_tried(covered, asked, seed):
    # With nothing known, success rates change nothing: all chances are equal.
    for settings in (BLIND, SearchSettings()):
        target = choose(sorted(covered), asked, settings=settings, seed=seed)
        candidates = set(VOCABULARY) - covered or set(VOCABULARY)
        assert target in candidates
        assert asked.get(target, 0) == min(asked.get(name, 0) for name in candidates)


def test_ties_are_broken_by_lot_and_the_lot_by_the_seed():
    assert {choose(seed=seed) for seed in range(40)} == set(VOCABULARY)
    assert len({choose(seed=7) for _ in range(5)}) == 1


def test_what_succeeds_on_other_problems_is_asked_first():
    rates = rates_of(**{"in": 1, "exists": 8, "join": 3, "except": 0})
    order, asked = [], {}
    for _ in range(4):
        order.append(choose(asked=asked, rates=rates, settings=SearchSettings()))
        asked[order[-1]] = 10  # in vain
    assert order == ["exists", "join", "in", "except"]
    assert {choose(rates=rates, seed=seed) for seed in range(40)} == set(VOCABULARY)


def test_a_chance_shrinks_with_every_vain_round():
    # exists (8 + 1) / 12 against join (3 + 1) / 12: asked twice in vain 9/36 < 4/12, asked once 9/24 > 4/12.
    rates = rates_of(**{"in": 0, "exists": 8, "join": 3, "except": 0})
    assert choose(asked={"exists": 1}, rates=rates, settings=SearchSettings()) == "exists"
    assert choose(asked={"exists": 2}, rates=rates, settings=SearchSettings()) == "join"


def test_what_is_as_good_as_impossible_comes_after_the_covered():
    rates = SuccessRates()
    for _ in range(98):
        rates.record(("in",), "join", hit=False)
        rates.record(("in",), "except", hit=False)
    rates.record(("in",), "exists", hit=True)
    assert choose(("in", "exists"), {"in": 5, "exists": 4}, rates, SearchSettings()) == "exists"
    never = SearchSettings(min_success_rate=0.0)
    assert choose(("in", "exists"), {"in": 5, "exists": 4}, rates, never) in ("join", "except")
    # 1 / 100 is the estimate: a floor just below it lets the approaches in again.
    assert choose(("in", "exists"), {}, rates, SearchSettings(min_success_rate=0.0099)) in ("join", "except")


@given(st.lists(st.tuples(st.sets(st.sampled_from(VOCABULARY)), st.sampled_from(VOCABULARY), st.booleans())))
def test_rates_follow_laplace_over_pairs(history):
    rates = SuccessRates()
    for covered, target, hit in history:
        rates.record(covered, target, hit)
    for covered in ({"in"}, {"in", "join"}, set()):
        hits = attempts = 0
        for was_covered, target, hit in history:
            shared = len(covered & was_covered) if covered else int(not was_covered)
            if target == "exists":
                attempts += shared
                hits += shared * hit
        assert rates.rate(covered, "exists") == float(Fraction(1 + hits, 2 + attempts))


def elite(approach, structure="s"):
    return Elite("p", Cell(approach, structure), approach, approach, (0,))


def test_the_parent_is_of_another_approach_if_there_is_one():
    elites = [elite("in"), elite("in", "t"), elite("join")]
    chosen = {choose_parent(elites, "join", random.Random(seed)).cell for seed in range(40)}
    assert chosen == {("in", "s"), ("in", "t")}
    assert choose_parent([elite("join")], "join", random.Random(0)).cell.approach == "join"
    assert choose_parent([], "join", random.Random(0)) is None


def test_few_attempts_and_few_cells_come_first():
    settings = SearchSettings(samples_per_target=4)
    turns = {
        (attempts, cells): turn_order(Progress(attempts=attempts, cells=cells), settings)
        for attempts in (8, 12, 40)
        for cells in (0, 1, 3)
    }
    assert turns[8, 0] < turns[8, 1] < turns[8, 3]
    assert turns[8, 1] < turns[12, 1] < turns[40, 1]
    # A problem in which nothing is found does not take everything.
    assert turns[40, 0] > turns[12, 3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed_samples", 0),
        ("samples_per_target", 0),
        ("problems_per_round", 0),
        ("batch_problems", -1),
        ("plain_every", 0),
        ("parent_probability", 1.5),
        ("min_success_rate", -0.1),
        ("attempts_per_problem", 7),
        ("attempts_per_problem", 27),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(UsageError, match=rf"search\.{name} must .*got {value}"):
        SearchSettings(**{name: value})


def test_every_setting_changes_the_fingerprint():
    changed = [
        SearchSettings(attempts_per_problem=28),
        SearchSettings(seed=1),
        SearchSettings(sampling=Sampling(temperature=0.5)),
        SearchSettings(use_success_rates=False),
        SearchSettings(cells="approach"),
        SearchSettings(cells="structure"),
    ]
    prints = {settings.fingerprint("map_elites") for settings in [SearchSettings(), *changed]}
    assert len(prints | {SearchSettings().fingerprint("iid")}) == 8
    assert SearchSettings().flat()["sampling.temperature"] == 1.0
