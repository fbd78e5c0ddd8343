"""`metrics.jsonl`: one line of numbers a logged step, readable by people and by any other tool."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning_utilities.core.rank_zero import rank_zero_only

from elite_lightning.run_folder import write_atomically


class JsonlLogger(Logger):
    """Appends `{"step": n, "<metric>": value, ...}` lines; a resumed run goes on in the same file.

    `step` counts finished optimizer steps before the one that the line describes, so the first line has step 0. What is
    not there in every step has lines of its own, with the same `step`.

    Args:
        path: The file.
        replayed: Where `log_replayed` writes; null writes nothing.
    """

    def __init__(self, path: str | Path, replayed: str | Path | None = None) -> None:
        super().__init__()
        self._path = Path(path)
        self._replayed = None if replayed is None else Path(replayed)

    @property
    def save_dir(self) -> str:
        """The file's folder."""
        return str(self._path.parent)

    @property
    def name(self) -> str:
        """Fixed name."""
        return "jsonl"

    @property
    def version(self) -> str:
        """No versions: the run folder is the version."""
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Append one line; numbers that JSON does not know (NaN, infinities) become null."""
        values = {k: (float(v) if math.isfinite(float(v)) else None) for k, v in metrics.items() if k != "epoch"}
        if not values:
            return
        _append(self._path, [{"step": step, **values}])

    @rank_zero_only
    def log_replayed(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append a line a replayed response.

        Args:
            records: Each with its `step`.
        """
        if self._replayed is not None:
            _append(self._replayed, records)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder's `config.yaml` has them."""

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop what a killed run logged after its last checkpoint, so that no step is there twice.

        Args:
            step: Finished optimizer steps of the checkpoint that the run goes on from; 0 without one.
        """
        for path in (self._path, self._replayed):
            if path is not None and path.is_file():
                kept = [line for line in path.read_text().splitlines() if _is_before(line, step)]
                write_atomically(path, "".join(line + "\n" for line in kept))


def _append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def _is_before(line: str, step: int) -> bool:
    """Whether a line tells of training before `step`, or of an evaluation at or before it."""
    try:
        row = json.loads(line)
        trains = "nll" in row or any(name.startswith("train/") for name in row)
        return bool(row["step"] < step if trains else row["step"] <= step)
    except (ValueError, KeyError, TypeError):
        return False  # a line that was cut off by the kill
