"""BIRD's execution accuracy and soft F1, as in bird-bench/mini_dev (evaluation/evaluation_ex.py, evaluation_f1.py).

Li 2023, "Can LLM Already Serve as A Database Interface?" (arXiv 2305.03111).
"""

from __future__ import annotations

from collections.abc import Sequence

from elite_lightning.domains.sql.compare import Row
from elite_lightning.domains.sql.rules.base import Pair, Rule


def bird_ex(pair: Pair) -> float:
    """1 if both results hold the same rows as sets, else 0.

    Duplicates and the order of rows do not count, even under ORDER BY; the order and the number of columns do, except
    in empty results, which are all equal. Cells are compared as Python compares them: 1 equals 1.0, no tolerance.
    """
    gold, got = pair.gold.rows.rows, pair.got.rows.rows
    return float(gold == got or set(gold) == set(got))


def soft_f1(pair: Pair) -> float:
    """`soft_f1_of` the two results."""
    return soft_f1_of(pair.gold.rows.rows, pair.got.rows.rows)


def soft_f1_of(gold: Sequence[Row], got: Sequence[Row]) -> float:
    """F1 over cells, in [0, 1]; two empty results give 1.

    Duplicate rows are dropped, then rows are paired by position. Each pair counts the predicted cells that occur
    anywhere in gold's row as hits, the others as false positives, and gold's cells that do not occur in the predicted
    row as false negatives, all as shares of gold's number of columns. A row without a partner counts as one whole
    false negative or positive.

    So the order of rows matters although it does not to `bird_ex`, the order of columns does not, and a cell that is
    repeated within a row costs nothing.
    """
    if not gold and not got:
        return 1.0
    wanted, found = list(dict.fromkeys(gold)), list(dict.fromkeys(got))
    hits = 0.0
    false_positives = float(max(0, len(found) - len(wanted)))
    false_negatives = float(max(0, len(wanted) - len(found)))
    for gold_row, row in zip(wanted, found, strict=False):
        share = 1 / len(gold_row)
        in_gold = sum(cell in gold_row for cell in row)
        hits += share * in_gold
        false_positives += share * (len(row) - in_gold)
        false_negatives += share * sum(cell not in row for cell in gold_row)
    return 2 * hits / (2 * hits + false_positives + false_negatives)


BIRD_EX = Rule("bird_ex", bird_ex)
SOFT_F1 = Rule("soft_f1", soft_f1)
