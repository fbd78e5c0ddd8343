"""Objectives: from tensors to a loss. Nothing here knows SQL, generation or Lightning."""

from elite_lightning.objectives.aggregate import MeanParts, count_responses, merge_metrics
from elite_lightning.objectives.darling import Darling
from elite_lightning.objectives.grpo import Grpo
from elite_lightning.objectives.interface import LossOutput, Objective
from elite_lightning.objectives.mix import check_mu, mix
from elite_lightning.objectives.replay import length_normalised_nll
from elite_lightning.objectives.setpo import SetPo

__all__ = [
    "Darling",
    "Grpo",
    "LossOutput",
    "MeanParts",
    "Objective",
    "SetPo",
    "check_mu",
    "count_responses",
    "length_normalised_nll",
    "merge_metrics",
    "mix",
]
