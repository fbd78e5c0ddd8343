"""The verification pool: right answers whatever a solution does to its worker, each computed once."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Domain, Judgement, Problem, Reason, Verdict
from elite_lightning.verify import VerificationPool, Want, judge

PROBLEM = Problem("p1", "what is 6 times 7?", {"answer": "42"})
OTHER = Problem("p2", "what is 2 times 2?", {"answer": "4"})
EVERYTHING = Want(cell=True, strategy=True)


class MarkedDomain:
    """Right is the problem's answer; some solutions are marked to misbehave. Every call leaves a line in a file."""

    name = "marked"
    approaches = ("short", "long")

    def __init__(self, log: Path) -> None:
        self.log = log

    def fingerprint(self) -> str:
        return "marked"

    def prompt(self, problem, target=None, parent=None) -> str:
        return problem.question

    def extract(self, response):
        return response.strip() or None

    def verify(self, problem, solution) -> Verdict:
        self._write(f"verify {problem.id} {solution}")
        if "slow" in solution:
            time.sleep(0.3)
        if "kill" in solution:
            os.kill(os.getpid(), signal.SIGKILL)
        if "exit" in solution:
            os._exit(3)
        if "hang" in solution:
            time.sleep(60)
        if "raise" in solution:
            raise ZeroDivisionError("a bug in the domain")
        if "repair" in solution:
            raise UsageError("the database is missing: put it there")
        if "modules" in solution:
            heavy = [name for name in ("torch", "lightning", "transformers") if name in sys.modules]
            return Verdict(False, 0.0, Reason.WRONG_RESULT, f"{os.getpid()} {heavy}")
        if solution.startswith(problem.data["answer"]):
            return Verdict(True, 1.0)
        return Verdict(False, 0.0, Reason.WRONG_RESULT)

    def cell(self, problem, solution) -> Cell:
        self._write(f"cell {problem.id} {solution}")
        if "crooked" in solution:
            raise ValueError("cannot be filed")
        return Cell("short" if len(solution) < 4 else "long", str(len(solution)))

    def strategy(self, problem, solution) -> str:
        self._write(f"strategy {problem.id} {solution}")
        return solution.upper()

    def _write(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(line + "\n")

    def calls(self) -> list[str]:
        return sorted(self.log.read_text().splitlines()) if self.log.exists() else []


class UnloadableDomain(MarkedDomain):
    def __setstate__(self, state) -> None:
        raise OSError("cannot be loaded here")


@pytest.fixture
def domain(tmp_path) -> MarkedDomain:
    return MarkedDomain(tmp_path / "calls.log")


def test_the_test_domain_is_a_domain(domain):
    assert isinstance(domain, Domain)


def test_judge_describes_correct_solutions_only_and_only_when_asked(domain):
    assert judge(domain, PROBLEM, " 42 ") == Judgement("42", Verdict(True, 1.0))
    assert judge(domain, PROBLEM, "42", EVERYTHING) == Judgement("42", Verdict(True, 1.0), Cell("short", "2"), "42")
    wrong = judge(domain, PROBLEM, "41", EVERYTHING)
    assert (wrong.verdict.reason, wrong.cell, wrong.strategy) == (Reason.WRONG_RESULT, None, None)
    empty = judge(domain, PROBLEM, "  ", EVERYTHING)
    assert (empty.solution, empty.verdict.reason) == (None, Reason.NO_SOLUTION)
    assert domain.calls() == ["cell p1 42", "strategy p1 42", "verify p1 41", "verify p1 42", "verify p1 42"]


@pytest.mark.parametrize("solution", ["raise", "42 crooked"])
def test_a_bug_in_the_domain_is_no_wrong_answer(domain, solution):
    verdict = judge(domain, PROBLEM, solution, EVERYTHING).verdict
    assert verdict.reason is Reason.VERIFIER_FAILURE
    assert not verdict.counted
    assert "Error: " in verdict.detail


@pytest.mark.parametrize("workers", [0, 2])
def test_pool_agrees_with_judge_and_computes_each_solution_once(domain, tmp_path, workers):
    items = [(problem, response) for problem in (PROBLEM, OTHER) for response in ("42", "4", "42 ", "", "41")] * 20
    expected = [judge(MarkedDomain(tmp_path / "other.log"), *item, Want(cell=True)) for item in items]
    with VerificationPool(domain, workers=workers) as pool:
        assert pool.judge_many(items, Want(cell=True)) == expected
        assert pool.judge_many(items, Want(cell=True)) == expected
        assert pool.judge(PROBLEM, "42").cell == Cell("short", "2")
        assert pool.judge_many([]) == []
        assert pool.executed == 6
    verified = ["verify p1 4", "verify p1 41", "verify p1 42", "verify p2 4", "verify p2 41", "verify p2 42"]
    # "42" begins with "4", which is right for the second problem
    assert domain.calls() == sorted([*verified, "cell p1 42", "cell p2 4", "cell p2 41", "cell p2 42"])


@pytest.mark.parametrize("workers", [0, 1])
def test_descriptors_come_later_without_a_second_verification(domain, workers):
    with VerificationPool(domain, workers=workers) as pool:
        assert pool.judge_many([(PROBLEM, "42"), (PROBLEM, "7")]) == [
            Judgement("42", Verdict(True, 1.0)),
            Judgement("7", Verdict(False, 0.0, Reason.WRONG_RESULT)),
        ]
        assert pool.judge_many([(PROBLEM, "42")], Want(strategy=True))[0].strategy == "42"
        both = pool.judge_many([(PROBLEM, "42"), (PROBLEM, "7")], EVERYTHING)
        assert both[0] == Judgement("42", Verdict(True, 1.0), Cell("short", "2"), "42")
        assert pool.judge_many([(PROBLEM, "42")]) == [Judgement("42", Verdict(True, 1.0))]
    assert domain.calls() == ["cell p1 42", "strategy p1 42", "verify p1 42", "verify p1 7"]


def test_work_on_its_way_is_shared_and_extended(domain):
    with VerificationPool(domain, workers=2) as pool:
        first = pool.submit([(PROBLEM, "42 slow"), (PROBLEM, "1 slow")])
        second = pool.submit([(PROBLEM, "42 slow"), (PROBLEM, "1 slow")], EVERYTHING)
        third = pool.submit([(PROBLEM, "42 slow")], Want(cell=True))
        assert not first.done()
        assert [part.cell for part in second.result()] == [Cell("long", "7"), None]
        assert third.result()[0] == Judgement("42 slow", Verdict(True, 1.0), Cell("long", "7"))
        assert [part.cell for part in first.result()] == [None, None]
    assert domain.calls() == ["cell p1 42 slow", "strategy p1 42 slow", "verify p1 1 slow", "verify p1 42 slow"]


def test_submit_returns_while_the_workers_work(domain):
    with VerificationPool(domain, workers=1) as pool:
        pool.judge_many([(PROBLEM, "warm up")])
        begin = time.monotonic()
        future = pool.submit([(PROBLEM, f"42 slow {index}") for index in range(3)])
        assert time.monotonic() - begin < 0.6  # the work takes 0.9
        assert not future.done()
        assert all(part.verdict.correct for part in future.result())
        assert time.monotonic() - begin > 0.85


@pytest.mark.parametrize("bad", ["exit", "kill", "hang"])
def test_a_lost_worker_costs_only_the_solution_that_is_to_blame(domain, bad):
    items = [(PROBLEM, f"42 {index}") for index in range(40)]
    items[7] = items[30] = (PROBLEM, bad)
    items[11] = (PROBLEM, "wrong")
    with VerificationPool(domain, workers=2, timeout_s=1.0, retries=1) as pool:
        judged = pool.judge_many(items, Want(cell=True))
        assert [part.verdict.correct for part in judged] == [index not in (7, 11, 30) for index in range(40)]
        reason = Reason.TIMEOUT if bad == "hang" else Reason.VERIFIER_FAILURE
        assert judged[7].verdict.reason is judged[30].verdict.reason is reason
        assert "tried 2 times" in judged[7].verdict.detail
        assert judged[11].verdict.reason is Reason.WRONG_RESULT
        failures = 0 if bad == "hang" else 1
        assert (pool.failures, pool.executed) == (failures, 39)
        assert pool.judge(PROBLEM, bad).verdict.reason is reason  # remembered: it would take the next worker along
        assert (pool.failures, pool.executed) == (failures, 39)
    # On a busy machine a worker may die before it is known what it worked on, which costs the solution no attempt.
    assert 2 <= domain.calls().count(f"verify p1 {bad}") <= 4


@pytest.mark.parametrize("retries", [0, 2])
def test_a_solution_is_tried_again_as_often_as_asked(domain, retries):
    with VerificationPool(domain, workers=1, retries=retries) as pool:
        verdict = pool.judge(PROBLEM, "exit").verdict
    assert verdict.reason is Reason.VERIFIER_FAILURE
    assert f"tried {retries + 1} times" in verdict.detail
    assert retries + 1 <= domain.calls().count("verify p1 exit") <= retries + 3


def test_an_idle_worker_that_dies_is_replaced(domain):
    with VerificationPool(domain, workers=1) as pool:
        pid = int(pool.judge(PROBLEM, "modules").verdict.detail.split()[0])
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.4)
        assert pool.judge(PROBLEM, "42").verdict.correct
        assert pool.failures == 0


def test_the_users_error_reaches_the_caller_and_only_that_batch(domain):
    with VerificationPool(domain, workers=1) as pool:
        good = pool.submit([(PROBLEM, "42")])
        bad = pool.submit([(PROBLEM, "repair"), (PROBLEM, "42 b")])
        with pytest.raises(UsageError, match="put it there"):
            bad.result()
        assert good.result()[0].verdict.correct
        assert pool.judge(PROBLEM, "42 b").verdict.correct


def test_a_domain_that_cannot_travel_is_refused_in_one_line(domain, tmp_path):
    unpicklable = MarkedDomain(tmp_path / "log")
    unpicklable.handle = threading.Lock()
    with pytest.raises(TypeError, match="the domain 'marked' cannot be sent to worker processes"):
        VerificationPool(unpicklable, workers=1)
    with VerificationPool(unpicklable, workers=0) as pool:
        assert pool.judge(PROBLEM, "42").verdict.correct
    with (
        VerificationPool(UnloadableDomain(tmp_path / "log"), workers=1) as pool,
        pytest.raises(RuntimeError, match="cannot be loaded here"),
    ):
        pool.judge(PROBLEM, "42")


@pytest.mark.parametrize("setting", [{"workers": -1}, {"timeout_s": 0.0}, {"retries": -1}])
def test_settings_out_of_range_are_refused(domain, setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be"):
        VerificationPool(domain, **setting)


def test_two_problems_of_one_id_are_not_confused(domain):
    twin = Problem(PROBLEM.id, "another data set's question", {"answer": "41"})
    with VerificationPool(domain, workers=0) as pool:
        assert [pool.judge(problem, "42").verdict.correct for problem in (PROBLEM, twin, PROBLEM)] == [
            True,
            False,
            True,
        ]


def test_workers_never_import_torch_and_end_with_the_pool(domain):
    with VerificationPool(domain, workers=2) as pool:
        details = {part.verdict.detail for part in pool.judge_many([(PROBLEM, f"modules {i}") for i in range(64)])}
        assert all(detail.endswith("[]") for detail in details), details
        pids = {int(detail.split()[0]) for detail in details}
        assert os.getpid() not in pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert multiprocessing.active_children() == []


def test_close_releases_whoever_waits(domain):
    pool = VerificationPool(domain, workers=1)
    future = pool.submit([(PROBLEM, "hang")])
    time.sleep(0.5)
    pool.close()
    with pytest.raises(RuntimeError, match="closed before"):
        future.result(timeout=5)
    with pytest.raises(RuntimeError, match="is closed"):
        pool.submit([(PROBLEM, "42")])


def test_threads_may_share_a_pool(domain):
    results: list[list[bool]] = []

    def ask() -> None:
        items = [(PROBLEM, f"42 {index % 10}") for index in range(200)]
        results.append([part.verdict.correct for part in pool.judge_many(items, Want(cell=True))])

    with VerificationPool(domain, workers=2) as pool:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.executed == 10
    assert results == [[True] * 200] * 4
    assert len(domain.calls()) == 20


def run_program(folder: Path, text: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program of its own that can import this file."""
    program = folder / "program.py"
    head = """
        import os, signal, sys
        from pathlib import Path
        from elite_lightning.types import Problem
        from elite_lightning.verify import VerificationPool
        from test_verify import MarkedDomain
        problem = Problem("p", "q", {"answer": "1"})
    """
    program.write_text(textwrap.dedent(head) + textwrap.dedent(text))
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, str(program)]
    return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, timeout=60)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise KeyError('x')"])
def test_no_worker_outlives_a_program_that_forgets_to_close(tmp_path, ending):
    done = run_program(
        tmp_path,
        f"""
        if __name__ == "__main__":
            pool = VerificationPool(MarkedDomain(Path("calls.log")), workers=1)
            print(pool.judge(problem, "modules").verdict.detail.split()[0], flush=True)
            pool.submit([(problem, f"slow {{i}}") for i in range(3)])
            {ending}
        """,
    )
    worker = Path(f"/proc/{int(done.stdout.split()[0])}")
    deadline = time.monotonic() + 10
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists()


def test_a_short_program_ends_without_a_word_on_stderr(tmp_path):
    done = run_program(
        tmp_path,
        """
        if __name__ == "__main__":
            with VerificationPool(MarkedDomain(Path("calls.log")), workers=3) as pool:
                assert pool.judge(problem, "1").verdict.correct
        """,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_verification_of_sql_loads_nothing_heavy(tmp_path):
    done = run_program(
        tmp_path,
        """
        import elite_lightning.domains.sql
        print(sorted({"torch", "lightning", "transformers", "numpy"} & set(sys.modules)))
        """,
    )
    assert done.stdout == b"[]\n"


def test_a_main_module_without_a_guard_is_reported_instead_of_looping(tmp_path):
    done = run_program(
        tmp_path,
        """
        with VerificationPool(MarkedDomain(Path("calls.log")), workers=1) as pool:
            pool.judge(problem, "1")
        """,
    )
    assert done.returncode != 0
    assert b"workers end before they begin" in done.stderr


def test_slow_solutions_do_not_time_out_because_they_travel_together(domain):
    """Each takes 0.3 of 1 second; a worker gives back what it has not begun after a quarter of the time."""
    items = [(PROBLEM, f"42 slow {index}") for index in range(8)]
    with VerificationPool(domain, workers=1, timeout_s=1.0, retries=0) as pool:
        pool.judge_many([(PROBLEM, "warm up")])
        assert all(part.verdict.correct for part in pool.judge_many(items))
    assert len(domain.calls()) == 9


def test_no_solution_answers_for_another_even_without_retries(domain):
    items = [(PROBLEM, f"42 {index}") for index in range(20)] + [(PROBLEM, "hang"), (PROBLEM, "exit")]
    with VerificationPool(domain, workers=1, timeout_s=0.7, retries=0) as pool:
        reasons = [part.verdict.reason for part in pool.judge_many(items)]
    assert reasons == [None] * 20 + [Reason.TIMEOUT, Reason.VERIFIER_FAILURE]
