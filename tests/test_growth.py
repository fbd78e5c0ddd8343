"""What a unit of work costs does not grow with the work: calls of functions are counted, so that nothing is timed."""

import sys

import pytest
from arithmetic_engine import CharacterCodec, RewritingEngine

from datamodules.elite import EliteStream
from elite_lightning.archive import EliteArchive, FrozenArchive
from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.search import MapElitesSearch, SearchSettings
from elite_lightning.types import Cell, Elite, Judgement, Verdict
from elite_lightning.verify import VerificationPool


def calls_of(work):
    """Calls of Python's and of built-in functions while something is done."""
    calls = 0

    def count(_frame, event, _function):
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_an_attempt_of_a_search(tmp_path):
    domain = ArithmeticDomain()

    def calls_an_attempt(size):
        # Rounds of 4: with more problems come more rounds.
        how = SearchSettings(8, 4, 4, problems_per_round=4)
        with VerificationPool(domain, workers=0) as pool:
            given = (domain, RewritingEngine(), CharacterCodec(), pool, make_problems(size), tmp_path / str(size))
            search = MapElitesSearch(*given, "", how, on_progress=lambda _: None)
            return calls_of(search.run) / search.budget

    assert calls_an_attempt(320) < 1.05 * calls_an_attempt(20)


def test_an_insert():
    def calls_an_insert(size):
        judgement = Judgement("", Verdict(True, 1.0), Cell("approach", "structure"))
        archive = EliteArchive(lambda _problem, _response: judgement, str.encode, {})
        problems = make_problems(size)

        def fill():
            for length in (3, 2, 2):
                for problem in problems:
                    archive.insert(problem, "x" * length)

        return calls_of(fill) / (3 * size)

    assert calls_an_insert(1600) < 1.05 * calls_an_insert(100)


@pytest.mark.parametrize(("problems", "each"), [(320, 8), (20, 128)])
def test_a_draw(problems, each):
    def calls_a_draw(size, deep):
        asked = {problem.id: problem for problem in make_problems(size)}
        elites = [Elite(i, Cell(f"approach {n:03}", ""), "x", "x", (1, 0)) for i in asked for n in range(deep)]
        stream = EliteStream(FrozenArchive(elites, {}, 0), asked, ArithmeticDomain(), seed=0)
        return calls_of(lambda: [stream.take(16) for _ in range(size * deep // 16)]) / (size * deep)

    assert calls_a_draw(problems, each) < 1.05 * calls_a_draw(20, 8)
