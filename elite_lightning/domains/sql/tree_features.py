"""The edges of a query's syntax tree as a multiset, to measure how alike two queries are. Neither cell nor strategy.

Two queries that have the same multiset need not have the same strategy: who is whose sibling is lost, as in
`a = 1 AND b = 2` and `a = 2 AND b = 1`, where literals are masked besides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from sqlglot import exp

from elite_lightning.domains.sql.syntax import Node, parse_query

REMEMBERED = 10_000  # queries; about 5 kB each

_SEEN_THROUGH = (exp.Paren, exp.Alias)
_COMMUTATIVE = (exp.And, exp.Or, exp.EQ, exp.NEQ, exp.Add, exp.Mul)
_MIRRORED: dict[type[Node], str] = {exp.GT: "LT", exp.GTE: "LTE"}
_OTHER_SIDE = {"this": "expression", "expression": "this"}


@lru_cache(maxsize=REMEMBERED)
def tree_features(sql: str) -> Mapping[str, int] | None:
    """How often each edge occurs in the syntax tree of a query; None if it cannot be parsed.

    An edge is named after its upper end, the place there (left or right operand, WHERE, GROUP BY, ...) and its lower
    end. Below a column or table hangs its name, as a second edge from the same place: two queries that differ in a name
    share the one and not the other. Aliases, superfluous parentheses, upper and lower case and literals are masked, a
    table's name before a column is left out, the operands of AND, OR, =, <>, + and * have no order, and `a > b` is
    `b < a`.

    Never raises. Callers must not change the mapping.
    """
    tree = parse_query(sql)
    if tree is None:
        return None
    local = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    return Counter(
        f"{place}>{end}" for node in tree.walk() if (place := _place(node)) is not None for end in _ends(node, local)
    )


def _place(node: Node) -> str | None:
    """The upper end of the edge to a node; None where there is no edge to it."""
    if isinstance(node, _SEEN_THROUGH) or _is_alias(node):
        return None
    below, parent = node, node.parent
    while isinstance(parent, _SEEN_THROUGH):
        below, parent = parent, parent.parent
    if parent is None:
        return ""
    if isinstance(parent, exp.Column | exp.Table) and isinstance(node, exp.Identifier | exp.Star):
        return None  # a part of the name
    if isinstance(parent, _COMMUTATIVE):
        return _label(parent)
    key = str(below.arg_key)
    return f"{_label(parent)}.{_OTHER_SIDE.get(key, key) if type(parent) in _MIRRORED else key}"


def _is_alias(node: Node) -> bool:
    """Whether a node is, or stands in, a name that the query itself gives."""
    within = isinstance(node, exp.TableAlias) or isinstance(node.parent, exp.TableAlias)
    return within or (isinstance(node.parent, exp.Alias) and node.arg_key == "alias")


def _ends(node: Node, local: set[str]) -> Iterator[str]:
    """The lower ends of the edges to a node: its kind, and its name if it has one.

    Args:
        node: A node.
        local: Names of common table expressions.
    """
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        yield "Star"
        return
    yield _label(node)
    if isinstance(node, exp.Column | exp.Table | exp.Identifier):
        name = node.name.lower()
        yield "a common table expression" if isinstance(node, exp.Table) and name in local else f"name {name}"


def _label(node: Node) -> str:
    """What kind of node it is."""
    kind = _MIRRORED.get(type(node), type(node).__name__)
    if isinstance(node, exp.Join):
        return " ".join(filter(None, (kind, node.method, node.side))).upper()
    if isinstance(node, exp.Ordered):
        return f"{kind} descending" if node.args.get("desc") else kind
    if isinstance(node, exp.SetOperation):
        return kind if node.args.get("distinct") else f"{kind} all"
    if isinstance(node, exp.Anonymous):
        return f"{kind} {node.name.lower()}"
    return f"{kind} {getattr(node.this, 'name', node.this)}" if isinstance(node, exp.DataType) else kind
