"""`metrics.jsonl`: one line of numbers a logged step, readable by people and by any other tool."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning_utilities.core.rank_zero import rank_zero_only

from elite_lightning.run_folder import write_atomically


class JsonlLogger(Logger):
    """Appends `{"step": n, "<metric>": value, ...}` lines; a resumed run goes on in the same file.

    `step` counts finished optimizer steps before the one that the line describes, so the first line has step 0.

    Args:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)

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
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder's `config.yaml` has them."""

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop what a killed run logged after its last checkpoint, so that no step is there twice.

        Args:
            step: Finished optimizer steps of the checkpoint that the run goes on from; 0 without one.
        """
        if not self._path.is_file():
            return
        kept = [line for line in self._path.read_text().splitlines() if _is_before(line, step)]
        write_atomically(self._path, "".join(line + "\n" for line in kept))


def _is_before(line: str, step: int) -> bool:
    """Whether a line tells of training before `step`, or of an evaluation at or before it."""
    try:
        row = json.loads(line)
        trains = any(name.startswith("train/") for name in row)
        return bool(row["step"] < step if trains else row["step"] <= step)
    except (ValueError, KeyError, TypeError):
        return False  # a line that was cut off by the kill
