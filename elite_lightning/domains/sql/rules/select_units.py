"""Name what a query selects, column by column, as Spider's evaluator does, on sqlglot's syntax tree."""

from __future__ import annotations

from sqlglot import exp

from elite_lightning.domains.sql.database_file import ColumnNames
from elite_lightning.domains.sql.syntax import Node, parse_query

_AGGREGATES = (exp.Max, exp.Min, exp.Count, exp.Sum, exp.Avg)


def select_units(sql: str, names: ColumnNames) -> list[str] | None:
    """A name for each item of the outermost SELECT (the first one of a UNION), or None if sqlglot cannot parse it.

    An item's name leaves out its alias, its outermost aggregate, parentheses and DISTINCT. Columns are written as
    `table.column` without aliases, a bare name as the first table's in FROM that has it, and columns that foreign keys
    tie together by one of them. `*` is a single item.
    """
    tree = parse_query(sql)
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return None
    resolver = _Resolver(tree, names)
    return [resolver.unit(item) for item in tree.expressions]


class _Resolver:
    """Knows the tables of one FROM and which columns stand for which."""

    def __init__(self, select: exp.Select, names: ColumnNames) -> None:
        self._columns = names.columns
        self._tables = {table.alias_or_name.lower(): table.name.lower() for table in _tables(select)}
        self._same = _representatives(names, set(self._tables.values()))

    def unit(self, item: Node) -> str:
        inner = _bare(item.this if isinstance(item, exp.Alias) else item)
        if isinstance(inner, _AGGREGATES) and not inner.expressions:
            inner = _bare(inner.this)
        return str(inner.transform(self._resolved).sql(dialect="sqlite"))

    def _resolved(self, node: Node) -> Node:
        if isinstance(node, exp.Distinct) and len(node.expressions) == 1:
            inner: Node = node.expressions[0].transform(self._resolved)
            return inner
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        name, qualifier = node.name.lower(), node.table.lower()
        table = self._tables.get(qualifier, qualifier) if qualifier else self._owner(name)
        table, name = self._same.get((table, name), (table, name))
        return exp.column(name, table, quoted=False)

    def _owner(self, column: str) -> str:
        return next((table for table in self._tables.values() if column in self._columns.get(table, ())), "")


def _tables(select: exp.Select) -> list[exp.Table]:
    """The tables that FROM and JOIN name, without those of subqueries."""
    start = select.args.get("from_") or select.args.get("from")
    sources = [start.this] if start is not None else []
    sources += [join.this for join in select.args.get("joins") or []]
    return [source for source in sources if isinstance(source, exp.Table)]


def _bare(node: Node) -> Node:
    """Without parentheses, and without DISTINCT before a single expression."""
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Distinct) and len(node.expressions) == 1):
        node = node.this if isinstance(node, exp.Paren) else node.expressions[0]
    return node


def _representatives(names: ColumnNames, tables: set[str]) -> dict[tuple[str, str], tuple[str, str]]:
    """For each column of `tables` that foreign keys tie to others, one column that stands for all of them."""
    groups: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for own, other in names.references:
        merged = groups.get(own, {own}) | groups.get(other, {other})
        groups |= dict.fromkeys(merged, merged)
    return {column: min(group) for column, group in groups.items() if column[0] in tables}
