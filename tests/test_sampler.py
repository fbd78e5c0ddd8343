"""Balance at every moment, one stream for all ranks, and a counter that is all there is to save."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.errors import UsageError
from elite_lightning.sampler import BalancedSampler

ARCHIVES = st.dictionaries(st.text(max_size=3), st.integers(1, 5), min_size=1, max_size=6)
SEEDS = st.integers(0, 3)


@given(ARCHIVES, SEEDS, st.integers(0, 150))
def test_counts_differ_by_at_most_one_at_any_time(cells, seed, length):
    sampler = BalancedSampler(cells, seed)
    problems = Counter(dict.fromkeys(cells, 0))
    drawn = {problem: Counter(dict.fromkeys(range(count), 0)) for problem, count in cells.items()}
    for _ in range(length):
        problem, cell = sampler.draw()
        problems[problem] += 1
        drawn[problem][cell] += 1
        assert max(problems.values()) - min(problems.values()) <= 1
        assert set(drawn[problem]) == set(range(cells[problem]))
        assert max(drawn[problem].values()) - min(drawn[problem].values()) <= 1


@given(ARCHIVES, SEEDS, st.integers(1, 5), st.lists(st.integers(0, 7), max_size=5))
def test_ranks_share_one_stream_without_overlap(cells, seed, world_size, steps):
    alone = BalancedSampler(cells, seed)
    ranks = [BalancedSampler(cells, seed) for _ in range(world_size)]
    for n in steps:
        shares = [sampler.take(n, rank, world_size) for rank, sampler in enumerate(ranks)]
        assert [len(share) for share in shares] == [n] * world_size
        assert [draw for turn in zip(*shares, strict=True) for draw in turn] == alone.take(n * world_size)
        assert all(sampler.drawn == alone.drawn for sampler in ranks)


@given(ARCHIVES, SEEDS, st.integers(0, 60))
def test_a_restored_sampler_goes_on_with_the_same_draws(cells, seed, drawn):
    sampler = BalancedSampler(cells, seed)
    sampler.take(drawn)
    state = sampler.state_dict()
    # The order of the mapping does not matter.
    restored = BalancedSampler(dict(reversed(cells.items())), seed)
    restored.take(3)
    restored.load_state_dict(state)
    assert restored.take(40) == sampler.take(40)


def test_a_state_of_something_else_is_refused_and_changes_nothing():
    state = BalancedSampler({"a": 2, "b": 1}, seed=1).state_dict()
    for sampler, message in [
        (BalancedSampler({"a": 2, "b": 2}, seed=1), "other problems or cells"),
        (BalancedSampler({"a": 2, "c": 1}, seed=1), "other problems or cells"),
        (BalancedSampler({"a": 2, "b": 1}, seed=2), "belongs to seed 1, this run has 2"),
    ]:
        with pytest.raises(UsageError, match=message):
            sampler.load_state_dict(state)
        assert sampler.drawn == 0


@settings(max_examples=40, deadline=None)
@given(ARCHIVES, SEEDS, st.integers(1, 60))
def test_what_groups_are_made_from_decides_the_digest_and_not_the_draws(groups, seed, drawn):
    plain, made = BalancedSampler(groups, seed), BalancedSampler(groups, seed, "elites by cell")
    assert plain.take(drawn) == made.take(drawn)
    for other in (plain, BalancedSampler(groups, seed, "elites alike")):
        with pytest.raises(UsageError, match="or to another balancing"):
            other.load_state_dict(made.state_dict())
    again = BalancedSampler(groups, seed, "elites by cell")
    again.load_state_dict(made.state_dict())
    assert again.take(20) == made.take(20)


def test_nothing_to_draw_from_is_an_error():
    with pytest.raises(UsageError, match="no problem"):
        BalancedSampler({})
    with pytest.raises(UsageError, match="'b': it has 0 items"):
        BalancedSampler({"a": 1, "b": 0})


def test_seeds_and_passes_shuffle_afresh():
    cells = dict.fromkeys(map(str, range(30)), 1)
    passes = [BalancedSampler(cells, seed).take(90) for seed in (0, 1)]
    orders = [tuple(stream[i : i + 30]) for stream in passes for i in (0, 30, 60)]
    assert len(set(orders)) == 6
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_orders_are_uniform():
    # 3 problems have 6 orders; over 1,200 passes each comes 200 times, give or take (chi-square, 5 degrees, p = 1e-6).
    draws = [problem for problem, _ in BalancedSampler({"a": 1, "b": 1, "c": 1}, seed=5).take(3600)]
    counts = Counter(tuple(draws[i : i + 3]) for i in range(0, 3600, 3))
    assert len(counts) == 6
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 36


def test_the_cost_of_a_draw_does_not_grow_with_the_archive():
    # Counts work, not seconds: a whole pass over n problems shuffles n items once.
    class Counted(BalancedSampler):
        shuffled = 0

        def _shuffled(self, size, *purpose):
            self.shuffled += size
            return super()._shuffled(size, *purpose)

    for size in (10, 1000):
        sampler = Counted(dict.fromkeys(map(str, range(size)), 1))
        sampler.take(3 * size)
        assert sampler.shuffled / (3 * size) <= 2


def test_the_first_draws_stay_what_they_were():
    # A stored position is worth something only if the next release draws the same.
    draws = BalancedSampler({"a": 3, "b": 1, "c": 2}, seed=7).take(9)
    assert draws == [(p, int(c)) for p, c in ("b0", "c0", "a2", "c1", "b0", "a1", "b0", "c0", "a0")]


def test_a_stored_position_stays_what_it_was():
    # The digest as the first release wrote it: a checkpoint of that time can be gone on with.
    sampler = BalancedSampler({"c": 2, "a": 3, "b": 1}, seed=7)
    digest = hashlib.sha256(b'[["a", 3], ["b", 1], ["c", 2]]').hexdigest()
    sampler.load_state_dict({"drawn": 4, "seed": 7, "digest": digest})
    assert sampler.take(2) == [("b", 0), ("a", 1)]
