"""The benchmarks' gold queries, and ways of writing them differently that know nothing of our code or of sqlglot."""

from __future__ import annotations

import itertools
import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Gold(NamedTuple):
    """A query with its benchmark and database file, which some queries lack."""

    benchmark: str
    path: Path | None
    sql: str


def read_golds() -> list[Gold]:
    """All different gold queries beside the repository, in a fixed order."""
    golds = dict.fromkeys(
        Gold(name, path if path is not None and path.is_file() else None, sql) for name, path, sql in _read_all()
    )
    return list(golds)


def _read_all() -> Iterator[tuple[str, Path | None, str]]:
    spider, bird, other = DATA / "spider", DATA / "bird", DATA / "other"
    for name in ("dev.json", "train_spider.json"):
        yield from ((f"spider {name}", _of(spider / "database", x["db_id"]), x["query"]) for x in _json(spider / name))
    for name in ("dev.json", "mini_dev_sqlite.json"):
        yield from ((f"bird {name}", _of(bird / "dev_databases", x["db_id"]), x["SQL"]) for x in _json(bird / name))
    for file in sorted((DATA / "ambiqt" / "benchmark").glob("*/validation.json")):
        for item in _json(file):
            yield f"ambiqt {file.parent.name}", _of(spider / "database", item["db_id"]), item["orig_query"]
            # These two are about perturbed copies of the database, which have to be made first.
            yield from ((f"ambiqt {file.parent.name}", None, item[key]) for key in ("query1", "query2"))
    for file in sorted((other / "ambrosia" / "data").glob("*/*/*/examples.json")):
        for item in _json(file):
            queries = (item[key] for key in sorted(item) if key.startswith("sql_query"))
            yield from (("ambrosia", _of(file.parents[1], file.parent.name), sql) for sql in queries if sql)
    for file in sorted((other / "kaggle-dbqa" / "examples").glob("*.json")):
        yield from (
            ("kaggle-dbqa", _of(other / "kaggle-dbqa" / "databases", x["db_id"]), x["query"]) for x in _json(file)
        )
    for item in _json(other / "spider-dk" / "Spider-DK.json"):
        folder = other / "spider-dk" / "database"
        folder = folder if (folder / item["db_id"]).is_dir() else spider / "database"
        yield "spider-dk", _of(folder, item["db_id"]), item["query"]
    for name, file in (("spider-syn", "spider-syn/dev.json"), ("realistic", "ibm-toolkit/spider-realistic.json")):
        yield from ((name, _of(spider / "database", x["db_id"]), x["query"]) for x in _json(other / file))


def _json(path: Path) -> list[dict[str, str]]:
    return json.loads(path.read_text(encoding="utf-8"))


def _of(folder: Path, database: str) -> Path:
    return folder / database / f"{database}.sqlite"


def columns_read(path: Path, sql: str) -> frozenset[tuple[str, str]] | None:
    """The (table, column) pairs that SQLite says the query reads, or None if SQLite refuses it."""
    seen: set[tuple[str, str]] = set()

    def note(action: int, table: str | None, column: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            seen.add((str(table).lower(), str(column).lower()))
        return sqlite3.SQLITE_OK

    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.set_authorizer(note)
        try:
            connection.execute(f"EXPLAIN {sql}")
        except sqlite3.Error:
            return None
        finally:
            connection.set_authorizer(None)
    return frozenset(seen)


# A lexer of our own for the tests, after https://www.sqlite.org/lang_keywords.html.
_KEYWORDS = (
    "ALL AND AS ASC BETWEEN BY CASE CAST COLLATE CROSS CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP DESC DISTINCT ELSE "
    "END ESCAPE EXCEPT EXISTS FILTER FOLLOWING FROM FULL GLOB GROUP HAVING IN INDEXED INNER INTERSECT IS ISNULL JOIN "
    "LEFT LIKE LIMIT MATCH NATURAL NOT NOTNULL NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION PRECEDING RANGE "
    "RECURSIVE REGEXP RIGHT ROW ROWS SELECT THEN UNBOUNDED UNION USING VALUES WHEN WHERE WINDOW WITH"
)
KEYWORDS = frozenset(_KEYWORDS.split())
_TYPES = {"integer", "int", "real", "float", "text", "date", "datetime", "double", "decimal", "numeric", "varchar"}
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\])
    |(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|<>|!=|==|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[tuple[str, str]]:
    """Kind and text of every token, white space included."""
    return [(str(found.lastgroup), found.group()) for found in _TOKEN.finditer(sql)]


def rewritten(sql: str, names: set[str], rng: random.Random) -> str:
    """Other white space, comments, upper and lower case, and quotes around the names of tables and columns."""
    parts = tokens(sql)
    written = []
    for place, (kind, text) in enumerate(parts):
        follower = next((other for kind, other in parts[place + 1 :] if kind != "space"), "")
        if kind == "space":
            written.append(rng.choice([" ", "\n", "\t ", " /* c */ ", " -- c\n"]))
        elif kind == "word":
            word = rng.choice([text.upper(), text.lower(), text.title()])
            is_name = text.lower() in names and text.upper() not in KEYWORDS and follower != "("
            written.append(_quoted(word, rng) if is_name and rng.random() < 0.5 else word)
        elif kind == "quoted" and text[0] != '"':
            written.append(_quoted(rng.choice([text[1:-1].upper(), text[1:-1].lower()]), rng))
        else:
            written.append(text)
    return "".join(written)


def _quoted(name: str, rng: random.Random) -> str:
    return rng.choice(['"{}"', "[{}]", "`{}`"]).format(name)


def with_other_literals(sql: str, rng: random.Random) -> str:
    """Other texts and numbers; those that may be positions, in GROUP BY and ORDER BY, stay."""
    clauses, clause, written = [], "", []
    for kind, text in tokens(sql):
        word = text.upper()
        if word == "(":
            clauses.append(clause)
            clause = ""
        elif word == ")":
            clause = clauses.pop() if clauses else ""
        elif word in {"SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT"}:
            clause = word
        if kind == "text":
            text = rng.choice(["'zz'", "''", "'it''s'", "'2001-01-01'", "'%a('"])  # noqa: PLW2901
        elif kind == "number" and clause not in {"GROUP", "ORDER"}:
            text = rng.choice(["7", "0", "123"])  # noqa: PLW2901
        written.append(text)
    return "".join(written)


def with_other_aliases(sql: str, names: set[str], rng: random.Random) -> str:
    """Other aliases of tables and columns and other names of common table expressions, unless they are names too."""
    solid = [(kind, text) for kind, text in tokens(sql) if kind != "space"]
    found = {
        text.lower()
        for place, (kind, text) in enumerate(solid)
        if kind == "word" and text.upper() not in KEYWORDS and place > 1 and _is_alias(solid, place)
    } | {text.lower() for place, (kind, text) in enumerate(solid) if kind == "word" and _is_cte(solid, place)}
    functions = {text.lower() for (_, text), (_, behind) in itertools.pairwise(solid) if behind == "("}
    new = {name: f"zz{rng.randrange(10**6)}_{i}" for i, name in enumerate(sorted(found - names - functions - _TYPES))}
    return "".join(new.get(text.lower(), text) if kind == "word" else text for kind, text in tokens(sql))


def _is_alias(solid: list[tuple[str, str]], place: int) -> bool:
    kind, before = solid[place - 1]
    is_name = kind == "quoted" or (kind == "word" and before.upper() not in KEYWORDS)
    return before.upper() == "AS" or (is_name and solid[place - 2][1].upper() in {"FROM", "JOIN", ","})


def _is_cte(solid: list[tuple[str, str]], place: int) -> bool:
    behind = [text.upper() for _, text in solid[place + 1 : place + 3]]
    return behind == ["AS", "("] and solid[place - 1][1].upper() in {"WITH", "RECURSIVE", ","}
