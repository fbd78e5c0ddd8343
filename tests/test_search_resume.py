"""A search that is stopped anywhere, by an exception or by `kill -9`, and run again ends with the same archive."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from arithmetic_engine import CharacterCodec, RewritingEngine

from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.search import IidSearch, JournalError, MapElitesSearch, SearchJournal, SearchSettings
from elite_lightning.types import Problem
from elite_lightning.verify import VerificationPool

SETTINGS = SearchSettings(16, 4, 3, problems_per_round=4, batch_problems=2)


class StoppingEngine(RewritingEngine):
    """Stops at one of its calls, counted from 0."""

    def __init__(self, stop_at=None, seconds=0.0):
        super().__init__(seconds)
        self.calls, self.stop_at = 0, stop_at

    def generate(self, *arguments):
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        self.calls += 1
        return super().generate(*arguments)


def make(folder, engine=None, cls=MapElitesSearch, workers=0, how=SETTINGS, problems=None):
    pool = VerificationPool(ArithmeticDomain(), workers=workers)
    problems = problems or make_problems(8)
    return cls(ArithmeticDomain(), engine or StoppingEngine(), CharacterCodec(), pool, problems, folder, "base", how)


def everything(search, folder):
    """Bytes of the archive's files and all rows of the journal."""
    search.run().save(folder / "archive.jsonl")
    with SearchJournal(search.journal_path(0)) as journal:
        return [(folder / f"archive.{end}").read_bytes() for end in ("jsonl", "manifest.json")], list(
            journal.attempts()
        )


@pytest.mark.parametrize("cls", [MapElitesSearch, IidSearch])
def test_a_search_stopped_at_any_batch_goes_on_to_the_same_archive(tmp_path, cls):
    whole = make(tmp_path / "whole", cls=cls)
    expected = everything(whole, tmp_path / "whole")
    calls = whole.engine.calls
    assert calls == 2 * 2 + 8 * 2  # two rounds of seeds, eight of targets, two batches each
    for stop_at in range(calls):
        folder = tmp_path / f"{stop_at}"
        with pytest.raises(KeyboardInterrupt):
            make(folder, StoppingEngine(stop_at), cls).run()
        resumed = make(folder, cls=cls)
        assert everything(resumed, folder) == expected
        # Only the batch that was being verified, if any, and those after it are generated again.
        assert calls - stop_at <= resumed.engine.calls <= calls - stop_at + 1


def test_a_finished_search_generates_nothing_and_verifies_only_what_was_right(tmp_path):
    expected = everything(make(tmp_path), tmp_path)
    again = make(tmp_path, StoppingEngine(stop_at=0))
    assert everything(again, tmp_path) == expected
    right = {(a.problem_id, a.solution) for a in expected[1] if a.outcome.correct}
    assert again.pool.executed == len(right)


def test_a_finished_round_shows_in_the_progress_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, StoppingEngine(stop_at=10)).run()
    seen = []
    resumed = make(tmp_path, StoppingEngine(stop_at=0))
    resumed._on_progress = seen.append
    with pytest.raises(KeyboardInterrupt):
        resumed.run()
    with SearchJournal(resumed.journal_path(0)) as journal:
        assert seen[-1].attempts == len(journal) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"how": SearchSettings(16, 4, 3, problems_per_round=4, batch_problems=4)},
            "batch_problems = 2, this run has 4",
        ),
        (
            {"how": SearchSettings(16, 4, 3, problems_per_round=4, batch_problems=2, seed=9)},
            "seed = None, this run has 9",
        ),
        ({"problems": make_problems(9)}, "problems = "),
        ({"problems": make_problems(8, seed=1)}, "problems = "),
    ],
)
def test_a_journal_of_another_search_is_refused_and_kept(tmp_path, change, message):
    expected = everything(make(tmp_path), tmp_path)
    with pytest.raises(JournalError, match=message):
        make(tmp_path, **change).run()
    assert everything(make(tmp_path), tmp_path) == expected


def test_a_verdict_that_changed_is_an_error_and_not_another_archive(tmp_path):
    class Strict(ArithmeticDomain):
        def verify(self, problem, solution):
            return super().verify(Problem(problem.id, "", {"expression": "2 * 2"}), solution)

    make(tmp_path).run()
    changed = make(tmp_path, StoppingEngine(stop_at=0))
    changed.pool = VerificationPool(Strict(), workers=0)
    with pytest.raises(JournalError, match=r"attempt \d+ at problem 'arithmetic-\d' is 'not_allowed' now and was"):
        changed.run()


def test_a_plan_that_does_not_follow_is_an_error(tmp_path):
    class OtherOrder(MapElitesSearch):
        def turn(self, problem, state):
            return -super().turn(problem, state)

    make(tmp_path).run()
    with pytest.raises(JournalError, match="does not follow from the rounds before it"):
        make(tmp_path, cls=OtherOrder).run()


class AnnouncedEngine(StoppingEngine):
    """Leaves a file as a sign that generation has begun."""

    def __init__(self, sign, seconds):
        super().__init__(seconds=seconds)
        self.sign = sign

    def generate(self, *arguments):
        self.sign.touch()
        return super().generate(*arguments)


def search_slowly(folder):
    """What the killed processes do."""
    folder = Path(folder)
    with VerificationPool(ArithmeticDomain(), workers=1) as pool:
        search = make(folder, AnnouncedEngine(folder / "begun", seconds=0.03))
        search.pool = pool
        search.run().save(folder / "archive.jsonl")


def start(folder):
    code = f"import test_search_resume as t; t.search_slowly({str(folder)!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})


def test_a_search_killed_at_random_moments_goes_on_to_the_same_archive(tmp_path):
    expected = everything(make(tmp_path / "whole"), tmp_path / "whole")
    folder, sizes = tmp_path / "killed", []
    sign = folder / "begun"
    for _ in range(4):
        sign.unlink(missing_ok=True)
        process = start(folder)
        while not sign.exists() and process.poll() is None:
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        with SearchJournal(folder / "search.sqlite") as journal:
            sizes.append(len(journal))
    assert sizes == sorted(sizes)
    assert start(folder).wait() == 0
    assert everything(make(folder, StoppingEngine(stop_at=0)), folder) == expected
