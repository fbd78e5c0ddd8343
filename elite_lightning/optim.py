"""The optimizer: AdamW with warm-up and a schedule, as one optimizer with two parameter groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) and its schedule.

    Args:
        lr: Peak learning rate.
        betas: Decay rates of the two moment estimates.
        weight_decay: Decoupled weight decay of matrices; vectors such as norms and biases have none.
        warmup_steps: Optimizer steps over which the learning rate rises linearly from 0 to `lr`.
        schedule: After warm-up: stay constant, or fall along a half cosine until `trainer.max_steps`.
        final_lr_fraction: Where the cosine ends, as a fraction of `lr`.
        gradient_clip_norm: Largest L2 norm of the whole gradient; 0 does not clip.

    Raises:
        ValueError: If a value is out of range.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Literal["constant", "cosine"] = "constant"
    final_lr_fraction: float = 0.0
    gradient_clip_norm: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges."""
        for name in ("lr", "weight_decay", "warmup_steps", "gradient_clip_norm"):
            if getattr(self, name) < 0:
                raise ValueError(f"model.optimizer.{name} must be at least 0, got {getattr(self, name)}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"model.optimizer.betas must be in [0, 1), got {list(self.betas)}")
        if not 0 <= self.final_lr_fraction <= 1:
            raise ValueError(f"model.optimizer.final_lr_fraction must be in [0, 1], got {self.final_lr_fraction}")


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, max_steps: int
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """The optimizer over all trainable parameters, and its learning-rate scheduler.

    Args:
        model: Holds the parameters.
        settings: Rates and schedule.
        max_steps: Steps of the whole run; only the cosine needs it.

    Raises:
        ValueError: If the schedule is a cosine and `max_steps` is not known (not positive).
    """
    if settings.schedule == "cosine" and max_steps <= 0:
        raise ValueError("model.optimizer.schedule=cosine needs to know where it ends: set trainer.max_steps")
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=settings.lr, betas=settings.betas)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor(settings, max_steps))


def lr_factor(settings: OptimizerSettings, max_steps: int) -> Callable[[int], float]:
    """The factor on `lr` as a function of the number of finished steps."""

    def factor(step: int) -> float:
        if step < settings.warmup_steps:
            return (step + 1) / (settings.warmup_steps + 1)
        if settings.schedule == "constant":
            return 1.0
        progress = (step - settings.warmup_steps) / max(1, max_steps - settings.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return settings.final_lr_fraction + (1 - settings.final_lr_fraction) * cosine

    return factor
