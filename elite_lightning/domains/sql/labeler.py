"""Name the way in which a query solves its problem: one label out of a closed list, read off the syntax tree.

A query usually shows several devices at once; the first one of `APPROACHES` that occurs anywhere in it names it. The
list therefore runs from the most telling device to what nearly every query has:

| approach | the query has | "students without any loan", say |
|---|---|---|
| window | a window function | COUNT(..) OVER (..) = 0 |
| cte | a common table expression | WITH borrowers AS (..) |
| set_operation | UNION, INTERSECT or EXCEPT | EXCEPT |
| exists | EXISTS or NOT EXISTS | NOT EXISTS (..) |
| in_subquery | IN or NOT IN of a subquery | id NOT IN (SELECT ..) |
| derived_table | a subquery in FROM | FROM (SELECT .. GROUP BY ..) |
| correlated_subquery | a scalar subquery that refers outwards | (SELECT COUNT(*) .. WHERE fk = id) = 0 |
| scalar_subquery | a scalar subquery that does not | v = (SELECT MAX(v) ..) |
| outer_join | LEFT, RIGHT or FULL JOIN | LEFT JOIN .. WHERE fk IS NULL |
| self_join | one table twice in one FROM | |
| case | CASE or IIF | SUM(CASE ..) |
| group_having | HAVING | HAVING COUNT(*) > 2 |
| order_limit | ORDER BY with LIMIT | ORDER BY v DESC LIMIT 1 |
| join | any other join | |
| aggregate | GROUP BY or an aggregate function | |
| filter | none of these | |

NOT IN goes with IN and NOT EXISTS with EXISTS: to one question hardly ever both are right, so telling them apart would
add targets that cannot be met, and no variety.
"""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from elite_lightning.domains.sql.scopes import ROW_NUMBERS
from elite_lightning.domains.sql.syntax import (
    NAMES_AND_LITERALS,
    Node,
    Tables,
    is_aggregate,
    parse_query,
    subquery_place,
)

APPROACHES = (
    "window",
    "cte",
    "set_operation",
    "exists",
    "in_subquery",
    "derived_table",
    "correlated_subquery",
    "scalar_subquery",
    "outer_join",
    "self_join",
    "case",
    "group_having",
    "order_limit",
    "join",
    "aggregate",
    "filter",
)
"""What the search may ask for, in order of precedence."""

OTHER = "other"
"""The label of a query that SQLite runs and sqlglot cannot parse. It is no target: nobody could aim at it."""

_BY_NODE: dict[type[Node], str] = {
    exp.Window: "window",
    exp.CTE: "cte",
    exp.Exists: "exists",
    exp.Case: "case",
    exp.If: "case",
    exp.Having: "group_having",
    exp.Group: "aggregate",
    exp.SetOperation: "set_operation",
}


def label_approach(sql: str, tables: Tables | None = None) -> str:
    """The approach of a query: one of `APPROACHES`, or `OTHER`. Never raises.

    Args:
        sql: The query as the policy wrote it.
        tables: The database's columns; without them a bare outer column in a subquery is taken for one of its own.
    """
    tree = parse_query(sql)
    if tree is None:
        return OTHER
    found: set[str] = {"filter"}
    for node in tree.walk():
        if not isinstance(node, NAMES_AND_LITERALS):
            found.update(_devices(node, tables))
    return next(approach for approach in APPROACHES if approach in found)


def _devices(node: Node, tables: Tables | None) -> list[str]:
    """The approaches that a single node is the sign of."""
    if isinstance(node, exp.Subquery):
        return _subquery(node, tables)
    if isinstance(node, exp.Select):
        return _select(node)
    if isinstance(node, exp.In):
        return ["in_subquery"] if node.args.get("query") or node.args.get("field") else []
    if isinstance(node, exp.Join):
        return ["outer_join" if node.side else "join"]
    if is_aggregate(node):
        return ["aggregate"]
    return [approach for kind, approach in _BY_NODE.items() if isinstance(node, kind)]


def _subquery(node: exp.Subquery, tables: Tables | None) -> list[str]:
    place = subquery_place(node)
    if not place:
        return []
    if place == "from":
        return ["derived_table"]
    return ["correlated_subquery" if _is_correlated(node, tables or {}) else "scalar_subquery"]


def _select(node: exp.Select) -> list[str]:
    found = []
    if node.args.get("limit") is not None and node.args.get("order") is not None:
        found.append("order_limit")
    sources = [node.args.get("from_"), *(node.args.get("joins") or [])]
    names = Counter(source.this.name.lower() for source in sources if source and isinstance(source.this, exp.Table))
    if any(times > 1 for times in names.values()):
        found.append("self_join")
    return found


def _is_correlated(subquery: exp.Subquery, tables: Tables) -> bool:
    """Whether a column within refers to a source outside."""
    inside = {source.alias_or_name.lower() for source in subquery.find_all(exp.Table, exp.Subquery)}
    bases = [table.name.lower() for table in subquery.find_all(exp.Table)]
    own = {column for base in bases for column in tables.get(base, ())}
    own |= {alias.alias.lower() for alias in subquery.find_all(exp.Alias)}
    own |= ROW_NUMBERS
    all_known = all(base in tables for base in bases)
    for column in subquery.find_all(exp.Column):
        if column.table:
            if column.table.lower() not in inside:
                return True
        elif all_known and not column.this.args.get("quoted") and not column.is_star and column.name.lower() not in own:
            return True
    return False
