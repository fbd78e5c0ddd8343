"""What holds for the whole process: threads, and what is left out of its output."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence

import torch
import transformers


def set_threads(configured: int | None, devices: int | str | Sequence[int], workers: int) -> None:
    """Give each process its share of the cores: too many threads cost a factor of 3 to 20.

    In the environment too, because Lightning sets threads from there when it launches processes.

    Args:
        configured: Threads of each process; None takes `OMP_NUM_THREADS`, or all cores but the workers'.
        devices: The trainer's setting.
        workers: Verification workers of each process.
    """
    inherited = os.environ.get("OMP_NUM_THREADS", "")
    share = len(os.sched_getaffinity(0)) // _processes(devices) - workers
    threads = configured or (int(inherited) if inherited.isdigit() else max(1, share))
    os.environ["OMP_NUM_THREADS"] = str(threads)
    torch.set_num_threads(threads)


def _processes(devices: int | str | Sequence[int]) -> int:
    """How many processes the trainer starts on this machine."""
    if isinstance(devices, str) and devices.isdigit():
        devices = int(devices)
    if isinstance(devices, int) and devices > 0:
        return devices
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        return max(1, len(devices))
    return max(1, torch.cuda.device_count())


def be_quiet() -> None:
    """Leave out what Lightning and torch say about things that are as intended here."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    for message in (
        r"Found \d+ module\(s\) in eval mode",  # no dropout in training, see EliteModule
        r"Using ModelCheckpoint with manual optimization",  # after the step is when it should be saved
        r"Checkpoint directory .* exists and is not empty",  # as it should be when a run goes on
        r"The dirpath has changed from",  # a checkpoint of another run is measured
        r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    ):
        warnings.filterwarnings("ignore", message=message)
