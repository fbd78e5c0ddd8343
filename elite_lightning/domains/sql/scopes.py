"""Which source a column belongs to: the names of each SELECT, and of those around it.

Sources and columns are written without aliases: a base table by its name, a common table expression or derived table by
its position, its columns by theirs; `^` says how many SELECTs further out. Two sources of one name in one FROM are told
apart by their order. A base table has a row number too, under the three names that SQLite gives it
(https://www.sqlite.org/rowidtable.html), unless a column has that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

ROW_NUMBERS = frozenset({"rowid", "oid", "_rowid_"})
BASE_TABLE = "table "  # what the label of a base table begins with


def written(name: str) -> str:
    """A name as it stands in canonical text: in quotes if it could be taken for anything else."""
    return name if name.isidentifier() or name in ("", "*") else repr(name)


class Source(NamedTuple):
    """One thing that FROM names: how its columns are written, and whether there may be more of them."""

    label: str
    columns: dict[str, str]
    open: bool

    def column(self, name: str) -> str:
        """A column of this source; whether it has one of that name is for the caller to know."""
        position = self.columns.get(name)
        if position is None:
            position = "rowid" if self.has_row_number(name) else written(name)
        return f"{self.label}.{position}"

    def has_row_number(self, name: str) -> bool:
        """Whether `name` is this source's row number, as far as its columns are known."""
        return name in ROW_NUMBERS and not self.open and self.label.startswith(BASE_TABLE)


class Query(NamedTuple):
    """A query's text and the columns that it offers to the query around it."""

    text: str
    columns: dict[str, str]
    open: bool


@dataclass
class Scope:
    """The names of one SELECT. `aliases` hold the text of the expression that they stand for."""

    parent: Scope | None = None
    sources: dict[str, Source] = field(default_factory=dict)
    ctes: dict[str, Source] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    windows: dict[str, str] = field(default_factory=dict)

    def chain(self) -> Iterator[tuple[str, Scope]]:
        """This scope and those around it, each with a mark for how far up it is."""
        up, scope = "", self
        while True:
            yield up, scope
            if scope.parent is None:
                return
            up, scope = up + "^", scope.parent

    def find(self, name: str, qualifier: str) -> str | None:
        """What a column is called here, or None if nothing here can have it."""
        if qualifier:
            return self.sources[qualifier].column(name) if qualifier in self.sources else None
        for source in self.sources.values():
            if name in source.columns:
                return source.column(name)
        if name in self.aliases:
            return self.aliases[name]
        possible = [source for source in self.sources.values() if source.open or source.has_row_number(name)]
        if len(possible) > 1:
            return f"any.{written(name)}"
        return possible[0].column(name) if possible else None

    def add(self, name: str, base: str, columns: dict[str, str], is_open: bool) -> str:
        """Register a source under its alias; sources of one base are told apart by their order."""
        taken = sum(source.label.rpartition("#")[0] == base for source in self.sources.values())
        label = f"{base}#{taken}"
        self.sources[name or label] = Source(label, columns, is_open)
        return label
