"""Write a query's syntax tree as text in which only the way of solving is left. What is left out: `strategy`."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp

from elite_lightning.domains.sql.expressions import ExpressionWriter
from elite_lightning.domains.sql.scopes import BASE_TABLE, Query, Scope, Source, written
from elite_lightning.domains.sql.syntax import Node, Tables, UnaryPlus

_CLAUSES = ("where", "group", "having")
_WRITTEN = frozenset(
    {"with_", "from_", "joins", "windows", "expressions", "distinct", "order", "limit", "offset", *_CLAUSES}
)
# An index to use or not to use changes the way of searching, never the result, and is nobody's way of solving.
_OF_TABLE = frozenset({"this", "db", "catalog", "joins", "indexed"})
LARGEST_POSITION = 4  # digits; SQLite allows at most 32,767 columns


class Writer(ExpressionWriter):
    """Writes a query as canonical text.

    Args:
        tables: The database's columns, if known.
    """

    def __init__(self, tables: Tables | None) -> None:
        super().__init__()
        self._tables: Tables = tables or {}

    def query(self, node: Node, outer: Scope) -> Query:
        """A SELECT, set operation or VALUES, with or without parentheses around it."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, outer)
        self._enter()
        scope = Scope(parent=outer)
        with_ = self._with(node, scope)
        if isinstance(node, exp.Select):
            body = self._select(node, scope)
        elif isinstance(node, exp.SetOperation):
            body = self._set_operation(node, scope)
        else:
            body = Query(self.write(node, scope), {}, True)
        self._depth -= 1
        return body._replace(text=with_ + body.text)

    def named_source(self, name: str, scope: Scope, is_base: bool) -> Source:
        """The common table expression of a name or, if there is none or `is_base` says so, the base table."""
        for up, around in scope.chain():
            if name in around.ctes and not is_base:
                cte = around.ctes[name]
                return cte._replace(label=up + cte.label)
        known = self._tables.get(name)
        return Source(BASE_TABLE + written(name), _columns(tuple(known or ())), known is None)

    def _with(self, node: Node, scope: Scope) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        named = [[column.name.lower() for column in cte.args["alias"].columns] for cte in clause.expressions]
        labels = [f"cte{position}" for position in range(len(named))]
        # Whatever the word RECURSIVE, SQLite lets each of them refer to itself and to those after it.
        for cte, names, label in zip(clause.expressions, named, labels, strict=True):
            scope.ctes[cte.alias.lower()] = Source(label, _positions(names), not names)
        bodies = [""] * len(named)
        for place in _by_reference(clause.expressions):
            cte, names = clause.expressions[place], named[place]
            body = self.query(cte.this, scope)
            columns, is_open = _positions(names) or body.columns, body.open and not names
            scope.ctes[cte.alias.lower()] = Source(labels[place], columns, is_open)
            bodies[place] = body.text
        return f"with{'.recursive' if clause.args.get('recursive') else ''}[{';'.join(bodies)}]"

    def _select(self, node: Node, scope: Scope) -> Query:
        parts = [self._from(node, scope)]
        for window in node.args.get("windows") or []:
            scope.windows[window.name.lower()] = self.window_body(window, scope)
        projections = [self._projection(item, scope) for item in node.expressions]
        head = "distinct:" if node.args.get("distinct") else ""
        scope.aliases = {
            item.alias.lower(): text
            for item, text in zip(node.expressions, projections, strict=True)
            if isinstance(item, exp.Alias)
        }
        for clause in _CLAUSES:
            if node.args.get(clause) is not None:
                parts.append(self._clause(clause, node.args[clause], scope, projections))
        parts += self._tail(node, scope, projections)
        parts += self.arguments(node, scope, without=_WRITTEN)  # whatever else sqlglot may have found
        columns, is_open = self._offers(node, scope)
        return Query(f"select({head}{','.join(projections)};{';'.join(parts)})", columns, is_open)

    def _set_operation(self, node: exp.SetOperation, scope: Scope) -> Query:
        left, right = self.query(node.this, scope), self.query(node.expression, scope)
        kind = node.key if node.args.get("distinct") else f"{node.key}.all"
        scope.sources = {"": Source("out", left.columns, left.open)}
        tail = self._tail(node, scope, [f"out.{position}" for position in range(len(node.selects))])
        return Query(f"{kind}({';'.join([left.text, right.text, *tail])})", left.columns, left.open)

    def _clause(self, name: str, node: Node, scope: Scope, projections: list[str]) -> str:
        if name != "group":
            return f"{name}:{self.write(node.this, scope)}"
        return f"group:{','.join(self._term(item, scope, projections) for item in node.expressions)}"

    def _tail(self, node: Node, scope: Scope, projections: list[str]) -> list[str]:
        """ORDER BY, LIMIT and OFFSET."""
        parts = []
        if node.args.get("order") is not None:
            terms = [self._ordered(item, scope, projections) for item in node.args["order"].expressions]
            parts.append(f"order:{','.join(terms)}")
        for name in ("limit", "offset"):
            clause = node.args.get(name)
            if isinstance(clause, exp.Limit | exp.Offset):
                parts.append(f"{name}:{self.write(clause.expression, scope)}")
            elif clause is not None:  # FETCH, which SQLite refuses
                parts.append(f"{name}:{self.write(clause, scope)}")
        return parts

    def _ordered(self, node: Node, scope: Scope, projections: list[str]) -> str:
        term = node.this
        # In ORDER BY an alias comes before a column of the same name, everywhere else after it.
        bare = isinstance(term, exp.Column) and not term.table and term.name.lower() in scope.aliases
        text = scope.aliases[term.name.lower()] if bare else self._term(term, scope, projections)
        direction = "desc" if node.args.get("desc") else "asc"
        first = "first" if node.args.get("nulls_first") else "last"
        return f"{direction}.{first}({text})"

    def _term(self, node: Node, scope: Scope, projections: list[str]) -> str:
        """An item of GROUP BY or ORDER BY; a whole number there is a position, not a literal.

        So it is in parentheses, behind `+` and before COLLATE, as SQLite's `resolveOrderGroupBy` reads them.
        """
        node = node.unnest()
        if isinstance(node, exp.Collate):
            return self.collated(node, self._term(node.this, scope, projections))
        number = _without_signs(node)
        if isinstance(number, exp.Literal) and not number.is_string:
            small = number.name.isdecimal() and len(number.name) <= LARGEST_POSITION
            position = int(number.name) if small else 0
            known = 0 < position <= len(projections) and not any(text.endswith("*") for text in projections[:position])
            return projections[position - 1] if known else f"#{number.name}"
        return self.write(node, scope)

    def _from(self, node: Node, scope: Scope) -> str:
        clause = node.args.get("from_")
        first = [self._source(clause.this, scope)] if clause is not None else []
        return "from:" + " ".join(first + self._joins(node, scope))

    def _joins(self, node: Node, scope: Scope) -> list[str]:
        """The joins of a FROM: all sources before any condition, because SQLite lets ON refer to a later source."""
        joins = node.args.get("joins") or []
        sources = [self._source(join.this, scope) for join in joins]
        return [self._join(join, source, scope) for join, source in zip(joins, sources, strict=True)]

    def _join(self, node: Node, source: str, scope: Scope) -> str:
        words = [node.args.get("method"), node.args.get("side")]
        kind = ".".join(["join", *(str(word).lower() for word in words if word)])
        condition = node.args.get("on")
        on = "" if condition is None or isinstance(condition, exp.Boolean) else f" on {self.write(condition, scope)}"
        using = ",".join(sorted(written(column.name.lower()) for column in node.args.get("using") or []))
        return f"{kind}({source}{on}{f' using {using}' if using else ''})"

    def _source(self, node: Node, scope: Scope) -> str:
        alias = node.alias.lower()
        if isinstance(node, exp.Table):
            label = self._table(node, alias, scope)
            joins = self._joins(node, scope)
            return f"({' '.join([label, *joins])})" if joins else label
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            return self._source(node.this, scope)  # parentheses around a join
        body = self.query(node, scope)
        return f"{scope.add(alias, 'derived', body.columns, body.open)}=({body.text})"

    def _table(self, node: exp.Table, alias: str, scope: Scope) -> str:
        if not isinstance(node.this, exp.Identifier):  # a table-valued function
            return scope.add(alias, self.write(node.this, scope), {}, True)
        name = node.name.lower()
        base, columns, is_open = self.named_source(name, scope, is_base=bool(node.db))
        rest = self.arguments(node, scope, without=_OF_TABLE)
        return scope.add(alias or name, base, columns, is_open) + "".join(f" {part}" for part in rest)

    def _projection(self, node: Node, scope: Scope) -> str:
        if isinstance(node, exp.Star):
            return "*"
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            named = self._starred(node, scope)
            return f"{named[0].label}.*" if named and len(scope.sources) > 1 else "*"
        return self.write(node, scope)

    def _starred(self, node: Node, scope: Scope) -> list[Source]:
        """The sources that a star stands for."""
        if isinstance(node, exp.Column):
            return [source for name, source in scope.sources.items() if name == node.table.lower()]
        return list(scope.sources.values())

    def _offers(self, node: Node, scope: Scope) -> tuple[dict[str, str], bool]:
        """The columns of a SELECT by name, written as positions, and whether a star may hide more."""
        columns: dict[str, str] = {}
        is_open = False
        for position, item in enumerate(node.expressions):
            if item.is_star:
                for source in self._starred(item, scope):
                    is_open = is_open or source.open
                    for name in source.columns:
                        columns.setdefault(name, f"{position}.{source.column(name)}")
            elif item.alias_or_name:
                columns.setdefault(item.alias_or_name.lower(), str(position))
        return columns, is_open


def _without_signs(node: Node) -> Node:
    """What stands within parentheses and behind `+`."""
    while isinstance(node, exp.Paren | UnaryPlus):
        node = node.this
    return node


@lru_cache(maxsize=4096)
def _columns(names: tuple[str, ...]) -> dict[str, str]:
    """A base table's columns, written as they are. Callers must not change it."""
    return {name.lower(): written(name.lower()) for name in names}


def _positions(names: list[str]) -> dict[str, str]:
    """Columns by name, written as positions."""
    return {name: str(position) for position, name in enumerate(names)}


def _by_reference(ctes: list[exp.CTE]) -> list[int]:
    """Places of common table expressions, those first that others refer to; in their order where they refer back."""
    if len(ctes) == 1:
        return [0]
    places = {cte.alias.lower(): place for place, cte in enumerate(ctes)}
    mentioned = [{places.get(table.name.lower(), -1) for table in cte.find_all(exp.Table)} for cte in ctes]
    later = [{other for other in others if other > place} for place, others in enumerate(mentioned)]
    remaining, order = list(range(len(ctes))), []
    while remaining:
        ready = (place for place in remaining if later[place].isdisjoint(remaining))
        order.append(next(ready, remaining[0]))
        remaining.remove(order[-1])
    return order
