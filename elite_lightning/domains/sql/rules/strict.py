"""The default rule: stricter than the benchmarks' own where they reward luck, fairer where they punish it."""

from __future__ import annotations

from elite_lightning.domains.sql.compare import same_rows
from elite_lightning.domains.sql.executor import Failure
from elite_lightning.domains.sql.rules.base import Pair, Rule
from elite_lightning.domains.sql.rules.plans import Plan, plan_of
from elite_lightning.domains.sql.rules.ties import possible


def strict(pair: Pair) -> float:
    """1 if the prediction's rows are rows that gold could have returned, else 0.

    Columns count by position, also without rows; duplicates count. Two REALs are equal within a relative tolerance of
    1e-9 and an absolute one of 1e-12 unless both are whole (`compare`), so that the order of a summation does not
    matter.

    Where the problem says `ordered`, rows are compared as lists or as multisets as it says. Where it does not, order
    counts exactly if gold's outermost query has an ORDER BY, and what gold leaves open stays open: rows that its
    ORDER BY does not tell apart may come in any order, and where its LIMIT cuts through such rows, any of them may be
    there. Its sort keys are found by running gold's text once more with them as further columns and without the LIMIT.
    If that cannot be written, fails, passes a limit or gives rows of which gold's own are no possible choice, rows are
    compared as a list (with a LIMIT and no ORDER BY: as a multiset). Keys are equal as values and without tolerance,
    so a COLLATE NOCASE does not make a tie.
    """
    gold, got = pair.gold.rows, pair.got.rows
    if pair.ordered is not None:
        return float(same_rows(gold, got, pair.ordered))
    if same_rows(gold, got, ordered=True):
        return 1.0
    if gold.columns != got.columns or len(gold.rows) != len(got.rows):
        return 0.0
    plan = plan_of(pair.gold.sql)
    if not plan.limited and not same_rows(gold, got, ordered=False):
        return 0.0
    if not plan.limited and not plan.ordered:
        return 1.0
    return float(_could_be_golds(pair, plan))


def _could_be_golds(pair: Pair, plan: Plan) -> bool:
    """Whether gold, run without its limit, allows the prediction's rows."""
    gold, got = pair.gold.rows, pair.got.rows
    full = pair.database.run(plan.keyed) if plan.keyed else None
    if full is not None and not isinstance(full, Failure):
        keys = plan.keys(gold.columns)
        # Gold's rows themselves may be others than here: with a LIMIT SQLite can walk through ties in another order.
        if possible(full.rows, keys, gold.rows, plan.offset):
            return possible(full.rows, keys, got.rows, plan.offset)
    return not plan.ordered and same_rows(gold, got, ordered=False)


DEFAULT = Rule("default", strict, every_copy=True)
