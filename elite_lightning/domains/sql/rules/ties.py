"""What a query's ORDER BY and LIMIT leave open: its sort keys, and which other rows it could have returned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from sqlglot import exp

from elite_lightning.domains.sql.compare import Row, number_clusters, with_clusters
from elite_lightning.domains.sql.syntax import Node, parse_query


class Plan(NamedTuple):
    """What gold's outermost query says about order and number of rows.

    Args:
        ordered: Whether it has an ORDER BY.
        limited: Whether it has a LIMIT.
        offset: Rows that are skipped before the first.
        keyed: Gold without its LIMIT and with its sort keys as further columns, or None if that cannot be written.
        outputs: Positions of the sort keys that are columns of the result anyway, from 0.
        appended: Number of further columns.
    """

    ordered: bool
    limited: bool
    offset: int = 0
    keyed: str | None = None
    outputs: tuple[int, ...] = ()
    appended: int = 0

    def keys(self, columns: int) -> tuple[int, ...]:
        """Positions of all sort keys in a row of `keyed`, of which the first `columns` cells are gold's."""
        return self.outputs + tuple(range(columns, columns + self.appended))


@lru_cache(maxsize=4096)
def plan_of(sql: str) -> Plan:
    """The plan of a query. One that sqlglot cannot parse has no keys, and is ordered if it says so anywhere."""
    tree = parse_query(sql)
    if tree is None:
        words = sql.lower().split()
        return Plan("order" in words, "limit" in words)
    order, limit, offset = (tree.args.get(part) for part in ("order", "limit", "offset"))
    plan = Plan(order is not None, limit is not None)
    skipped = _number(offset.expression) if offset is not None else 0
    keys = _keys(tree, [ordered.this for ordered in order.expressions] if order is not None else [])
    if skipped is None or keys is None:
        return plan
    outputs, expressions = keys
    full = tree.copy()
    for part in ("limit", "offset"):
        full.set(part, None)
    if expressions:
        full.set("expressions", [*full.expressions, *(expression.copy() for expression in expressions)])
    return plan._replace(
        offset=skipped, keyed=full.sql(dialect="sqlite"), outputs=tuple(outputs), appended=len(expressions)
    )


def possible(full: list[Row], keys: Sequence[int], got: list[Row], offset: int) -> bool:
    """Whether `got` is what a query could return whose ordered rows are `full` and which skips `offset` of them.

    Args:
        full: All rows in order, each with its sort keys, which may lie behind the cells of the result.
        keys: Positions of the sort keys.
        got: Rows of the width of the result.
        offset: Rows of `full` before the first of `got`.
    """
    width = len(got[0]) if got else 0
    clusters = [number_clusters(full, got if column < width else [], column) for column in range(len(full[0]))]
    named = with_clusters(full, clusters)
    rows = with_clusters(got, clusters[:width])
    start = 0
    for _, tied in groupby(named, key=lambda row: [row[key] for key in keys]):
        choice = [row[:width] for row in tied]
        taken = rows[max(0, start - offset) : max(0, start + len(choice) - offset)]
        if not Counter(taken) <= Counter(choice):
            return False
        start += len(choice)
    return True


def _number(node: Node) -> int | None:
    return int(node.this) if isinstance(node, exp.Literal) and node.is_int else None


def _keys(tree: Node, terms: list[Node]) -> tuple[list[int], list[Node]] | None:
    """Sort keys as positions in the result and as expressions to append, or None where neither is certain."""
    items: list[Node] = tree.selects if isinstance(tree, exp.Query) else []
    starred = any(item.is_star for item in items)
    outputs: list[int] = []
    expressions: list[Node] = []
    for term in terms:
        position = _position(term, items)
        if position is None:
            if not isinstance(tree, exp.Select) or tree.args.get("distinct") or _uses_alias(term, items):
                return None  # another column would change the rows, or mean something else
            expressions.append(term)
        elif not starred or isinstance(term, exp.Literal):
            outputs.append(position)
        elif isinstance(tree, exp.Select):
            expressions.append(items[position].unalias())
        else:
            return None
    return outputs, expressions


def _position(term: Node, items: list[Node]) -> int | None:
    """The item of SELECT that a sort key names, by number, by alias, or by being the same."""
    if isinstance(term, exp.Literal) and term.is_int:
        return int(term.this) - 1
    if isinstance(term, exp.Column) and not term.table:
        for index, item in enumerate(items):
            if isinstance(item, exp.Alias) and item.alias.lower() == term.name.lower():
                return index
    return next((index for index, item in enumerate(items) if item.unalias() == term), None)


def _uses_alias(term: Node, items: list[Node]) -> bool:
    aliases = {item.alias.lower() for item in items if isinstance(item, exp.Alias)}
    return any(not column.table and column.name.lower() in aliases for column in term.find_all(exp.Column))
