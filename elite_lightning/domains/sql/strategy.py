"""The evaluation's key: two queries have one strategy when they differ only in how they are written down.

Written down differently, and equal: aliases, upper and lower case, white space, comments, quotes, superfluous
parentheses, literals, the order of operands of AND, OR, =, <>, + and *, `a > b` for `b < a`, INNER and CROSS JOIN for
JOIN, an ordinal (in parentheses and with COLLATE too) or alias in ORDER BY for the expression that it stands for, `t.*`
of the only source for `*`, what an EXISTS selects, the three names of the row number, INDEXED BY and MATERIALIZED.
Different ways, and distinct: JOIN, IN, EXISTS, CTE, derived table, window, set operation, scalar subquery, LEFT JOIN,
CASE and IIF, a condition in ON and in WHERE; and whatever could change the result: tables, columns, the order of
projections, joins, GROUP BY and ORDER BY.

Names are resolved by scope, as SQLite does it, and written as (how many scopes up, which source, which column), so that
no alias is left over and nothing has to be renamed. `sqlglot.optimizer` is not used: it is slower by a factor of five,
takes base tables for aliases unless they are qualified, and merges real strategies.
"""

from __future__ import annotations

import hashlib

from elite_lightning.domains.sql.canonical import Writer
from elite_lightning.domains.sql.expressions import TooDeep
from elite_lightning.domains.sql.fallback import fallback_text
from elite_lightning.domains.sql.scopes import Scope
from elite_lightning.domains.sql.syntax import Tables, parse_query


def strategy_key(sql: str, tables: Tables | None = None) -> str:
    """The key of a query. Never raises: what is not parsed gets a key of its tokens.

    Args:
        sql: The query as the policy wrote it.
        tables: The database's columns. Without them, bare columns of joined tables and literals in double quotes
            cannot be told apart from others of the same name, and some equal queries get different keys.

    Returns:
        SHA-256 of `canonical_text` in hexadecimal, or `RAW:` and that of `fallback.fallback_text`.
    """
    text = canonical_text(sql, tables)
    return _hash(text) if text is not None else "RAW:" + _hash(fallback_text(sql, tables))


def canonical_text(sql: str, tables: Tables | None = None) -> str | None:
    """What the key is a hash of, to look at when two keys differ; None if the query is not parsed or too deep."""
    tree = parse_query(sql)
    if tree is None:
        return None
    try:
        return Writer(tables).query(tree, Scope()).text
    except (TooDeep, RecursionError):
        return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
