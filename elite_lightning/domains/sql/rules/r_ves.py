"""BIRD's reward-based valid efficiency score, as in bird-bench/mini_dev (evaluation/evaluation_ves.py), repaired.

The official script drops ratios outside mean +- 3 standard deviations with strict comparisons, so that equal ratios
(deviation 0) leave nothing, the division by their number fails, and a right query scores 0. Here the bounds belong to
the interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from elite_lightning.domains.sql.executor import Failure
from elite_lightning.domains.sql.rules.base import Pair, Rule
from elite_lightning.domains.sql.rules.bird import bird_ex

ITERATIONS = 100
"""How often both queries are timed; the official script's number."""

_STEPS = ((2.0, 1.25), (1.0, 1.0), (0.5, 0.75), (0.25, 0.5))


def mean_ratio(ratios: Sequence[float]) -> float:
    """Mean of gold's time over the prediction's, without what is further than 3 standard deviations from the mean.

    Raises:
        ValueError: If there are no ratios.
    """
    if not ratios:
        raise ValueError("mean_ratio needs at least one ratio of times")
    mean, spread = statistics.fmean(ratios), 3 * statistics.pstdev(ratios)
    # At least one ratio lies within: no sample is further from its mean than the deviation throughout.
    return statistics.fmean(ratio for ratio in ratios if abs(ratio - mean) <= spread or ratio == mean)


def reward_of(ratio: float) -> float:
    """The reward of a right query whose mean ratio of times is `ratio`: 1.25 from 2 up, 0.25 below 0.25."""
    return next((reward for least, reward in _STEPS if ratio >= least), 0.25)


def r_ves(rewards: Sequence[float]) -> float:
    """The score of a data set: mean of 100 * sqrt(reward), a wrong query's reward being 0. At most 111.8."""
    return 100 * statistics.fmean(math.sqrt(reward) for reward in rewards)


def timed_reward(pair: Pair, iterations: int = ITERATIONS) -> float:
    """0 if the query is wrong by `bird_ex`, else sqrt of the reward of its speed, so that the mean times 100 is R-VES.

    Both queries are timed by turns on fresh connections, opening and closing included as in the official script, and
    the guards of the executor too. Times are only worth something on a machine that does nothing else.
    """
    if not bird_ex(pair):
        return 0.0
    executor, path = pair.database
    ratios = []
    for _ in range(iterations):
        got, gold = executor.seconds(path, pair.got.sql), executor.seconds(path, pair.gold.sql)
        if isinstance(got, Failure) or isinstance(gold, Failure):
            return 0.0
        ratios.append(gold / got)
    return math.sqrt(reward_of(mean_ratio(ratios)))


R_VES = Rule("r_ves", timed_reward, right_from=math.sqrt(0.25), repeats=ITERATIONS)
