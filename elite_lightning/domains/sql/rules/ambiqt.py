"""AmbiQT's direct execution, as `direct_execution_match` of testzer0/AmbiQT (benchmark/*/evaluate.py).

Bhaskar 2023, "Benchmarking and Improving Text-to-SQL Generation under Ambiguity" (arXiv 2310.13659). This is the judge
of one pair of queries; the rewriting that goes before it, and coverage, are the metric's.
"""

from __future__ import annotations

from elite_lightning.domains.sql.rules.base import Pair, Rule


def ambiqt_direct(pair: Pair) -> float:
    """1 if both results hold the same rows, as lists if ` order by ` in lower case occurs in gold, else as sets.

    AmbiQT's golds are in lower case; `SELECT ... ORDER BY` in capitals is compared as a set. Where it deviates: the
    official judge counts every prediction as right whose gold cannot be run, here such a pair has no score.
    """
    gold, got = pair.gold.rows.rows, pair.got.rows.rows
    if " order by " in pair.gold.sql:
        return float(gold == got)
    return float(set(gold) == set(got))


AMBIQT_DIRECT = Rule("ambiqt_direct", ambiqt_direct)
