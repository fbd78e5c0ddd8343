"""What a search remembers of its attempts: chances by approach, and where each elite came from."""

from elite_lightning.archive import EliteArchive, Outcome
from elite_lightning.search import Attempt
from elite_lightning.search.state import Request, SearchState
from elite_lightning.types import Cell, Elite, Problem

PROBLEM = Problem("p", "?")
IN, JOIN = Cell("in", "s"), Cell("join", "s")


def state():
    return SearchState(EliteArchive(lambda p, r: None, str.encode, {}), [PROBLEM])


def attempt(id_, outcome, cell=None):
    return Attempt(id_, 1, 0, "p", "in", (), "", "", outcome, float(cell is not None), cell)


def test_a_hit_is_a_correct_solution_of_the_approach_that_was_asked_for():
    made = state()
    history = [
        attempt(0, Outcome.INSERTED, IN),
        attempt(1, Outcome.INSERTED, JOIN),  # right, but not what was asked for
        attempt(2, Outcome.WRONG_RESULT),
        attempt(3, Outcome.TRUNCATED),
        attempt(4, Outcome.NOT_SHORTER, IN),
        attempt(5, Outcome.VERIFIER_FAILURE),  # says nothing
    ]
    made.record([Request(PROBLEM, "in", None, ("join",))] * 6, history)
    assert made.rates.rate(["join"], "in") == (1 + 2) / (2 + 5)
    assert made.rates.rate(["in"], "in") == made.rates.rate([], "in") == 1 / 2
    assert made.progress["p"].attempts == 6


def test_plain_prompts_say_nothing_about_approaches():
    made = state()
    made.record([Request(PROBLEM)], [attempt(0, Outcome.INSERTED, IN)])
    assert made.rates.rate([], "in") == 1 / 2


def test_the_parent_is_the_attempt_that_the_cell_holds_now():
    made = state()

    def parents(cell):
        return made.parents(Request(PROBLEM, "in", Elite("p", cell, "", "", ())))

    outcomes = [(7, Outcome.INSERTED, IN), (8, Outcome.INSERTED, JOIN), (9, Outcome.REPLACED, IN)]
    made.record([Request(PROBLEM, "in")] * 4, [*(attempt(*o) for o in outcomes), attempt(10, Outcome.NOT_SHORTER, IN)])
    assert (parents(IN), parents(JOIN), made.parents(Request(PROBLEM))) == ((9,), (8,), ())


def test_turns_and_targets_are_counted_when_a_round_begins():
    made = state()
    made.begin([Request(PROBLEM)])
    made.begin([Request(PROBLEM, "in")])
    made.begin([Request(PROBLEM, "in")])
    assert (made.progress["p"].turns, made.progress["p"].asked) == (3, {"in": 2})


def test_elites_and_covered_problems_are_counted_as_they_come_in():
    other = Problem("q", "?")
    made = SearchState(EliteArchive(lambda p, r: None, str.encode, {}), [PROBLEM, other])
    counts = []
    for outcome, cell in [
        (Outcome.WRONG_RESULT, None),
        (Outcome.INSERTED, IN),
        (Outcome.NOT_SHORTER, IN),
        (Outcome.REPLACED, IN),
        (Outcome.INSERTED, JOIN),
    ]:
        made.record([Request(PROBLEM)], [attempt(0, outcome, cell)])
        counts.append((made.elites, made.covered_problems))
    assert counts == [(0, 0), (1, 1), (1, 1), (1, 1), (2, 1)]
    assert (made.progress["p"].cells, made.progress["q"].cells) == (2, 0)
