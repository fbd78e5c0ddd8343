"""Write an expression of a syntax tree as text in which only the way of solving is left. What is left out: `strategy`.

Queries within expressions are for `canonical`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from sqlglot import exp

from elite_lightning.domains.sql.scopes import Query, Scope, Source, written
from elite_lightning.domains.sql.syntax import Node, UnaryPlus, is_aggregate

MAX_DEPTH = 100
"""Deepest nesting of what is written; it takes about five frames each, and Python allows 1,000."""

_COMMUTATIVE: tuple[type[Node], ...] = (exp.And, exp.Or, exp.Add, exp.Mul)
_SYMMETRIC: tuple[type[Node], ...] = (exp.EQ, exp.NEQ)
_MIRRORED: dict[type[Node], str] = {exp.GT: "lt", exp.GTE: "lte"}
_LITERALS: tuple[type[Node], ...] = (exp.Literal, exp.Boolean, exp.HexString, exp.Placeholder, exp.Parameter)
_TRANSPARENT: tuple[type[Node], ...] = (exp.Paren, exp.Alias)
_UNSEEN = {"alias", "big_int"}  # arguments that say nothing about the strategy


class TooDeep(Exception):  # noqa: N818
    """A syntax tree is nested more deeply than `MAX_DEPTH`, long chains of AND, OR, + and * not counted."""


class ExpressionWriter(ABC):
    """Writes expressions; a subclass writes queries."""

    def __init__(self) -> None:
        self._depth = 0

    @abstractmethod
    def query(self, node: Node, outer: Scope) -> Query:
        """A SELECT, set operation or VALUES within the scope `outer`."""

    @abstractmethod
    def named_source(self, name: str, scope: Scope, is_base: bool) -> Source:
        """The common table expression of a name or, if there is none or `is_base` says so, the base table."""

    def write(self, node: Node, scope: Scope) -> str:
        """Any expression.

        Raises:
            TooDeep: If it is nested more deeply than `MAX_DEPTH`.
        """
        self._enter()
        special = _SPECIAL.get(type(node))
        if special is not None:
            text = special(self, node, scope)
        elif isinstance(node, exp.Query):
            text = f"({self.query(node, scope).text})"
        else:
            text = f"{node.key}({','.join(self.arguments(node, scope))})"
        self._depth -= 1
        return text

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooDeep

    def arguments(self, node: Node, scope: Scope, without: frozenset[str] = frozenset()) -> list[str]:
        """The arguments of a node that say something, in the order of their names, but those in `without`."""
        return [
            f"{name}={self._argument(value, scope)}"
            for name, value in sorted(node.args.items())
            if name not in without and _says(name, value)
        ]

    def _argument(self, value: object, scope: Scope) -> str:
        if isinstance(value, list):
            return "[" + ",".join(self._argument(item, scope) for item in value) + "]"
        return self.write(value, scope) if isinstance(value, Node) else str(value).lower()

    def _column(self, node: Node, scope: Scope) -> str:
        name, qualifier = node.name.lower(), node.args.get("table")
        table = qualifier.name.lower() if qualifier is not None else ""
        for up, around in scope.chain():
            found = around.find(name, table)
            if found is not None:
                return up + found
        if not table and node.this.args.get("quoted"):
            return "?"  # SQLite takes a name in double quotes that is no column for a text
        return f"{written(table)}.{written(name)}"

    def _signed(self, node: Node, scope: Scope) -> str:
        text = self.write(node.this, scope)
        return text if text == "?" else f"{node.key}({text})"

    def _collation(self, node: Node, scope: Scope) -> str:
        return self.collated(node, self.write(node.this, scope))

    def collated(self, node: Node, text: str) -> str:
        """What `text` is with the collation of a node; its name may be in quotes, and is no column."""
        return f"collate(expression=var(this={written(node.expression.name.lower())}),this={text})"

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
            within = self._in_source(node.args["field"], scope)
        else:
            within = ",".join(sorted({self.write(item, scope) for item in node.expressions}))
        return f"in({self.write(node.this, scope)};{within})"

    def _in_source(self, node: Node, scope: Scope) -> str:
        """The table of `x IN table`, which sqlglot takes for a column, or the call of a table-valued function."""
        if not isinstance(node, exp.Column):
            return self.write(node, scope)
        return self.named_source(node.name.lower(), scope, is_base=bool(node.table)).label

    def _rows(self, node: Node, scope: Scope) -> str:
        """The rows of VALUES count as a set too."""
        return f"values({','.join(sorted({self.write(row, scope) for row in node.expressions}))})"

    def _exists(self, node: Node, scope: Scope) -> str:
        """What EXISTS selects says nothing, unless an aggregate makes one row of many."""
        query = node.this
        if isinstance(query, exp.Select) and not query.args.get("group") and not any(map(_computes, query.expressions)):
            query = query.copy()
            query.set("expressions", [exp.Star()])
        return f"exists({self.query(query, scope).text})"

    def _window(self, node: Node, scope: Scope) -> str:
        return f"window({self.write(node.this, scope)};{self.window_body(node, scope)})"

    def window_body(self, node: Node, scope: Scope) -> str:
        """A window's definition; one that refers to a named window holds that one's definition."""
        named = node.args.get("alias")
        known = [windows.windows.get(named.name.lower(), "") for _, windows in scope.chain()] if named else []
        own = {name: node.args.get(name) for name in ("partition_by", "order", "spec")}
        parts = [f"{name}={self._argument(value, scope)}" for name, value in own.items() if value]
        return ";".join([*(text for text in known if text), *parts])


_SPECIAL: dict[type[Node], Callable[[ExpressionWriter, Node, Scope], str]] = {
    exp.Column: ExpressionWriter._column,
    exp.Identifier: lambda _, node, __: written(node.name.lower()),
    exp.Null: lambda *_: "null",
    exp.Neg: ExpressionWriter._signed,
    UnaryPlus: ExpressionWriter._signed,
    exp.Collate: ExpressionWriter._collation,
    exp.In: ExpressionWriter._in,
    exp.Exists: ExpressionWriter._exists,
    exp.Window: ExpressionWriter._window,
    exp.Values: ExpressionWriter._rows,
    **dict.fromkeys(_TRANSPARENT, lambda writer, node, scope: writer.write(node.this, scope)),
    **dict.fromkeys(_LITERALS, lambda *_: "?"),
    **dict.fromkeys(_COMMUTATIVE, ExpressionWriter._commutative),
    **dict.fromkeys(_SYMMETRIC, ExpressionWriter._symmetric),
    **dict.fromkeys(_MIRRORED, ExpressionWriter._mirrored),
}


def _says(name: str, value: object) -> bool:
    return name not in _UNSEEN and not name.startswith("_") and value is not None and value is not False and value != []


def _computes(projection: Node) -> bool:
    return projection.find(exp.Query) is not None or any(map(is_aggregate, projection.walk()))


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
