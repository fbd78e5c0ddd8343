"""What gold's outermost query says about order, and the query that shows its sort keys.

That query is gold's own text with a part cut off and parts repeated. sqlglot only reads: what it writes can mean
something else to SQLite, as `DATE(x)` in place of `CAST(x AS DATE)` does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from sqlglot import exp

from elite_lightning.domains.sql.rules.clauses import Clauses, Term, clauses_of
from elite_lightning.domains.sql.syntax import Node, parse_query, without_comments


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
    clauses = clauses_of(without_comments(sql))
    if skipped is None or not _agree(clauses, tree):
        return plan
    keys = _keys(tree, clauses)
    if keys is None:
        return plan
    outputs, expressions = keys
    keyed = clauses.with_columns([term.text for term in expressions])
    return plan._replace(offset=skipped, keyed=keyed, outputs=tuple(outputs), appended=len(expressions))


def _number(node: Node) -> int | None:
    return int(node.this) if isinstance(node, exp.Literal) and node.is_int else None


def _agree(clauses: Clauses, tree: Node) -> bool:
    """Whether the clauses found in the text are those of the tree."""
    order = tree.args.get("order")
    aliases = _aliases(tree)
    return len(clauses.terms) == (len(order.expressions) if order is not None else 0) and aliases == [
        item.ending(alias) for item, alias in zip(clauses.items, aliases, strict=False)
    ]


def _items(tree: Node) -> list[Node]:
    return tree.selects if isinstance(tree, exp.Query) else []


def _aliases(tree: Node) -> list[str]:
    """The alias of each item in lower case, or an empty text; sqlglot gives the name of a window as an alias too."""
    return [item.alias.lower() if isinstance(item, exp.Alias | exp.Subquery) else "" for item in _items(tree)]


def _keys(tree: Node, clauses: Clauses) -> tuple[list[int], list[Term]] | None:
    """Sort keys as positions in the result and as terms to append, or None where neither is certain."""
    aliases = _aliases(tree)
    values = [item.without_alias() if alias else item for item, alias in zip(clauses.items, aliases, strict=True)]
    starred = any(item.is_star for item in _items(tree))
    # Another column would change the rows of a DISTINCT and those of a UNION.
    extensible = isinstance(tree, exp.Select) and not tree.args.get("distinct")
    outputs: list[int] = []
    expressions: list[Term] = []
    for term in (ordering.value() for ordering in clauses.terms):
        number = term.number()
        position = _position(term, values, aliases) if number is None else number - 1
        if position is not None and (number is not None or not starred):
            outputs.append(position)
        elif not extensible or (position is None and term.names_any(aliases)):
            return None  # in an ORDER BY the alias may be meant, which further columns do not see
        else:
            expressions.append(term if position is None else values[position])
    return outputs, expressions


def _position(term: Term, values: list[Term], aliases: list[str]) -> int | None:
    """The item of SELECT that a sort key names, by its alias or by being the same."""
    name = term.name()
    if name and name in aliases:
        return aliases.index(name)
    return next((index for index, value in enumerate(values) if value.same_as(term)), None)
