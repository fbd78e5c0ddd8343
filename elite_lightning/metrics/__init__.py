"""Metrics: pass@k, distinct correct strategies, and their intervals."""

from elite_lightning.metrics.accumulators import DistinctStrategies, PassAtK, PerProblem, key_id
from elite_lightning.metrics.bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap_difference
from elite_lightning.metrics.estimators import pass_at_k, rarefied_strategies, strategies_among_correct

__all__ = [
    "Difference",
    "DistinctStrategies",
    "Interval",
    "PassAtK",
    "PerProblem",
    "bootstrap_interval",
    "key_id",
    "paired_bootstrap_difference",
    "pass_at_k",
    "rarefied_strategies",
    "strategies_among_correct",
]
