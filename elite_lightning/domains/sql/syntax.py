"""Parse SQL for the descriptors. Never for running it: what runs is always the policy's own text.

sqlglot accepts and silently repairs SQL that SQLite refuses, so its output is no evidence of anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

Node = exp.Expr
"""A node of the syntax tree."""

Tables = Mapping[str, Sequence[str]]
"""Column names by table or view name, both in lower case."""

MAX_CHARACTERS = 20_000  # parsing takes about 0.1 ms per 100 characters, and a runaway response can be endless
MAX_NESTING = 30  # sqlglot spends about 19 frames on a parenthesis and Python allows 1,000; people stay below 10

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]"""
_QUOTED_OR_COMMENT = re.compile(rf"({_QUOTED})|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)

_SQLITE = Dialect.get_or_raise("sqlite")


@lru_cache(maxsize=512)
def parse_query(sql: str) -> Node | None:
    """The syntax tree of a single query, or None if sqlglot cannot make one. Callers must not change the tree."""
    sql = _without_comments(sql)
    if len(sql) > MAX_CHARACTERS or _nesting(sql) > MAX_NESTING:
        return None
    try:
        statements = [statement for statement in _SQLITE.parse(sql) if statement is not None]
    except (SqlglotError, RecursionError):
        return None
    return statements[0] if len(statements) == 1 and isinstance(statements[0], exp.Query) else None


def _without_comments(sql: str) -> str:
    """The query without comments, which sqlglot does not allow within keywords of two words such as ORDER BY."""
    if "--" not in sql and "/*" not in sql:
        return sql
    return _QUOTED_OR_COMMENT.sub(lambda found: found.group(1) or " ", sql)


def _nesting(sql: str) -> int:
    """Deepest nesting of parentheses, those within literals included: an upper bound that costs nothing."""
    depth = deepest = 0
    for character in sql:
        if character == "(":
            depth += 1
            deepest = max(deepest, depth)
        elif character == ")":
            depth -= 1
    return deepest
