"""Parse SQL for the descriptors. Never for running it: what runs is always the policy's own text.

sqlglot accepts and silently repairs SQL that SQLite refuses, so its output is no evidence of anything. It also refuses
some that SQLite runs, and needs time or stack without bound for some short texts; both are refused here, by bounds that
do not depend on the machine, and get their key from `fallback`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.sqlite import SQLite

Node = exp.Expr
"""A node of the syntax tree."""

Tables = Mapping[str, Sequence[str]]
"""Column names by table or view name, both in lower case."""

MAX_CHARACTERS = 20_000  # parsing takes about 0.1 ms per 100 characters, and a runaway response can be endless
MAX_NESTING = 30  # sqlglot spends about 19 frames on a parenthesis and Python allows 1,000; people stay below 10
MAX_REPARSED = 5_000  # tokens; no gold query of Spider or BIRD makes the parser take back more than 89

QUOTED = r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"""
"""A literal or name in quotes; one without an end goes on to the end, so that searching takes linear time. A doubled
quote within it counts as an end and a beginning, which comes to the same."""

_QUOTED_OR_COMMENT = re.compile(rf"({QUOTED})|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_BRACKET = re.compile(rf"({QUOTED})|([({{]|\bcase\b)|([)}}]|\bend\b)", re.IGNORECASE)
_PREFIXES = re.compile(rf"(?:(?:\bnot\b|[-+~])\s*){{{MAX_NESTING + 1}}}", re.IGNORECASE)

NAMES_AND_LITERALS = (exp.Identifier, exp.Column, exp.Literal)
"""Most nodes of most trees, which are the sign of no device of a query."""

_UNKNOWN_AGGREGATES = frozenset({"total", "percentile", "jsonb_group_array", "jsonb_group_object"})  # to sqlglot


class _TooMuchBacktracking(Exception):  # noqa: N818
    """The parser has tried too many readings. No ParseError, which the parser itself would catch and go on."""


class UnaryPlus(exp.Unary):
    """`+x`, which sqlglot would drop; it takes the affinity from a column (https://www.sqlite.org/datatype3.html)."""


class _Dialect(SQLite):
    """SQLite's syntax with what the descriptors need."""

    class Parser(SQLite.parser_class):  # type: ignore[misc, name-defined, valid-type]
        """Ends when it has taken back too much: `t JOIN t JOIN ..` and `date(date(..` take time 2^length in sqlglot."""

        UNARY_PARSERS: ClassVar = {
            **SQLite.parser_class.UNARY_PARSERS,
            TokenType.PLUS: lambda self: self.expression(UnaryPlus(this=self._parse_unary())),
        }
        _reparsed = 0

        def _retreat(self, index: int) -> None:
            self._reparsed += max(0, self._index - index)
            if self._reparsed > MAX_REPARSED:
                raise _TooMuchBacktracking
            super()._retreat(index)

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """A path stays the literal that it is; sqlglot would take it apart, and warn of SQLite's own `$[#-1]`."""
        return path


_DIALECT = _Dialect()


@lru_cache(maxsize=512)
def parse_query(sql: str) -> Node | None:
    """The syntax tree of a single query, or None if there is none within the bounds. Callers must not change the tree.

    Never raises.
    """
    sql = without_comments(sql)
    if len(sql) > MAX_CHARACTERS or _nesting(sql) > MAX_NESTING or _PREFIXES.search(sql):
        return None
    try:
        statements = [statement for statement in _DIALECT.parse(sql) if statement is not None]
    except Exception:  # a parser that is not ours, on any text whatever: no text may end a run
        return None
    return statements[0] if len(statements) == 1 and isinstance(statements[0], exp.Query | exp.Values) else None


def tokens_of(sql: str) -> list[Token]:
    """The tokens of a query that `parse_query` can parse, with their places in this text, which has no comments."""
    return list(_DIALECT.tokenize(sql))


def is_aggregate(node: Node) -> bool:
    """Whether a node is the call of an aggregate function (or of a function that only a window may have)."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _UNKNOWN_AGGREGATES
    return isinstance(node, exp.AggFunc)  # MAX and MIN of several arguments, which are no aggregates, are none here


def subquery_place(node: exp.Subquery) -> str:
    """Where a SELECT in parentheses stands: `from`, `scalar` (an expression), or nothing where it is not one by itself.

    Nothing: parentheses around a join, around other parentheses, behind IN, and around an operand of a set operation,
    which are sqlglot's own.
    """
    inside = isinstance(node.parent, exp.Subquery | exp.SetOperation) or node.arg_key == "query"
    if inside or not isinstance(node.this, exp.Query):
        return ""
    return "from" if isinstance(node.parent, exp.From | exp.Join) else "scalar"


def without_comments(sql: str) -> str:
    """The query without comments, which sqlglot does not allow within keywords of two words such as ORDER BY."""
    if "--" not in sql and "/*" not in sql:
        return sql
    return _QUOTED_OR_COMMENT.sub(lambda found: found.group(1) or " ", sql)


def _nesting(sql: str) -> int:
    """Deepest nesting of parentheses, braces and CASE, each of which costs the parser stack."""
    lower = sql.lower()
    at_most = lower.count("(") + lower.count("{") + lower.count("case")
    if at_most <= MAX_NESTING:
        return at_most
    depth = deepest = 0
    for found in _BRACKET.finditer(sql):
        if found.lastindex == 2:
            depth += 1
            deepest = max(deepest, depth)
        elif found.lastindex == 3:
            depth -= 1
    return deepest
