"""The verification pool: judge responses in worker processes, beside generation, each distinct solution once."""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from elite_lightning.judging import NO_SOLUTION, VERDICT_ONLY, Job, Want, answer, judge
from elite_lightning.types import Domain, Judgement, Problem
from elite_lightning.workers import Answer, Crew, Task

__all__ = ["VerificationPool", "Want", "judge"]

REMEMBERED = 200_000  # pairs that a pool keeps, the least recently used leaving first; about 1 kB each


@dataclass(slots=True)
class _Entry:
    """What is known, or on its way, about one pair of problem and solution."""

    problem: Problem
    want: Want
    future: Future[Judgement]


class VerificationPool:
    """Judges responses in worker processes while the caller generates the next ones.

    Every distinct pair of problem and solution is verified once, however often and from however many threads it is
    asked for, as long as it is among the 200,000 most recently used. Its cell and strategy are computed when they are
    first asked for, and only if it is correct; the interpretations that it answers also if it ran and is wrong.
    Workers start with the first submission and end with `close`.

    Args:
        domain: What decides; it is pickled once and sent to each worker.
        workers: Number of worker processes. 0 judges in this process, which helps in a debugger, and protects
            neither from crashes nor from endless loops.
        timeout_s: Seconds that a worker may take for a solution: at least three quarters of them when solutions travel
            together, all of them when it is tried again by itself. A worker that takes longer is killed.
        retries: How often a solution is tried again, by itself, after its worker crashed; at most once after it took
            too long. After that its verdict is `Reason.VERIFIER_FAILURE`, which counts as no answer, or
            `Reason.TIMEOUT`, a wrong one: what takes too long by itself too is to blame for it.

    Attributes:
        executed: Pairs that were sent to be verified so far, each counted once.
        failures: Pairs whose verification failed for good, each counted once.

    Raises:
        ValueError: If a number is out of range.
        TypeError: If the domain cannot be pickled.
    """

    def __init__(self, domain: Domain, workers: int = 1, timeout_s: float = 30.0, retries: int = 2) -> None:
        _check(workers, timeout_s, retries)
        self.domain = domain
        self.executed = 0
        self.failures = 0
        self._crew = Crew(_pickled(domain), workers, timeout_s, retries, self._settle) if workers else None
        self._lock = threading.RLock()
        self._known: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._open: set[Task] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, items: Iterable[tuple[Problem, str]], want: Want = VERDICT_ONLY) -> Future[list[Judgement]]:
        """Have pairs of problem and response judged; returns at once (with `workers=0`, when all is done).

        Returns:
            A future of the judgements, in the order of `items`. Its result raises `UsageError` if the user has
            something to repair, and `RuntimeError` if the pool is closed before the work is done.

        Raises:
            RuntimeError: If the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("this VerificationPool is closed: submit before close(), or make a new one")
            fresh: list[Task] = []
            parts = [self._future(problem, response, want, fresh) for problem, response in items]
        self._dispatch(fresh)
        return _gather(parts, want)

    def judge_many(self, items: Iterable[tuple[Problem, str]], want: Want = VERDICT_ONLY) -> list[Judgement]:
        """`submit`, and wait for it."""
        return self.submit(items, want).result()

    def judge(self, problem: Problem, response: str) -> Judgement:
        """Judge one response, with its cell: the form in which an archive asks."""
        return self.judge_many([(problem, response)], Want(cell=True))[0]

    def close(self) -> None:
        """End the workers. What is still on its way raises `RuntimeError` for whoever waits for it."""
        with self._lock:
            self._closed = True
        if self._crew is not None:
            self._crew.close()
        for task in list(self._open):
            self._settle(task, RuntimeError("the VerificationPool was closed before this solution was judged"))

    def _future(self, problem: Problem, response: str, want: Want, fresh: list[Task]) -> Future[Judgement]:
        """The future of one judgement; what has to be sent for it is added to `fresh`."""
        solution = self.domain.extract(response)
        if solution is None:
            return _done(NO_SOLUTION)
        key = (problem.id, solution)
        entry = self._known.get(key)
        if entry is None or entry.problem != problem:  # another data set may use the same id
            task = self._task(Job(problem, solution, want))
            fresh.append(task)
            self.executed += 1
            entry = _Entry(problem, want, task.future)
        elif entry.want | want != entry.want:
            job = Job(problem, solution, entry.want | want)
            entry = _Entry(problem, job.want, self._extended(entry.future, job, fresh))
        self._known[key] = entry
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return entry.future

    def _task(self, job: Job) -> Task:
        task = Task(job)
        self._open.add(task)
        return task

    def _extended(self, earlier: Future[Judgement], job: Job, fresh: list[Task]) -> Future[Judgement]:
        """The future of a judgement that holds more than an earlier one, which may still be on its way."""
        if not earlier.done():
            task = self._task(job)
            earlier.add_done_callback(partial(self._extend, task))
            return task.future
        if not earlier.result().verdict.correct and not job.want.hits:
            return earlier  # there is nothing to describe
        task = self._task(replace(job, known=earlier.result()))
        fresh.append(task)
        return task.future

    def _extend(self, task: Task, earlier: Future[Judgement]) -> None:
        error = earlier.exception()
        if isinstance(error, Exception):
            self._settle(task, error)
            return
        known = earlier.result()
        task.job = replace(task.job, known=known)
        if known.verdict.correct or task.job.want.hits:
            self._dispatch([task])
        else:
            self._settle(task, known)

    def _dispatch(self, tasks: Sequence[Task]) -> None:
        if self._crew is not None:
            self._crew.send(tasks)
            return
        for task in tasks:
            self._settle(task, answer(self.domain, task.job))

    def _settle(self, task: Task, result: Answer) -> None:
        """Answer a task, once."""
        with self._lock:
            if task not in self._open:
                return
            self._open.discard(task)
            if isinstance(result, Exception):
                self._known.pop((task.job.problem.id, task.job.solution), None)  # it may be asked again
            elif not result.verdict.counted and result is not task.job.known:
                self.failures += 1
        if isinstance(result, Exception):
            task.future.set_exception(result)
        else:
            task.future.set_result(result)


def _check(workers: int, timeout_s: float, retries: int) -> None:
    if workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")
    if timeout_s <= 0:
        raise ValueError(f"timeout_s must be above 0 seconds, got {timeout_s}")
    if retries < 0:
        raise ValueError(f"retries must be at least 0, got {retries}")


def _pickled(domain: Domain) -> bytes:
    try:
        return pickle.dumps(domain)
    except Exception as error:
        raise TypeError(
            f"the domain {domain.name!r} cannot be sent to worker processes ({error}): define its class in a module "
            "and keep open files and connections out of its pickle, or use workers=0"
        ) from error


def _done(judgement: Judgement) -> Future[Judgement]:
    future: Future[Judgement] = Future()
    future.set_result(judgement)
    return future


def _gather(parts: list[Future[Judgement]], want: Want) -> Future[list[Judgement]]:
    """One future for many: done when the last one is, failed when one has failed."""
    batch: Future[list[Judgement]] = Future()
    lock = threading.Lock()
    waiting = len(parts)

    def finish() -> None:
        error = next((part.exception() for part in parts if part.exception() is not None), None)
        if error is not None:
            batch.set_exception(error)
        else:
            batch.set_result([want.select(part.result()) for part in parts])

    def count(_: Future[Judgement]) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            last = waiting == 0
        if last:
            finish()

    if not parts:
        finish()
    for part in parts:
        part.add_done_callback(count)
    return batch
