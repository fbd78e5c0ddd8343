"""A one-line notation for PocketSQL's schemas, and the roles that its question families need.

`members(id, name, town{oslo lima}, age#) loans(member>members, days#)` names two tables: `id` is the primary
key, a bare column holds unique names, braces hold a category's values, `#` marks a number and `>` a foreign key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elite_lightning.domains.sql.prompts import ForeignKey, Schema, TableSchema


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what it holds: `key`, `name`, `category`, `number` or `reference`."""

    name: str
    kind: str
    values: tuple[str, ...] = ()
    references: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the generator sees it."""

    name: str
    columns: tuple[Column, ...]

    def first(self, kind: str) -> Column | None:
        """The first column of a kind, or None."""
        return next((column for column in self.columns if column.kind == kind), None)

    def all(self, kind: str) -> list[Column]:
        """All columns of a kind."""
        return [column for column in self.columns if column.kind == kind]

    @property
    def is_entity(self) -> bool:
        """Whether questions can be asked about its rows by name, category and number."""
        return all(self.first(kind) for kind in ("key", "name", "category", "number"))


@dataclass(frozen=True, slots=True)
class PocketSchema:
    """The tables of one PocketSQL database."""

    name: str
    tables: tuple[Table, ...]

    def as_schema(self) -> Schema:
        """The schema as prompts show it."""
        return Schema(tuple(_as_table_schema(table) for table in self.tables))


def _as_table_schema(table: Table) -> TableSchema:
    keys = tuple(ForeignKey(column.name, column.references) for column in table.all("reference"))
    return TableSchema(table.name, tuple(column.name for column in table.columns), keys)


_TABLE = re.compile(r"(\w+)\(([^)]*)\)")
_COLUMN = re.compile(r"(\w+)(?:\{([^}]*)\}|(#)|>(\w+))?$")


def parse_schema(name: str, text: str) -> PocketSchema:
    """Read the notation.

    Raises:
        ValueError: If a column is not in the notation, naming it.
    """
    tables = []
    for table_name, body in _TABLE.findall(text):
        columns = [_parse_column(part.strip(), index) for index, part in enumerate(body.split(","))]
        tables.append(Table(table_name, tuple(columns)))
    return PocketSchema(name, tuple(tables))


def _parse_column(text: str, index: int) -> Column:
    match = _COLUMN.match(text)
    if match is None:
        raise ValueError(f"column {text!r} is not in the notation: name, name{{values}}, name# or name>table")
    name, values, number, references = match.groups()
    if values is not None:
        return Column(name, "category", tuple(values.split()))
    if number:
        return Column(name, "number")
    if references:
        return Column(name, "reference", references=references)
    return Column(name, "key" if index == 0 else "name")


@dataclass(frozen=True, slots=True)
class Roles:
    """Which table and column plays which part in a question.

    The question asks for rows of `entity`; `link` refers to it through `link_key` and holds the number
    `link_number`; where `link` also refers to a second entity, the `other_*` fields name it, else they are empty.
    """

    entity: str
    key: str
    name: str
    category: str
    categories: tuple[str, ...]
    number: str
    link: str
    link_key: str
    link_number: str
    other: str = ""
    other_key: str = ""
    other_reference: str = ""
    other_category: str = ""
    other_categories: tuple[str, ...] = ()


def roles_of(schema: PocketSchema) -> list[Roles]:
    """All ways to give the parts to a schema's tables, in a stable order."""
    by_name = {table.name: table for table in schema.tables}
    found = []
    for entity in schema.tables:
        if not entity.is_entity:
            continue
        for link in schema.tables:
            for reference in link.all("reference"):
                if reference.references == entity.name and link.first("number"):
                    others = [key for key in link.all("reference") if key.references != entity.name]
                    found.append(_roles(entity, link, reference, others[0] if others else None, by_name))
    return found


def _roles(
    entity: Table, link: Table, reference: Column, other_reference: Column | None, by_name: dict[str, Table]
) -> Roles:
    other = by_name[other_reference.references] if other_reference else None
    category = other.first("category") if other else None
    return Roles(
        entity=entity.name,
        key=_name(entity, "key"),
        name=_name(entity, "name"),
        category=_name(entity, "category"),
        categories=entity.all("category")[0].values,
        number=_name(entity, "number"),
        link=link.name,
        link_key=reference.name,
        link_number=_name(link, "number"),
        other=other.name if other else "",
        other_key=_name(other, "key") if other else "",
        other_reference=other_reference.name if other_reference else "",
        other_category=category.name if category else "",
        other_categories=category.values if category else (),
    )


def _name(table: Table, kind: str) -> str:
    column = table.first(kind)
    if column is None:
        raise ValueError(f"table {table.name!r} has no column of kind {kind!r}")
    return column.name
