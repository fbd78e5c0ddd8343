"""PocketSQL's question families: what each asks, and the truly different ways to answer it in SQL.

A family is a function from roles, a projection and a filter to the slots of its phrasings and its solutions,
the most usual one first. All SQL is written with a space around every token, so that a byte-level tokenizer
writes a name alike everywhere (see `elite_lightning.domains.sql.prompts`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from datamodules.pocketsql.schema_text import Roles

LARGEST_NUMBER = 40


@dataclass(frozen=True, slots=True)
class Filter:
    """An extra condition on the entity, such as `city = 'oslo'`; no column means no condition."""

    column: str = ""
    operator: str = ""
    literal: str = ""

    def on(self, prefix: str = "") -> str:
        """The condition as SQL, its column behind `prefix`; empty without a column."""
        return f"{prefix}{self.column} {self.operator} {self.literal}" if self.column else ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question's slots and its candidate solutions, the family's most usual one first."""

    slots: dict[str, str]
    solutions: tuple[str, ...]
    ordered: bool = False


Family = Callable[[Roles, tuple[str, ...], Filter, random.Random], Draft]


def where(*conditions: str) -> str:
    """A WHERE clause of the conditions that are not empty, with a leading space; empty if none is left."""
    given = [condition for condition in conditions if condition]
    return " WHERE " + " AND ".join(given) if given else ""


def columns(projection: tuple[str, ...], prefix: str = "") -> str:
    """The projection as a SELECT list."""
    return " , ".join(prefix + column for column in projection)


def number_near(rng: random.Random, low: int, high: int) -> int:
    """A literal for a condition on a number."""
    return rng.randint(low, high)


def category_literal(rng: random.Random, values: tuple[str, ...]) -> str:
    """A category's value as a SQL string literal."""
    return f"'{rng.choice(values)}'"


@dataclass(frozen=True, slots=True)
class Direction:
    """Highest or lowest, in words and in SQL."""

    word: str
    order: str
    reverse: str
    function: str
    beats: str
    loses: str


HIGHEST = Direction("highest", "DESC", "ASC", "MAX", ">", "<")
LOWEST = Direction("lowest", "ASC", "DESC", "MIN", "<", ">")


def direction(rng: random.Random) -> Direction:
    """One of the two directions."""
    return HIGHEST if rng.random() < 0.5 else LOWEST


def without(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity that no link row refers to."""
    del rng
    return Draft(
        {"L": r.link},
        (
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} NOT IN ( SELECT {r.link_key} FROM {r.link} )", f.on()),
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 "
            f"LEFT JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
            + where(f"t2. {r.link_key} IS NULL", f.on("t1. ")),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(f"NOT EXISTS ( SELECT 1 FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( SELECT {r.key} FROM {r.entity} EXCEPT SELECT {r.link_key} FROM {r.link} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(f"( SELECT COUNT ( * ) FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} ) = 0", f.on()),
        ),
    )


def extreme(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """The row of the entity with the largest or smallest number."""
    d = direction(rng)
    number = r.number
    return Draft(
        {"word": d.word, "num": number},
        (
            f"SELECT {columns(p)} FROM {r.entity}{where(f.on())} ORDER BY {number} {d.order} LIMIT 1",
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{number} = ( SELECT {d.function} ( {number} ) FROM {r.entity}{where(f.on())} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(
                f"{number} IS NOT NULL",
                f"NOT EXISTS ( SELECT 1 FROM {r.entity} AS t2"
                + where(f"t2. {number} {d.beats} t1. {number}", f.on("t2. "))
                + " )",
                f.on(),
            ),
            f"SELECT {columns(p)} FROM ( SELECT * , RANK ( ) OVER ( ORDER BY {number} {d.order} ) AS r FROM {r.entity}"
            f"{where(f.on())} ) WHERE r = 1",
            f"WITH c AS ( SELECT {d.function} ( {number} ) AS m FROM {r.entity}{where(f.on())} ) "
            f"SELECT {columns(p)} FROM {r.entity} JOIN c ON {number} = m{where(f.on())}",
        ),
    )


COUNT_WORDS = {">": "more than", ">=": "at least", "=": "exactly"}


def counted(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity with so many link rows."""
    operator = rng.choice(list(COUNT_WORDS))
    test = f"{operator} {number_near(rng, 1, 4)}"
    groups = f"SELECT {r.link_key} , COUNT ( * ) AS m FROM {r.link} GROUP BY {r.link_key}"
    return Draft(
        {"L": r.link, "test": f"{COUNT_WORDS[operator]} {test.split()[1]}"},
        (
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
            f"{where(f.on('t1. '))} GROUP BY t1. {r.key} HAVING COUNT ( * ) {test}",
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(
                f"{r.key} IN ( SELECT {r.link_key} FROM {r.link} GROUP BY {r.link_key} HAVING COUNT ( * ) {test} )",
                f.on(),
            ),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(f"( SELECT COUNT ( * ) FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} ) {test}", f.on()),
            f"WITH c AS ( {groups} ) SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 "
            f"JOIN c ON c. {r.link_key} = t1. {r.key}{where(f'c. m {test}', f.on('t1. '))}",
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN ( {groups} ) AS c "
            f"ON c. {r.link_key} = t1. {r.key}{where(f'c. m {test}', f.on('t1. '))}",
        ),
    )


def both(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity with a link row above one bound and a link row below another."""
    high, low = number_near(rng, 22, 36), number_near(rng, 5, 18)
    v = r.link_number
    keys_above = f"SELECT {r.link_key} FROM {r.link} WHERE {v} > {high}"
    keys_below = f"SELECT {r.link_key} FROM {r.link} WHERE {v} < {low}"
    matching = f"SELECT 1 FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} AND t2. {v}"
    joined = f"FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
    return Draft(
        {"L": r.link, "val": v, "x": str(high), "y": str(low)},
        (
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( {keys_above} )", f"{r.key} IN ( {keys_below} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( {keys_above} INTERSECT {keys_below} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(f"EXISTS ( {matching} > {high} )", f"EXISTS ( {matching} < {low} )", f.on()),
            f"SELECT DISTINCT {columns(p, 't1. ')} {joined} JOIN {r.link} AS t3 ON t3. {r.link_key} = t1. {r.key}"
            + where(f"t2. {v} > {high}", f"t3. {v} < {low}", f.on("t1. ")),
            f"SELECT {columns(p, 't1. ')} {joined}{where(f.on('t1. '))} GROUP BY t1. {r.key} "
            f"HAVING MAX ( t2. {v} ) > {high} AND MIN ( t2. {v} ) < {low}",
        ),
    )


def linked(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity that are linked to a row of the other entity with a category."""
    value = category_literal(rng, r.other_categories)
    joined = f"{r.link} AS t2 JOIN {r.other} AS t3 ON t3. {r.other_key} = t2. {r.other_reference}"
    chain = (
        f"FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key} "
        f"JOIN {r.other} AS t3 ON t3. {r.other_key} = t2. {r.other_reference}"
    )
    test = f"t3. {r.other_category} = {value}"
    return Draft(
        {"L": r.link, "O": r.other, "ocat": r.other_category, "lit": value},
        (
            f"SELECT DISTINCT {columns(p, 't1. ')} {chain}{where(test, f.on('t1. '))}",
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(
                f"{r.key} IN ( SELECT {r.link_key} FROM {r.link} WHERE {r.other_reference} IN "
                f"( SELECT {r.other_key} FROM {r.other} WHERE {r.other_category} = {value} ) )",
                f.on(),
            ),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(f"EXISTS ( SELECT 1 FROM {joined} WHERE t2. {r.link_key} = t1. {r.key} AND {test} )", f.on()),
            f"WITH c AS ( SELECT t2. {r.link_key} FROM {joined} WHERE {test} ) SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( SELECT {r.link_key} FROM c )", f.on()),
            f"SELECT {columns(p, 't1. ')} {chain}{where(test, f.on('t1. '))} GROUP BY t1. {r.key}",
        ),
    )


def average(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity whose number lies above or below the average of all."""
    word, sign = rng.choice((("above", ">"), ("below", "<")))
    number = r.number
    mean = f"SELECT AVG ( {number} ) AS m FROM {r.entity}"
    return Draft(
        {"word": word, "num": number},
        (
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{number} {sign} ( SELECT AVG ( {number} ) FROM {r.entity} )", f.on()),
            f"WITH c AS ( {mean} ) SELECT {columns(p)} FROM {r.entity} JOIN c ON {number} {sign} m{where(f.on())}",
            f"SELECT {columns(p)} FROM {r.entity} JOIN ( {mean} ) ON {number} {sign} m{where(f.on())}",
            f"SELECT {columns(p)} FROM ( SELECT * , AVG ( {number} ) OVER ( ) AS m FROM {r.entity} )"
            + where(f"{number} {sign} m", f.on()),
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN {r.entity} AS t2{where(f.on('t1. '))} "
            f"GROUP BY t1. {r.key} HAVING t1. {number} {sign} AVG ( t2. {number} )",
        ),
    )


def either(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity with a large number or a category."""
    del f
    bound, value = number_near(rng, 10, 32), category_literal(rng, r.categories)
    start = f"SELECT {columns(p)} FROM {r.entity}"
    large, member = f"{r.number} > {bound}", f"{r.category} = {value}"
    return Draft(
        {"num": r.number, "x": str(bound), "cat": r.category, "lit": value},
        (
            f"{start} WHERE {large} OR {member}",
            f"{start} WHERE {large} UNION {start} WHERE {member}",
            f"{start} WHERE CASE WHEN {large} THEN 1 WHEN {member} THEN 1 ELSE 0 END = 1",
            f"{start} WHERE {r.key} IN ( SELECT {r.key} FROM {r.entity} WHERE {large} ) "
            f"OR {r.key} IN ( SELECT {r.key} FROM {r.entity} WHERE {member} )",
        ),
    )


def extreme_in_category(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """For each category the rows of the entity with its largest or smallest number."""
    del f
    d = direction(rng)
    number, category = r.number, r.category
    start = f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1"
    rival = f"t2. {category} = t1. {category} AND t2. {number} {d.beats} t1. {number}"
    known = f"t1. {number} IS NOT NULL AND t1. {category} IS NOT NULL"
    return Draft(
        {"word": d.word, "num": number, "cat": category},
        (
            f"{start} WHERE t1. {number} = ( SELECT {d.function} ( t2. {number} ) FROM {r.entity} AS t2 "
            f"WHERE t2. {category} = t1. {category} )",
            f"SELECT {columns(p)} FROM ( SELECT * , RANK ( ) OVER ( PARTITION BY {category} "
            f"ORDER BY {number} {d.order} ) AS r FROM {r.entity} "
            f"WHERE {category} IS NOT NULL AND {number} IS NOT NULL ) WHERE r = 1",
            f"{start} WHERE {known} AND NOT EXISTS ( SELECT 1 FROM {r.entity} AS t2 WHERE {rival} )",
            f"WITH c AS ( SELECT {category} , {d.function} ( {number} ) AS m FROM {r.entity} GROUP BY {category} ) "
            f"{start} JOIN c ON c. {category} = t1. {category} AND c. m = t1. {number}",
            f"{start} LEFT JOIN {r.entity} AS t2 ON {rival} WHERE t2. {r.key} IS NULL AND {known}",
        ),
    )


def every(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity with link rows, all of them above a bound."""
    bound, v = number_near(rng, 3, 14), r.link_number
    keys = f"SELECT {r.link_key} FROM {r.link}"
    return Draft(
        {"L": r.link, "val": v, "x": str(bound)},
        (
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
            f"{where(f.on('t1. '))} GROUP BY t1. {r.key} HAVING MIN ( t2. {v} ) > {bound}",
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( {keys} )", f"{r.key} NOT IN ( {keys} WHERE {v} <= {bound} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( {keys} EXCEPT {keys} WHERE {v} <= {bound} )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(
                f"( SELECT MIN ( {v} ) FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} ) > {bound}", f.on()
            ),
            f"WITH c AS ( SELECT {r.link_key} , MIN ( {v} ) AS m FROM {r.link} GROUP BY {r.link_key} ) "
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN c ON c. {r.link_key} = t1. {r.key}"
            + where(f"c. m > {bound}", f.on("t1. ")),
        ),
    )


def second(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """The row of the entity with the second largest or second smallest number."""
    del f
    d = direction(rng)
    number, entity = r.number, r.entity
    start = f"SELECT {columns(p)} FROM {entity}"
    return Draft(
        {"word": d.word, "num": number},
        (
            f"{start} ORDER BY {number} {d.order} LIMIT 1 OFFSET 1",
            f"{start} WHERE {number} = ( SELECT {d.function} ( {number} ) FROM {entity} "
            f"WHERE {number} {d.loses} ( SELECT {d.function} ( {number} ) FROM {entity} ) )",
            f"{start} AS t1 WHERE ( SELECT COUNT ( * ) FROM {entity} AS t2 "
            f"WHERE t2. {number} {d.beats} t1. {number} ) = 1",
            f"SELECT {columns(p)} FROM ( SELECT * , RANK ( ) OVER ( ORDER BY {number} {d.order} ) AS r FROM {entity} ) "
            "WHERE r = 2",
            f"WITH c AS ( SELECT * FROM {entity} ORDER BY {number} {d.order} LIMIT 2 ) "
            f"SELECT {columns(p)} FROM c ORDER BY {number} {d.reverse} LIMIT 1",
        ),
    )


def crowded_category(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Categories with at least so many rows of the entity."""
    del p, f
    bound, category, entity = number_near(rng, 2, 5), r.category, r.entity
    groups = f"SELECT {category} , COUNT ( * ) AS m FROM {entity} WHERE {category} IS NOT NULL GROUP BY {category}"
    return Draft(
        {"cat": category, "E": entity, "n": str(bound)},
        (
            f"SELECT {category} FROM {entity} WHERE {category} IS NOT NULL GROUP BY {category} "
            f"HAVING COUNT ( * ) >= {bound}",
            f"SELECT {category} FROM ( {groups} ) WHERE m >= {bound}",
            f"WITH c AS ( {groups} ) SELECT {category} FROM c WHERE m >= {bound}",
            f"SELECT DISTINCT {category} FROM {entity} AS t1 WHERE ( SELECT COUNT ( * ) FROM {entity} AS t2 "
            f"WHERE t2. {category} = t1. {category} ) >= {bound}",
        ),
    )


def some(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity with at least one link row above a bound."""
    bound, v = number_near(rng, 18, 36), r.link_number
    joined = f"FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
    keys = f"SELECT {r.link_key} FROM {r.link} WHERE {v} > {bound}"
    return Draft(
        {"L": r.link, "val": v, "x": str(bound)},
        (
            f"SELECT {columns(p)} FROM {r.entity}{where(f'{r.key} IN ( {keys} )', f.on())}",
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(
                f"EXISTS ( SELECT 1 FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} AND t2. {v} > {bound} )",
                f.on(),
            ),
            f"SELECT DISTINCT {columns(p, 't1. ')} {joined}{where(f't2. {v} > {bound}', f.on('t1. '))}",
            f"WITH c AS ( {keys} ) SELECT {columns(p)} FROM {r.entity}"
            + where(f"{r.key} IN ( SELECT {r.link_key} FROM c )", f.on()),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(
                f"( SELECT MAX ( {v} ) FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} ) > {bound}", f.on()
            ),
        ),
    )


def between(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity whose number lies within two bounds, both included."""
    del f
    low = number_near(rng, 3, 20)
    high = low + number_near(rng, 8, 16)
    start, number = f"SELECT {columns(p)} FROM {r.entity}", r.number
    return Draft(
        {"num": number, "x": str(low), "y": str(high)},
        (
            f"{start} WHERE {number} BETWEEN {low} AND {high}",
            f"{start} WHERE {number} >= {low} INTERSECT {start} WHERE {number} <= {high}",
            f"{start} WHERE NOT ( {number} < {low} OR {number} > {high} )",
            f"{start} WHERE CASE WHEN {number} < {low} THEN 0 WHEN {number} <= {high} THEN 1 ELSE 0 END = 1",
            f"SELECT {columns(p)} FROM ( SELECT * FROM {r.entity} WHERE {number} >= {low} ) WHERE {number} <= {high}",
        ),
    )


def busiest(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """The row of the entity with the most link rows."""
    del rng, f
    joined = f"FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
    groups = f"SELECT {r.link_key} , COUNT ( * ) AS m FROM {r.link} GROUP BY {r.link_key}"
    return Draft(
        {"L": r.link},
        (
            f"SELECT {columns(p, 't1. ')} {joined} GROUP BY t1. {r.key} ORDER BY COUNT ( * ) DESC LIMIT 1",
            f"SELECT {columns(p)} FROM {r.entity} WHERE {r.key} IN ( SELECT {r.link_key} FROM {r.link} "
            f"GROUP BY {r.link_key} ORDER BY COUNT ( * ) DESC LIMIT 1 )",
            f"SELECT {columns(p)} FROM {r.entity} AS t1 ORDER BY ( SELECT COUNT ( * ) FROM {r.link} AS t2 "
            f"WHERE t2. {r.link_key} = t1. {r.key} ) DESC LIMIT 1",
            f"WITH c AS ( {groups} ) SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 "
            f"JOIN c ON c. {r.link_key} = t1. {r.key} WHERE c. m = ( SELECT MAX ( m ) FROM c )",
        ),
    )


def total(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity whose link rows add up to more than a bound."""
    bound, v = number_near(rng, 25, 60), r.link_number
    groups = f"SELECT {r.link_key} , SUM ( {v} ) AS m FROM {r.link} GROUP BY {r.link_key}"
    return Draft(
        {"L": r.link, "val": v, "x": str(bound)},
        (
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN {r.link} AS t2 ON t2. {r.link_key} = t1. {r.key}"
            f"{where(f.on('t1. '))} GROUP BY t1. {r.key} HAVING SUM ( t2. {v} ) > {bound}",
            f"SELECT {columns(p)} FROM {r.entity}"
            + where(
                f"{r.key} IN ( SELECT {r.link_key} FROM {r.link} GROUP BY {r.link_key} HAVING SUM ( {v} ) > {bound} )",
                f.on(),
            ),
            f"SELECT {columns(p)} FROM {r.entity} AS t1"
            + where(
                f"( SELECT SUM ( {v} ) FROM {r.link} AS t2 WHERE t2. {r.link_key} = t1. {r.key} ) > {bound}", f.on()
            ),
            f"WITH c AS ( {groups} ) SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 "
            f"JOIN c ON c. {r.link_key} = t1. {r.key}{where(f'c. m > {bound}', f.on('t1. '))}",
            f"SELECT {columns(p, 't1. ')} FROM {r.entity} AS t1 JOIN ( {groups} ) AS c "
            f"ON c. {r.link_key} = t1. {r.key}{where(f'c. m > {bound}', f.on('t1. '))}",
        ),
    )


def alike(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """Rows of the entity that share the category of the row with a given key, that row included."""
    del f
    key = number_near(rng, 1, 12)
    category, entity = r.category, r.entity
    wanted = f"SELECT {category} FROM {entity} WHERE {r.key} = {key}"
    return Draft(
        {"cat": category, "key": r.key, "n": str(key)},
        (
            f"SELECT {columns(p)} FROM {entity} WHERE {category} = ( {wanted} )",
            f"SELECT {columns(p, 't1. ')} FROM {entity} AS t1 JOIN {entity} AS t2 ON t2. {category} = t1. {category} "
            f"WHERE t2. {r.key} = {key}",
            f"SELECT {columns(p)} FROM {entity} WHERE {category} IN ( {wanted} )",
            f"SELECT {columns(p)} FROM {entity} AS t1 WHERE EXISTS ( SELECT 1 FROM {entity} AS t2 "
            f"WHERE t2. {r.key} = {key} AND t2. {category} = t1. {category} )",
            f"WITH c AS ( {wanted} ) SELECT {columns(p, 't1. ')} FROM {entity} AS t1 "
            f"JOIN c ON c. {category} = t1. {category}",
        ),
    )


def leaders(r: Roles, p: tuple[str, ...], f: Filter, rng: random.Random) -> Draft:
    """The first rows of the entity in the order of its number; the answer's order counts."""
    del f
    d, count, number, entity = direction(rng), number_near(rng, 2, 4), r.number, r.entity
    return Draft(
        {"word": d.word, "num": number, "n": str(count)},
        (
            f"SELECT {columns(p)} FROM {entity} ORDER BY {number} {d.order} LIMIT {count}",
            f"SELECT {columns(p)} FROM ( SELECT * , RANK ( ) OVER ( ORDER BY {number} {d.order} ) AS r FROM {entity} ) "
            f"WHERE r <= {count} ORDER BY r",
            f"SELECT {columns(p)} FROM {entity} AS t1 WHERE ( SELECT COUNT ( * ) FROM {entity} AS t2 "
            f"WHERE t2. {number} {d.beats} t1. {number} ) < {count} ORDER BY {number} {d.order}",
            f"WITH c AS ( SELECT * FROM {entity} ORDER BY {number} {d.order} LIMIT {count} ) "
            f"SELECT {columns(p)} FROM c ORDER BY {number} {d.order}",
        ),
        ordered=True,
    )


FAMILIES: dict[str, Family] = {
    family.__name__: family
    for family in (
        without,
        extreme,
        counted,
        both,
        linked,
        average,
        either,
        extreme_in_category,
        every,
        second,
        crowded_category,
        some,
        between,
        busiest,
        total,
        alike,
        leaders,
    )
}

# Families whose solutions have a place for an extra condition on the entity.
FILTERABLE = frozenset({"without", "extreme", "counted", "both", "linked", "average", "every", "some", "total"})
# Families that need a second entity behind the link.
NEEDS_OTHER = frozenset({"linked"})
