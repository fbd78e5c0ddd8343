"""Metrics: pass@k, distinct correct strategies, coverage of interpretations, and their intervals."""

from elite_lightning.metrics.accumulators import DistinctStrategies, PassAtK, PerProblem, key_id
from elite_lightning.metrics.bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap_difference
from elite_lightning.metrics.estimators import (
    effective_strategies,
    extra_strategies,
    gini_simpson,
    pass_at_k,
    powers_of_two,
    rarefaction,
    rarefied_strategies,
    strategies_among_correct,
)
from elite_lightning.metrics.interpretations import BothAtK, EitherAtK, both_at_k, either_at_k

__all__ = [
    "BothAtK",
    "Difference",
    "DistinctStrategies",
    "EitherAtK",
    "Interval",
    "PassAtK",
    "PerProblem",
    "bootstrap_interval",
    "both_at_k",
    "effective_strategies",
    "either_at_k",
    "extra_strategies",
    "gini_simpson",
    "key_id",
    "paired_bootstrap_difference",
    "pass_at_k",
    "powers_of_two",
    "rarefaction",
    "rarefied_strategies",
    "strategies_among_correct",
]
