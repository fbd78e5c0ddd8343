"""The second half of a cell: a few features of the syntax tree, each in few bins, as a string that people can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sqlglot import exp

from elite_lightning.domains.sql.syntax import NAMES_AND_LITERALS, Node, is_aggregate, parse_query, subquery_place

UNPARSED = "unparsed"
"""The structure of a query that sqlglot cannot parse."""

MOST_JOINS = 3


def structure_of(sql: str) -> str:
    """The binned features of a query, such as `joins=1 sub=in set=0 agg=having order=none case=0 window=0 distinct=0`.

    - joins: their number in the whole query, 3 standing for three and more
    - sub: the most telling kind of subquery: cte, from (derived table), in (IN or EXISTS), scalar, none
    - set, case, window, distinct: 1 if a set operation, CASE or IIF, window function or DISTINCT occurs, else 0
    - agg: having, group (GROUP BY without HAVING), agg (an aggregate function only), none
    - order: limit (LIMIT, ordered or not), order (ORDER BY only), none

    Never raises; a query that cannot be parsed has the structure `UNPARSED`.
    """
    tree = parse_query(sql)
    if tree is None:
        return UNPARSED
    seen = Counter(feature for feature in map(_feature, tree.walk()) if feature)
    flags = {name: int(name in seen) for name in ("set", "case", "window", "distinct")}
    return (
        f"joins={min(seen['join'], MOST_JOINS)} sub={_first(seen, ('cte', 'from', 'in', 'scalar'))} set={flags['set']} "
        f"agg={_first(seen, ('having', 'group', 'agg'))} order={_first(seen, ('limit', 'order'))} "
        f"case={flags['case']} window={flags['window']} distinct={flags['distinct']}"
    )


def _first(seen: Collection[str], names: tuple[str, ...]) -> str:
    return next((name for name in names if name in seen), "none")


_BY_NODE: tuple[tuple[type[Node] | tuple[type[Node], ...], str], ...] = (
    (exp.Join, "join"),
    (exp.CTE, "cte"),
    (exp.Exists, "in"),
    (exp.SetOperation, "set"),
    (exp.Having, "having"),
    (exp.Group, "group"),
    (exp.Limit, "limit"),
    (exp.Case, "case"),
    (exp.If, "case"),
    (exp.Window, "window"),
    (exp.Distinct, "distinct"),
)


def _feature(node: Node) -> str:
    """The feature that a node is the sign of, or nothing."""
    if isinstance(node, NAMES_AND_LITERALS):
        return ""
    for kinds, name in _BY_NODE:
        if isinstance(node, kinds):
            return name
    within_window = isinstance(node.parent, exp.Window)  # its ORDER BY orders no result, its SUM groups no rows
    if isinstance(node, exp.Order):
        return "" if within_window else "order"
    if is_aggregate(node):
        return "" if within_window else "agg"
    if isinstance(node, exp.In):
        return "in" if node.args.get("query") or node.args.get("field") else ""
    return subquery_place(node) if isinstance(node, exp.Subquery) else ""
