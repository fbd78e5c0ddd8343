"""Exchanges between ranks that are not tensors: collecting on the first rank, and sharing errors instead of hanging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from elite_lightning.errors import UsageError

T = TypeVar("T")


class RemoteError(UsageError):
    """A user's error that another rank found, and reports."""


def ranks() -> int:
    """Number of processes of this run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_to_first(value: Any) -> list[Any] | None:
    """Every rank's value, in rank order, on the first rank; None on the others. All ranks have to call it."""
    if ranks() == 1:
        return [value]
    values: list[Any] | None = [None] * ranks() if dist.get_rank() == 0 else None
    dist.gather_object(value, values, dst=0)
    return values


def gather_to_all(value: T) -> list[T]:
    """Every rank's value, in rank order, on every rank. All ranks have to call it.

    Args:
        value: This rank's; it is pickled.
    """
    if ranks() == 1:
        return [value]
    values: list[Any] = [None] * ranks()
    dist.all_gather_object(values, value)
    return values


def on_first_rank(work: Callable[[], T]) -> T:
    """Run something on the first rank and give everyone its result, or everyone its error.

    An error on one rank alone would leave the others waiting for ever.

    Args:
        work: Called on the first rank only; its result is pickled.

    Raises:
        RemoteError: On the other ranks, if `work` raised a `UsageError`.
        RuntimeError: On the other ranks, if `work` raised anything else.
    """
    if ranks() == 1:
        return work()
    outcome: list[Any] = [None, None]
    raised: Exception | None = None
    if dist.get_rank() == 0:
        try:
            outcome[0] = work()
        except Exception as error:
            raised, outcome[1] = error, (isinstance(error, UsageError), f"{error}")
    dist.broadcast_object_list(outcome, src=0)
    if raised is not None:
        raise raised
    _raise_if_failed(outcome[1])
    result: T = outcome[0]
    return result


def on_every_rank(work: Callable[[], T]) -> T:
    """Run something on every rank; if it fails on any, it fails on all, and the first one to fail tells why.

    Args:
        work: Called on every rank; must not wait for other ranks.

    Raises:
        RemoteError: If another rank is the first to fail, by a `UsageError`.
        RuntimeError: If another rank is the first to fail, by anything else.
    """
    if ranks() == 1:
        return work()
    result: Any = None
    raised: Exception | None = None
    try:
        result = work()
    except Exception as error:
        raised = error
    failures: list[Any] = [None] * ranks()
    dist.all_gather_object(failures, None if raised is None else (isinstance(raised, UsageError), f"{raised}"))
    first = next((rank for rank, failure in enumerate(failures) if failure is not None), None)
    if first is not None and first == dist.get_rank() and raised is not None:
        raise raised
    _raise_if_failed(None if first is None else failures[first])
    return result  # type: ignore[no-any-return]


def _raise_if_failed(failure: tuple[bool, str] | None) -> None:
    if failure is not None:
        usage, message = failure
        raise RemoteError(message) if usage else RuntimeError(f"another rank failed: {message}")
