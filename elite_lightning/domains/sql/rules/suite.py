"""The test-suite evaluation of taoyds/test-suite-sql-eval (exec_eval.py).

Zhong 2020, "Semantic Evaluation for Text-to-SQL with Distilled Test Suites" (arXiv 2010.02840).
"""

from __future__ import annotations

import re

from elite_lightning.domains.sql.compare import Row
from elite_lightning.domains.sql.rules.base import Pair, Rule
from elite_lightning.domains.sql.rules.permutation import equal_under_permutation

_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
_DISTINCT = re.compile(
    r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z))|(?<![\w.])distinct\b""",
    re.IGNORECASE | re.DOTALL,
)


def joined_operators(sql: str) -> str:
    """`> =`, `< =` and `! =` written as one, within literals too, and MySQL's year of today written as 2020."""
    for operator in "><!":
        sql = sql.replace(f"{operator} =", f"{operator}=")
    return _YEAR.sub("2020", sql)


def without_distinct(sql: str) -> str:
    """As `joined_operators`, and without the word DISTINCT wherever it is not quoted or within a comment."""
    return _DISTINCT.sub(lambda found: found.group(1) or "", joined_operators(sql))


def suite_match(pair: Pair) -> float:
    """1 if some order of the prediction's columns gives gold's rows, else 0.

    Rows are compared as a list if `order by` occurs anywhere in gold, in a subquery or a literal too, else as a
    multiset. Empty results are equal whatever their columns. As in the official script, rows are first compared with
    each row's cells sorted by `str(cell) + str(type(cell))`, which refuses a few pairs that are equal, such as
    (1, '1.') and (1.0, '1.').
    """
    gold, got = pair.gold.rows.rows, pair.got.rows.rows
    if not gold and not got:
        return 1.0
    if len(gold) != len(got) or pair.gold.rows.columns != pair.got.rows.columns:
        return 0.0
    ordered = "order by" in pair.gold.sql.lower()
    left, right = [_unordered(row) for row in gold], [_unordered(row) for row in got]
    if left != right if ordered else set(left) != set(right):
        return 0.0
    return float(equal_under_permutation(gold, got, ordered))


def _unordered(row: Row) -> Row:
    return tuple(sorted(row, key=lambda cell: str(cell) + str(type(cell))))


TEST_SUITE = Rule("test_suite", suite_match, without_distinct, every_copy=True)
TEST_SUITE_KEEP_DISTINCT = Rule("test_suite_keep_distinct", suite_match, joined_operators, every_copy=True)
