"""Spider's classic execution match, as `eval_exec_match` of taoyds/spider (evaluation.py).

Yu 2018, "Spider: A Large-Scale Human-Labeled Dataset for Complex and Cross-Domain Semantic Parsing and Text-to-SQL
Task" (arXiv 1809.08887).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elite_lightning.domains.sql.compare import Row
from elite_lightning.domains.sql.rules.base import Pair, Rule
from elite_lightning.domains.sql.rules.select_units import select_units


def spider_exec(pair: Pair) -> float:
    """1 if both queries select the same things and give the same values for each of them, else 0.

    The columns of a result are filed under the names of the selected items (`select_units`), and the two files have to
    be equal: columns may change places, rows may not, with or without ORDER BY, and duplicates count. As in the
    official script, two items of one name, such as max(age) and min(age), overwrite each other so that only the last
    one is compared, and of `*` only the first column is.

    Where it deviates: the syntax tree is sqlglot's, so a prediction with an alias, a function, a CASE or a CTE is
    compared, which the official parser cannot read and counts as wrong; foreign keys are read from the database
    instead of tables.json; and if gold itself cannot be parsed, the results are compared as lists.
    """
    names = pair.database.names()
    wanted = select_units(pair.gold.sql, names)
    if wanted is None:
        return float(pair.gold.rows.rows == pair.got.rows.rows)
    found = select_units(pair.got.sql, names)
    return float(found is not None and _filed(wanted, pair.gold.rows.rows) == _filed(found, pair.got.rows.rows))


def _filed(units: Sequence[str], rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {unit: [row[index] for row in rows] for index, unit in enumerate(units)}


SPIDER_EXEC = Rule("spider_exec", spider_exec)
