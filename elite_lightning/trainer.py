"""Lightning's Trainer with one more verb, and checkpoints that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.plugins import TorchCheckpointIO


class EliteTrainer(pl.Trainer):
    """Lightning's Trainer; `search` is its additional verb."""

    def search(self, model: pl.LightningModule, datamodule: pl.LightningDataModule | None = None) -> None:
        """Fill and freeze the archive, and train nothing.

        Args:
            model: The module whose policy searches.
            datamodule: Its problems are searched.
        """
        # A fit without batches: the search is a callback of fit, so it meets the same ranks and the same weights.
        self.limit_train_batches = 0
        self.fit(model, datamodule=datamodule)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames.

    Lightning's own way goes through the system's temporary folder. Where that is another file system, a kill at the
    wrong moment leaves half a checkpoint.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Save a checkpoint.

        Args:
            checkpoint: Plain types and tensors.
            path: Target.
            storage_options: Not used.
        """
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        super().save_checkpoint(checkpoint, temporary, storage_options)
        os.replace(temporary, target)
