"""What a worker process runs to judge many solutions.

A worker imports this file and the domain, nothing heavier: no torch, no Lightning. That holds as long as the program's
entry point imports heavy packages within functions, because a spawned process imports the main module again.
"""

from __future__ import annotations

import gc
import pickle
import signal
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Semaphore

from elite_lightning.errors import UsageError
from elite_lightning.judging import answer
from elite_lightning.types import Domain
from elite_lightning.wire import Packed, pack_answer, unpack_job


class _Worker:
    """What a worker process holds."""

    domain: Domain | None = None
    error: Exception | None = None


def start_worker(payload: bytes, ready: Semaphore) -> None:
    """Unpickle the domain before the first job's time begins; an error waits for that job, to reach the caller."""
    # The pool's own handler would only run after the C function that a worker is to be stopped in.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ready.release()
    try:
        _Worker.domain = pickle.loads(payload)
        gc.freeze()  # what is loaded now stays: the collector need not look at it after every few verdicts
    except Exception as error:
        _Worker.error = error


def work(jobs: Sequence[Packed], patience_s: float) -> list[Packed | UsageError]:
    """Do a chunk of jobs in a worker process, but begin none after `patience_s` seconds; at least one is done."""
    if _Worker.domain is None:
        raise RuntimeError(f"a verification worker could not load the domain: {_Worker.error!r}")
    answers: list[Packed | UsageError] = []
    end = time.monotonic() + patience_s
    for job in jobs:
        answers.append(pack_answer(answer(_Worker.domain, unpack_job(job))))
        if time.monotonic() > end:
            break
    return answers
