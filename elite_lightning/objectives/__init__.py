"""Objectives: from tensors to a loss. Nothing here knows SQL, generation or Lightning."""

from elite_lightning.objectives.aggregate import MeanParts, count_responses, merge_metrics
from elite_lightning.objectives.darling import Darling
from elite_lightning.objectives.dph import DphForwardKl, DphJensenShannon
from elite_lightning.objectives.grpo import Grpo
from elite_lightning.objectives.interface import ComparingObjective, LossOutput, Objective, bound, kernel_of
from elite_lightning.objectives.max_rl import MaxRl
from elite_lightning.objectives.mix import check_mu, mix
from elite_lightning.objectives.pass_at_k import PassAtK, Pkpo
from elite_lightning.objectives.policy_gradient import PolicyGradient
from elite_lightning.objectives.replay import ReplayNll, ReplayObjective, length_normalised_nll
from elite_lightning.objectives.setpo import SetPo
from elite_lightning.objectives.unlikeliness import UnlikelinessReward

__all__ = [
    "ComparingObjective",
    "Darling",
    "DphForwardKl",
    "DphJensenShannon",
    "Grpo",
    "LossOutput",
    "MaxRl",
    "MeanParts",
    "Objective",
    "PassAtK",
    "Pkpo",
    "PolicyGradient",
    "ReplayNll",
    "ReplayObjective",
    "SetPo",
    "UnlikelinessReward",
    "bound",
    "check_mu",
    "count_responses",
    "kernel_of",
    "length_normalised_nll",
    "merge_metrics",
    "mix",
]
