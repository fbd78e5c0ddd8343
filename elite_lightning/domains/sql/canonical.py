"""Write a query's syntax tree as text in which only the way of solving is left. What is left out: `strategy`."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from elite_lightning.domains.sql.scopes import Query, Scope, Source
from elite_lightning.domains.sql.syntax import Node, Tables

_COMMUTATIVE: tuple[type[Node], ...] = (exp.And, exp.Or, exp.Add, exp.Mul)
_SYMMETRIC: tuple[type[Node], ...] = (exp.EQ, exp.NEQ)
_MIRRORED: dict[type[Node], str] = {exp.GT: "lt", exp.GTE: "lte"}
_CLAUSES = ("where", "group", "having")
_LITERALS: tuple[type[Node], ...] = (exp.Literal, exp.Boolean, exp.HexString, exp.Placeholder, exp.Parameter)
_UNSEEN = {"alias", "big_int"}  # arguments that say nothing about the strategy


class Writer:
    """Writes a syntax tree as canonical text."""

    def __init__(self, tables: Tables | None) -> None:
        self._tables = tables
        self._special: dict[type[Node], Callable[[Node, Scope], str]] = {
            exp.Column: self._column,
            exp.Identifier: lambda node, _: node.name.lower(),
            exp.Null: lambda *_: "null",
            exp.Paren: lambda node, scope: self.write(node.this, scope),
            exp.Alias: lambda node, scope: self.write(node.this, scope),
            exp.Neg: self._negative,
            exp.In: self._in,
            exp.Exists: self._exists,
            exp.Window: self._window,
            **dict.fromkeys(_LITERALS, lambda *_: "?"),
            **dict.fromkeys(_COMMUTATIVE, self._commutative),
            **dict.fromkeys(_SYMMETRIC, self._symmetric),
            **dict.fromkeys(_MIRRORED, self._mirrored),
        }

    def write(self, node: Node, scope: Scope) -> str:
        """Any expression."""
        special = self._special.get(type(node))
        if special is not None:
            return special(node, scope)
        if isinstance(node, exp.Query):
            return f"({self.query(node, scope).text})"
        arguments = sorted(node.args.items())
        written = [f"{name}={self._argument(value, scope)}" for name, value in arguments if self._says(name, value)]
        return f"{node.key}({','.join(written)})"

    def _says(self, name: str, value: object) -> bool:
        return (
            name not in _UNSEEN
            and not name.startswith("_")
            and value is not None
            and value is not False
            and value != []
        )

    def _argument(self, value: object, scope: Scope) -> str:
        if isinstance(value, list):
            return "[" + ",".join(self._argument(item, scope) for item in value) + "]"
        return self.write(value, scope) if isinstance(value, Node) else str(value).lower()

    # Queries

    def query(self, node: Node, outer: Scope) -> Query:
        """A SELECT, set operation or VALUES, with or without parentheses around it."""
        if isinstance(node, exp.Subquery):
            return self.query(node.this, outer)
        scope = Scope(parent=outer)
        with_ = self._with(node, scope)
        if isinstance(node, exp.Select):
            body = self._select(node, scope)
        elif isinstance(node, exp.SetOperation):
            body = self._set_operation(node, scope)
        else:  # VALUES
            rows = {self._argument(item, scope) for item in node.expressions}
            body = Query(f"{node.key}({','.join(sorted(rows))})", {}, True)
        return body._replace(text=with_ + body.text)

    def _with(self, node: Node, scope: Scope) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        bodies = []
        for position, cte in enumerate(clause.expressions):
            name, label = cte.alias.lower(), f"cte{position}"
            named = {
                column.name.lower(): str(i) for i, column in enumerate(cte.args["alias"].args.get("columns") or [])
            }
            if clause.args.get("recursive"):
                scope.ctes[name] = Source(label, named, not named)
            body = self.query(cte.this, scope)
            scope.ctes[name] = Source(label, named or body.columns, body.open and not named)
            bodies.append(body.text)
        return f"with{'.recursive' if clause.args.get('recursive') else ''}[{';'.join(bodies)}]"

    def _select(self, node: Node, scope: Scope) -> Query:
        parts = [self._from(node, scope)]
        for window in node.args.get("windows") or []:
            scope.windows[window.name.lower()] = self._window_body(window, scope)
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
            if node.args.get(name) is not None:
                parts.append(f"{name}:{self.write(node.args[name].expression, scope)}")
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
        """An item of GROUP BY or ORDER BY; a whole number there is a position, not a literal."""
        if isinstance(node, exp.Literal) and not node.is_string:
            position = int(node.name) if node.name.isdigit() else 0
            known = 0 < position <= len(projections) and "*" not in projections[:position]
            return projections[position - 1] if known else f"#{node.name}"
        return self.write(node, scope)

    # FROM

    def _from(self, node: Node, scope: Scope) -> str:
        clause = node.args.get("from_")
        first = [self._source(clause.this, scope)] if clause is not None else []
        return "from:" + " ".join(first + [self._join(join, scope) for join in node.args.get("joins") or []])

    def _join(self, node: Node, scope: Scope) -> str:
        source = self._source(node.this, scope)
        words = [node.args.get("method"), node.args.get("side")]
        kind = ".".join(["join", *(str(word).lower() for word in words if word)])
        condition = node.args.get("on")
        on = "" if condition is None or isinstance(condition, exp.Boolean) else f" on {self.write(condition, scope)}"
        using = ",".join(sorted(column.name.lower() for column in node.args.get("using") or []))
        return f"{kind}({source}{on}{f' using {using}' if using else ''})"

    def _source(self, node: Node, scope: Scope) -> str:
        alias = node.alias.lower()
        if isinstance(node, exp.Table):
            label = self._table(node, alias, scope)
            joins = [self._join(join, scope) for join in node.args.get("joins") or []]
            return f"({' '.join([label, *joins])})" if joins else label
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            return self._source(node.this, scope)  # parentheses around a join
        body = self.query(node, scope)
        return f"{scope.add(alias, 'derived', body.columns, body.open)}=({body.text})"

    def _table(self, node: exp.Table, alias: str, scope: Scope) -> str:
        if not isinstance(node.this, exp.Identifier):  # a table-valued function
            return scope.add(alias, self.write(node.this, scope), {}, True)
        name = node.name.lower()
        base, columns, is_open = self._named_source(name, scope)
        return scope.add(alias or name, base, columns, is_open)

    def _named_source(self, name: str, scope: Scope) -> Source:
        """A common table expression or a base table."""
        for up, around in scope.chain():
            if name in around.ctes:
                cte = around.ctes[name]
                return cte._replace(label=up + cte.label)
        known = (self._tables or {}).get(name)
        return Source(f"table {name}", {column: column for column in known or ()}, known is None)

    def _projection(self, node: Node, scope: Scope) -> str:
        if isinstance(node, exp.Star):
            return "*"
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
            return f"{self._starred(node, scope)[0].label}.*" if self._starred(node, scope) else "*"
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

    # Expressions

    def _column(self, node: Node, scope: Scope) -> str:
        name, qualifier = node.name.lower(), node.args.get("table")
        table = qualifier.name.lower() if qualifier is not None else ""
        for up, around in scope.chain():
            found = around.find(name, table)
            if found is not None:
                return up + found
        # SQLite takes a name in double quotes that is no column for a text.
        return "?" if not table and node.this.args.get("quoted") else f"{table}.{name}"

    def _negative(self, node: Node, scope: Scope) -> str:
        text = self.write(node.this, scope)
        return text if text == "?" else f"neg({text})"

    def _commutative(self, node: Node, scope: Scope) -> str:
        return f"{node.key}({','.join(sorted(self.write(item, scope) for item in _operands(node)))})"

    def _symmetric(self, node: Node, scope: Scope) -> str:
        return f"{node.key}({','.join(sorted((self.write(node.this, scope), self.write(node.expression, scope))))})"

    def _mirrored(self, node: Node, scope: Scope) -> str:
        left, right = self.write(node.this, scope), self.write(node.expression, scope)
        return f"{_MIRRORED[type(node)]}(expression={left},this={right})"

    def _in(self, node: Node, scope: Scope) -> str:
        """A list counts as the set of its items, so that it is one strategy whatever the number of literals."""
        if node.args.get("query") is not None:
            within = self.write(node.args["query"], scope)
        elif node.args.get("field") is not None:
            within = self._named_source(node.args["field"].name.lower(), scope).label
        else:
            within = ",".join(sorted({self.write(item, scope) for item in node.expressions}))
        return f"in({self.write(node.this, scope)};{within})"

    def _exists(self, node: Node, scope: Scope) -> str:
        """What EXISTS selects says nothing, unless an aggregate makes one row of many."""
        query = node.this
        if isinstance(query, exp.Select) and not query.args.get("group") and not any(map(_computes, query.expressions)):
            query = query.copy()
            query.set("expressions", [exp.Star()])
        return f"exists({self.query(query, scope).text})"

    def _window(self, node: Node, scope: Scope) -> str:
        return f"window({self.write(node.this, scope)};{self._window_body(node, scope)})"

    def _window_body(self, node: Node, scope: Scope) -> str:
        """A window's definition; one that refers to a named window holds that one's definition."""
        named = node.args.get("alias")
        known = [windows.windows.get(named.name.lower(), "") for _, windows in scope.chain()] if named else []
        own = {name: node.args.get(name) for name in ("partition_by", "order", "spec")}
        written = [f"{name}={self._argument(value, scope)}" for name, value in own.items() if value]
        return ";".join([*(text for text in known if text), *written])


def _computes(projection: Node) -> bool:
    return projection.find(exp.AggFunc, exp.Query) is not None


def _operands(node: Node) -> list[Node]:
    """The operands of a chain such as `a AND b AND c`, however it is nested. Not recursive: chains can be long."""
    operands: list[Node] = []
    pending = [node]
    while pending:
        item = pending.pop().unnest()
        if type(item) is type(node):
            pending += [item.expression, item.this]
        else:
            operands.append(item)
    return operands
