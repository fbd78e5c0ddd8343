"""A crew of worker processes that gives an answer to every job, whatever a job does to its worker."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial

from pebble import ProcessExpired, ProcessPool

from elite_lightning.errors import UsageError
from elite_lightning.judging import Job, failed
from elite_lightning.types import Judgement, Reason
from elite_lightning.wire import Packed, pack_job, unpack_answer
from elite_lightning.worker import start_worker, work

CHUNK = 64  # jobs that travel together: a task costs about half a millisecond, most verdicts a tenth of it
PATIENCE = 0.25  # share of a chunk's time after which its worker begins no further job and gives the others back

# How many pools may break in a row. A pool breaks when a worker dies before it is known what it works on: at start, or,
# on a busy machine, so soon after it began that this cannot be told apart.
BREAKS = 5

PATIENCE_S = 2.0  # how long close() waits for a worker that has not even started

Answer = Judgement | Exception


@dataclass(eq=False, slots=True)
class Task:
    """A job and the future that its judgement goes to."""

    job: Job
    future: Future[Judgement] = field(default_factory=Future)


@dataclass(eq=False, slots=True)
class _Chunk:
    """Tasks that travel together; `attempt` counts the workers that they cost so far."""

    tasks: Sequence[Task]
    attempt: int = 0


class Crew:
    """Sends tasks to worker processes and hands each answer to `settle`, from a thread of its own.

    A chunk whose worker crashes, or takes longer than `timeout_s`, is split up and every job in it is tried again by
    itself, so that only the job that is to blame is affected: one that took too long each time ends as a wrong answer
    that used up its time, one that crashed its worker each time as a failure of the verifier.

    Args:
        payload: The pickled domain.
        workers: Number of processes; they start with the first task.
        timeout_s: Seconds that a worker may take for a chunk. It gives back what it has not begun after a quarter of
            them, so that a chunk times out only through a single job.
        retries: How often a job is tried again; at most once if it took too long.
        settle: Receives a task and its judgement, or an exception that the caller of the task should see.
    """

    def __init__(
        self,
        payload: bytes,
        workers: int,
        timeout_s: float,
        retries: int,
        settle: Callable[[Task, Answer], None],
    ) -> None:
        self._payload = payload
        self._workers = workers
        self._timeout_s = timeout_s
        self._retries = retries
        self._settle = settle
        self._context = multiprocessing.get_context("spawn")
        self._ready = self._context.Semaphore(0)  # counts the workers that have started
        self._lock = threading.RLock()
        self._pool: ProcessPool | None = None
        self._retired: list[ProcessPool] = []
        self._running: set[_Chunk] = set()
        self._breaks = 0  # pools that broke since the last chunk that came back
        self._closed = False

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks on their way; returns at once."""
        size = max(1, min(CHUNK, -(-len(tasks) // (2 * self._workers))))
        for start in range(0, len(tasks), size):
            self._schedule(_Chunk(tasks[start : start + size]))

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        with self._lock:
            self._closed = True
            pools = [*self._retired, *([self._pool] if self._pool else [])]
        if self._pool is not None:
            for _ in range(self._workers):  # one that is stopped while it starts would print a traceback
                self._ready.acquire(timeout=PATIENCE_S)
        for pool in pools:
            pool.stop()  # type: ignore[no-untyped-call]
            pool.join()

    def _schedule(self, chunk: _Chunk) -> None:
        with self._lock:
            if self._closed:
                return
            if self._pool is None:
                initargs = (self._payload, self._ready)
                self._pool = ProcessPool(
                    self._workers, initializer=start_worker, initargs=initargs, context=self._context
                )
            pool = self._pool
            self._running.add(chunk)
            try:
                jobs = [pack_job(task.job) for task in chunk.tasks]
                answers = pool.schedule(work, args=[jobs, PATIENCE * self._timeout_s], timeout=self._timeout_s)
            except RuntimeError:  # it broke since the last time that we looked
                self._replace(pool)
                return
        answers.add_done_callback(partial(self._collect, pool, chunk))

    def _collect(self, pool: ProcessPool, chunk: _Chunk, answers: Future[list[Packed | UsageError]]) -> None:
        """Hand over a chunk's answers, or decide what becomes of a chunk that has none."""
        error = answers.exception()
        if isinstance(error, BrokenProcessPool):
            self._replace(pool)
            return
        with self._lock:
            self._running.discard(chunk)
            self._breaks = 0
        if isinstance(error, TimeoutError | ProcessExpired):
            self._try_again(chunk, error)
            return
        settled = list(_each(answers, error, len(chunk.tasks)))
        for task, answer in zip(chunk.tasks, settled, strict=False):
            self._settle(task, answer)
        if len(settled) < len(chunk.tasks):
            self._schedule(_Chunk(chunk.tasks[len(settled) :], chunk.attempt))

    def _try_again(self, chunk: _Chunk, error: Exception) -> None:
        # Once by itself is enough for one that takes too long: it holds a worker for all of its time.
        retries = min(self._retries, 1) if isinstance(error, TimeoutError) else self._retries
        for task in chunk.tasks:
            if chunk.attempt < retries or len(chunk.tasks) > 1:  # each has a right to be judged by itself
                self._schedule(_Chunk([task], chunk.attempt + 1))
            else:
                self._settle(task, self._verdict_on(task, error, chunk.attempt + 1))

    def _verdict_on(self, task: Task, error: Exception, attempts: int) -> Judgement:
        tried = f"tried {attempts} times"
        if isinstance(error, TimeoutError):
            return failed(task.job, f"took longer than {self._timeout_s} s, {tried}", Reason.TIMEOUT)
        return failed(task.job, f"ended its worker ({error}), {tried}")

    def _replace(self, pool: ProcessPool) -> None:
        """Send what a broken pool had to a new one, unless new ones keep breaking before any job is done."""
        with self._lock:
            if self._pool is not pool or self._closed:
                return  # another chunk of the same pool was here before
            self._retired.append(pool)  # stopped by close(): this may be one of its own threads
            self._pool = None
            chunks, self._running = self._running, set()
            self._breaks += 1
        if self._breaks <= BREAKS:
            for chunk in chunks:
                self._schedule(chunk)
            return
        for chunk in chunks:
            for task in chunk.tasks:
                self._settle(task, RuntimeError("verification workers end before they begin: see their error above"))


def _each(answers: Future[list[Packed | UsageError]], error: BaseException | None, count: int) -> Iterator[Answer]:
    """The answers of a chunk as far as it came, or the error that befell all of it, such as an unloadable domain."""
    if error is None:
        yield from map(unpack_answer, answers.result())
    else:
        wrapped = error if isinstance(error, Exception) else RuntimeError(repr(error))
        yield from [wrapped] * count
