"""Writing a schema down, and the order in which it loses parts when it is too long for a prompt.

Least related means: shares least with the question, the evidence and the parent query (`relevance.py`); among equals,
the last of the schema goes first. In this order, one thing at a time, until the prompt fits:

1. sample values, of the least related column first;
2. descriptions, likewise;
3. columns that share no word with the question and are no part of a primary or foreign key;
4. whole tables, the least related first, up to the last one;
5. the other columns that are no part of a key.

Keys thus stay as long as their table does, because joins need them. What columns and tables are missing is said in the
schema itself, so that the model does not take it for complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from elite_lightning.domains.sql.ddl import Column, Table, column_line, key_columns, quoted
from elite_lightning.domains.sql.descriptions import Description
from elite_lightning.domains.sql.relevance import relevance

KINDS = ("sample values", "descriptions", "columns", "tables")


class Cut(NamedTuple):
    """One thing to leave out: what kind of thing, of which table and column; a whole table has no column."""

    kind: str
    table: str
    column: str = ""


@dataclass(frozen=True)
class DescribedSchema:
    """All that a prompt can say about one database.

    Args:
        tables: Its tables in the order of their creation.
        descriptions: What columns are called and hold, by table and column in lower case; columns may be missing.
    """

    tables: tuple[Table, ...]
    descriptions: Mapping[tuple[str, str], Description]

    def described(self, table: str, column: str) -> Description:
        """The column's description, with empty texts where there is none."""
        return self.descriptions.get((table.lower(), column.lower()), Description("", ""))


def cuts_in_order(schema: DescribedSchema, question: str) -> list[Cut]:
    """All cuts, the one that hurts least first; any number of them from the front may be made.

    Args:
        schema: The schema.
        question: The question and whatever else tells which parts matter.
    """
    # From the last on, so that the stable sorts below put the last of equals first.
    pairs = [(table.name, column) for table in schema.tables for column in table.columns][::-1]
    names = {(table.name, ""): [table.name] for table in schema.tables}
    names |= {(t, column.name): [column.name, schema.described(t, column.name).name] for t, column in pairs}
    scores = relevance(names, question)
    totals = dict.fromkeys((table.name for table in schema.tables), 0.0)
    for (table, _), score in scores.items():
        totals[table] += score
    backwards = [table.name for table in schema.tables][::-1]
    tables = sorted(backwards, key=lambda name: totals[name])
    columns = sorted(pairs, key=lambda pair: (scores[pair[0], pair[1].name], totals[pair[0]]))
    keys = key_columns(schema.tables)
    loose = [pair for pair in columns if (pair[0].lower(), pair[1].name.lower()) not in keys]
    unrelated = [pair for pair in loose if scores[pair[0], pair[1].name] == 0]
    related = [pair for pair in loose if scores[pair[0], pair[1].name] > 0]
    described = [(t, column) for t, column in columns if schema.described(t, column.name).text]
    return [
        *_of("sample values", [(t, column) for t, column in columns if column.values]),
        *_of("descriptions", described),
        *_of("columns", unrelated),
        *(Cut("tables", name) for name in tables[:-1]),
        *_of("columns", related),
    ]


def _of(kind: str, pairs: Iterable[tuple[str, Column]]) -> list[Cut]:
    return [Cut(kind, table, column.name) for table, column in pairs]


def schema_ddl(schema: DescribedSchema, cuts: Collection[Cut] = (), description_characters: int = 200) -> str:
    """The schema as CREATE TABLE statements, without what is cut.

    Args:
        schema: The schema.
        cuts: What is left out.
        description_characters: Longer descriptions end there, with an ellipsis.
    """
    left_out = frozenset(cuts)
    shown = [table for table in schema.tables if Cut("tables", table.name) not in left_out]
    parts = [_table_ddl(schema, table, shown, left_out, description_characters) for table in shown]
    missing = len(schema.tables) - len(shown)
    return "\n".join([*parts, f"-- {missing} more tables"] if missing else parts)


def _table_ddl(
    schema: DescribedSchema, table: Table, shown: list[Table], left_out: frozenset[Cut], characters: int
) -> str:
    names = {other.name.lower() for other in shown}
    columns = [column for column in table.columns if Cut("columns", table.name, column.name) not in left_out]
    key = table.primary_key
    entries = []
    for column in columns:
        reachable = column.references is not None and column.references[0].lower() in names
        note = _note(schema, table, column, left_out, characters)
        entries.append((column_line(column, key == (column.name,), reachable), note))
    if len(key) > 1:
        entries.append((f"PRIMARY KEY ({', '.join(map(quoted, key))})", ""))
    lines = [
        f"  {text}{',' if place < len(entries) else ''}{f' -- {note}' if note else ''}"
        for place, (text, note) in enumerate(entries, start=1)
    ]
    if missing := len(table.columns) - len(columns):
        lines.append(f"  -- {missing} more columns")
    return "\n".join([f"CREATE TABLE {quoted(table.name)} (", *lines, ");"])


def _note(schema: DescribedSchema, table: Table, column: Column, left_out: frozenset[Cut], characters: int) -> str:
    """The comment behind a column: its description and sample values."""
    parts = []
    text = schema.described(table.name, column.name).text
    if text and Cut("descriptions", table.name, column.name) not in left_out:
        parts.append(text if len(text) <= characters else text[:characters] + "...")
    if column.values and Cut("sample values", table.name, column.name) not in left_out:
        parts.append("e.g. " + ", ".join(column.values))
    return "; ".join(parts)
