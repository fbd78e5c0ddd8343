"""Random schemas: a fresh one for every demonstration, and most of the training databases."""

from __future__ import annotations

import random
from dataclasses import replace

from datamodules.pocketsql.schema_text import Column, PocketSchema, Table
from datamodules.pocketsql.words import distinct_names, word

CATEGORY_VALUES = 4
_PLAIN_KEYS = ("id", "id", "id", "id", "code", "number_of")


def random_schema(rng: random.Random) -> PocketSchema:
    """Two to four tables: an entity, a table that links to it, often a second entity, sometimes a bystander."""
    has_other = rng.random() < 0.8
    entity_names = distinct_names(rng, 4)
    entities = [_entity(name, rng) for name in entity_names[: 2 if has_other else 1]]
    link = _link(entity_names[2], entities, rng)
    tables = [*entities, link]
    if rng.random() < 0.25:
        tables.append(_entity(entity_names[3], rng))
    if rng.random() < 0.3:
        rng.shuffle(tables)
    return PocketSchema("random", tuple(tables))


def random_schemas(count: int, seed: int) -> dict[str, PocketSchema]:
    """`count` random schemas by name.

    Args:
        count: How many.
        seed: Of the benchmark; schema `index` depends on it and on `index` alone.
    """
    return {name: _named(name, seed) for name in (f"random_{index:03d}" for index in range(count))}


def _named(name: str, seed: int) -> PocketSchema:
    rng = random.Random(f"pocketsql-schema:{seed}:{name}")
    drawn = iter(lambda: random_schema(rng), None)
    # In a demonstration, which nobody executes, two columns of a table may have the same name; here SQLite refuses.
    return replace(next(schema for schema in drawn if _can_exist(schema)), name=name)


def _can_exist(schema: PocketSchema) -> bool:
    groups = [[table.name for table in schema.tables]]
    groups += [[column.name for column in table.columns] for table in schema.tables]
    return all(len(set(names)) == len(names) for names in groups)


def _plural(name: str) -> str:
    return name if name.endswith("s") else f"{name}s"


def _entity(name: str, rng: random.Random) -> Table:
    title, category, number = distinct_names(rng, 3)
    if rng.random() < 0.4:
        title = rng.choice(("name", "title", "label"))
    values = tuple(word(rng) for _ in range(CATEGORY_VALUES))
    columns = (
        Column(rng.choice(_PLAIN_KEYS[:5]), "key"),
        Column(title, "name"),
        Column(category, "category", values),
        Column(number, "number"),
    )
    return Table(_plural(name) if rng.random() < 0.7 else name, columns)


def _link(name: str, entities: list[Table], rng: random.Random) -> Table:
    columns = [_reference(entity, rng) for entity in entities]
    used = {column.name for column in columns}
    number = next(fresh for fresh in distinct_names(rng, len(used) + 1) if fresh not in used)
    columns.append(Column(number, "number"))
    if len(entities) == 1:
        # A table with one foreign key is an entity of its own more often than not: departments and employees.
        title, category = distinct_names(rng, 2)
        values = tuple(word(rng) for _ in range(CATEGORY_VALUES))
        columns = [Column(title, "name"), Column(category, "category", values), columns[1], columns[0]]
    if len(entities) == 1 or rng.random() < 0.35:
        columns.insert(0, Column("id", "key"))
    return Table(_plural(name) if rng.random() < 0.7 else name, tuple(columns))


def _reference(entity: Table, rng: random.Random) -> Column:
    """A foreign key, named after its table or by a word that tells nothing about it."""
    style = rng.random()
    singular = entity.name.removesuffix("s")
    if style < 0.4:
        return Column(f"{singular}_id", "reference", references=entity.name)
    if style < 0.6:
        return Column(singular if singular != entity.name else f"the_{singular}", "reference", references=entity.name)
    suffix = rng.choice(("", "_by", "_id", "_with", "_from"))
    return Column(f"{word(rng)}{suffix}", "reference", references=entity.name)
