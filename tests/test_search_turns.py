"""Whose turn it is: the same problems as by sorting all of them, without asking all of them in every round."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from elite_lightning.domains.arithmetic import make_problems
from elite_lightning.search.turns import Turns


@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.tuples(st.integers(0, 14), st.integers(0, 9))))
def test_served_are_the_first_by_turn_and_then_by_the_problems_order(first, rounds):
    problems = make_problems(len(first))
    turn = {problem.id: value for problem, value in zip(problems, first, strict=True)}
    turns = Turns(problems, lambda problem: turn[problem.id])
    for count, added in rounds:
        served = turns.take(count)
        assert served == sorted(problems, key=lambda problem: turn[problem.id])[:count]
        for number, problem in enumerate(served):
            turn[problem.id] += (added + number) % 4  # it may stay the smallest


def test_a_round_asks_only_those_that_the_one_before_served():
    asked = Counter()
    problems = make_problems(1000)

    def turn(problem):
        asked[problem.id] += 1
        return asked[problem.id]

    turns = Turns(problems, turn)
    for _ in range(500):
        assert len(turns.take(4)) == 4
    assert asked.total() == 1000 + 499 * 4
