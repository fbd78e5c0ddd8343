"""Evaluation: collects what validation and test steps sampled, writes every sample, logs figures over k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl

from elite_lightning.distributed import gather_to_first, on_every_rank, on_first_rank
from elite_lightning.errors import UsageError
from elite_lightning.evaluation import figures_of, interpretation_count, read_counts, sample_records, write_samples
from elite_lightning.rollouts import PendingGroups
from elite_lightning.run_folder import RunFolder


class PassAtKEvaluation(pl.Callback):
    """Unbiased pass@k and expected number of distinct correct strategies, all k from the same samples.

    Where problems have several interpretations, also either@k and both@k over those problems.

    Args:
        samples: Responses to each test problem.
        ks: Numbers of samples to report on.
        validation_samples: Responses to each validation problem; null is `samples`. Larger k are then left out of the
            validation's report.
        baseline: Whether `fit` also measures the policy before training.

    Raises:
        ValueError: If there are fewer samples than the largest k, or a number is below 1.
    """

    def __init__(
        self,
        samples: int = 128,
        ks: Sequence[int] = (1, 8, 32, 128),
        validation_samples: int | None = None,
        baseline: bool = True,
    ) -> None:
        super().__init__()
        self.samples = samples
        self.ks = tuple(sorted(set(ks)))
        self.validation_samples = samples if validation_samples is None else validation_samples
        self.baseline = baseline
        if not self.ks or self.ks[0] < 1 or self.validation_samples < 1:
            raise ValueError(
                f"evaluation.ks and evaluation.validation_samples must be at least 1, got {list(self.ks)} "
                f"and {self.validation_samples}"
            )
        if samples < self.ks[-1]:
            raise ValueError(
                f"evaluation.samples={samples} is fewer than the largest of evaluation.ks={list(self.ks)}: "
                f"pass@{self.ks[-1]} needs at least {self.ks[-1]} samples"
            )
        self._pending: list[PendingGroups] = []

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:  # noqa: ARG002
        """Refuse a module that would draw another number of samples."""
        asked = {"test": self.samples, "validation": self.validation_samples}
        drawn = getattr(pl_module, "evaluation_samples", asked)
        if drawn != asked:
            raise UsageError(
                f"the module draws {drawn} samples a problem, the evaluation expects {asked}: make them equal"
            )

    def on_validation_epoch_start(self, *args: Any) -> None:  # noqa: ARG002
        """Start anew."""
        self._pending = []

    def on_test_epoch_start(self, *args: Any) -> None:  # noqa: ARG002
        """Start anew."""
        self._pending = []

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:  # noqa: ARG002
        """Keep the batch; its verdicts come in while the next one is generated."""
        self._pending.append(outputs)

    def on_test_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:  # noqa: ARG002
        """Keep the batch; its verdicts come in while the next one is generated."""
        self._pending.append(outputs)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write and log."""
        ks = [k for k in self.ks if k <= self.validation_samples]
        self._finish(trainer, pl_module, "validation", ks)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write and log."""
        self._finish(trainer, pl_module, "test", self.ks)

    def _finish(self, trainer: pl.Trainer, pl_module: Any, stage: str, ks: Sequence[int]) -> None:
        pending, self._pending = self._pending, []
        records = on_every_rank(
            lambda: [
                record
                for part in pending
                for group in part.groups()
                for record in sample_records(group, interpretation_count(pl_module.domain, group.problem))
            ]
        )
        gathered = gather_to_first(records)
        path = RunFolder(trainer.default_root_dir).samples(stage, pl_module.trained_steps)

        def write() -> dict[str, float]:
            write_samples(path, [record for part in gathered or [] for record in part])
            return {name: figure.mean for name, figure in figures_of(read_counts(path), ks).items()}

        figures = {f"{stage}/{name}": value for name, value in on_first_rank(write).items()}
        pl_module.log_dict(figures, sync_dist=True, logger=False)
        # By hand, because outside of fit Lightning logs at step 0, whatever checkpoint was measured.
        for logger in trainer.loggers:
            logger.log_metrics(figures, step=pl_module.trained_steps)
