"""Where parsers and SQLite differ: each case with what its key must and must not equal, and bounds on time.

Numbers are those of the collected bug reports on sqlglot with SQLite, by which each was found.
"""

import random
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from elite_lightning.domains.sql.executor import Executor, Failure
from elite_lightning.domains.sql.fallback import fallback_text
from elite_lightning.domains.sql.labeler import APPROACHES, OTHER, label_approach
from elite_lightning.domains.sql.strategy import canonical_text, strategy_key
from elite_lightning.domains.sql.structure import UNPARSED, structure_of

SCHEMA = """
    CREATE TABLE emp(id INT, name TEXT, dept TEXT, sal REAL, hired TEXT, js TEXT);
    INSERT INTO emp VALUES (1, 'Ann', 'x', 9.5, '2021-07-09', '{"k": "v", "n": 2}');
    CREATE TABLE t(id INTEGER PRIMARY KEY, a, b, "order", [a b], "Größe", "x.y", _rowid_, "a,table t#0.b");
    CREATE TABLE _t0(id); CREATE TABLE _t1(id); CREATE TABLE "a b"(id); CREATE TABLE "check-in"(id);
    CREATE INDEX i ON emp(id);
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("hard") / "hard.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SCHEMA)
    return file


@pytest.fixture(scope="module")
def tables(path):
    return Executor().columns(path)


EQUAL = {
    "2 literal in double quotes": [
        """select id from emp where dept = "x" """,
        """select id from emp where dept = 'longer than x'""",
        """select id from emp where "other" = [dept]""",
    ],
    "2 literal in double quotes as argument": [
        """select strftime('%Y', hired), replace(name, 'a', ''), date('now') from emp""",
        """select strftime("%m", hired), replace(name, "b", "c"), date("now") from emp""",
    ],
    "3 CROSS JOIN keeps its ON": [
        "select emp.* from emp cross join t on t.id = emp.id",
        "select e.* from emp e join t on e.id = t.id",
    ],
    "ordinals": [
        "select id, name from emp order by name",
        "select id, name from emp order by 2",
        "select id, name from emp order by (2)",
        "select id, name from emp order by ((+2))",
    ],
    "ordinals with a collation": [
        "select id, name from emp order by name collate nocase",
        "select id, name from emp order by 2 collate nocase",
        "select id, name from emp order by (2 collate nocase)",
    ],
    "ordinals of groups": [
        "select dept, count(*) from emp group by dept",
        "select dept, count(*) from emp group by (1)",
        "select dept as d, count(*) from emp group by +1",
    ],
    "star of the only source": ["select * from emp", "select emp.* from emp", "select e.* from emp as e"],
    "signs of literals": ["select id + 1 from emp", "select id + +1 from emp", "select id + -1 from emp"],
    "7 parentheses": ["select id from emp where ((((((id)))))) = (1)", "select id from emp where id = 1"],
    "8 literals of JSON paths": ["select js -> '$.k' from emp", "select js -> '$[#-1]' from emp"],
    "8 literals in json_extract": [
        "select json_extract(js, '$.k') from emp",
        "select json_extract(js, '$.n[0]') from emp",
    ],
    "9 -> and || from left to right": [
        "select 'a' || js ->> '$.n' from emp",
        "select ('a' || js) ->> '$.n' from emp",
    ],
    "11 hints": [
        "select * from emp where id = 1",
        "select * from emp not indexed where id = 1",
        "select * from emp as e indexed by i where e.id = 1",
    ],
    "13 columns of a recursive CTE": [
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) select sum(i) from n",
        "with recursive m(j) as (select 5 union all select j + 2 from m where j < 9) select sum(m.j) from m",
    ],
    "13 recursion without the word": [
        "with n(i) as (select 1 union all select i + 1 from n where i < 3) select sum(i) from n",
        "with m(j) as (select 5 union all select j + 2 from m where m.j < 9) select sum(j) from m",
    ],
    "17 collation is no column": [
        "select id from emp where name = 'ann' collate nocase",
        """select id from emp where name = 'bob' collate "NOCASE" """,
    ],
    "reference to a later CTE": [
        "with a as (select x from b), b as (select 1 as x) select x from a",
        "with p as (select y from q), q as (select 2 as y) select y from p",
    ],
    "reference to a later source in ON": [
        "select 1 from emp as e join t as u on u.id = v.id join _t0 as v on v.id = e.id",
        "select 1 from emp join t on _t0.id = t.id join _t0 on emp.id = _t0.id",
    ],
    "row number by any name": [
        "select rowid from emp",
        "select emp.oid from emp",
        """select "ROWID" from emp e""",
        "select e._rowid_ from emp as e",
    ],
    "names in any quotes": [
        """select "order", "a b", "Größe", "x.y" from t where id in (select id from "a b")""",
        "select x.[ORDER], [A B], `Größe`, `X.Y` from T as x where Id in (select ID from [A B])",
    ],
    "main is the database": ["select emp.id from emp", "select main.emp.id from main.emp"],
    "rows of VALUES are a set": [
        "select id from emp where id in (values (1), (2))",
        "select id from emp where id in (values (3))",
    ],
    "values alone": ["values (1, 'a'), (2, 'b')", "VALUES (5,'x'), (6,'y')"],
    "table behind IN": ["select id from emp where id in _t0", """select e.id from emp e where e.id in main."_T0" """],
    "operands": [
        "select id from emp where sal * 2 + id > 3 and (dept = 'x' or name <> 'y') and id is not null",
        "select id from emp where id is not null and ('y' != name or dept == 'x') and 7 < id + 5 * sal",
    ],
}

DIFFERENT = {
    "1 CAST and DATE": [
        "select cast(hired as date) from emp",
        "select date(hired) from emp",
        "select cast(hired as datetime) from emp",
        "select datetime(hired) from emp",
        "select cast(hired as text) from emp",
        "select hired from emp",
    ],
    "3 CROSS JOIN with and without ON": [
        "select e.* from emp e cross join t on t.id = e.id",
        "select e.* from emp e cross join t",
        "select e.* from emp e cross join t where t.id = e.id",
        "select e.* from emp e left join t on t.id = e.id",
    ],
    "8 kinds of access to JSON": [
        "select json_extract(js, '$.k') from emp",
        "select js -> '$.k' from emp",
        "select js ->> '$.k' from emp",
        "select json_extract(js, '$.k', '$.n') from emp",
        "select js from emp",
    ],
    "9 -> and ||": ["select ('a' || js) ->> '$.n' from emp", "select 'a' || (js ->> '$.n') from emp"],
    "10 kinds of matching": [
        f"select name from emp where name {operator} 'nn'"
        for operator in ("regexp", "like", "glob", "match", "=", "is")
    ],
    "14 kinds of NOT": [
        "select id from emp where id not in (select null)",
        "select id from emp where not exists (select null)",
        "select id from emp where id in (select null)",
        "select emp.id from emp left join (select null as x) on x = emp.id where x is null",
    ],
    "16 CONCAT and ||": ["select concat(name, null) from emp", "select name || null from emp", "select name from emp"],
    "17 collations": [
        "select id from emp where name = 'ann' collate nocase",
        "select id from emp where name = 'ann' collate rtrim",
        "select id from emp where name = 'ann'",
    ],
    "base tables that are named like generated names": [
        "select id from _t0",
        "select id from _t1",
        "select id from emp",
    ],
    "tables whose names look like syntax": [
        'select id from "a b"',
        'select id from "check-in"',
        "select a b from t",
        'select [a b] from t',
        'select "x.y" from t',
        "select a, b from t",
        'select "a,table t#0.b" from t',
        "select b from t",
    ],
    "a base table and a CTE of its name": [
        "with emp as (select 1 as id) select id from emp",
        "with emp as (select 1 as id) select id from main.emp",
        "with e as (select id from emp) select id from e",
    ],
    "row number and column": [
        "select rowid from t",
        "select _rowid_ from t",
        "select id from t",
        "select 'rowid' from t",
    ],
    "decisions: commas, counts, CASE and IIF": [
        "select count(*) from emp, t where emp.id = t.id",
        "select count(*) from emp join t on emp.id = t.id",
        "select count(t.id) from emp join t on emp.id = t.id",
        "select sum(case when t.id > 1 then 1 else 0 end) from emp join t on emp.id = t.id",
        "select sum(iif(t.id > 1, 1, 0)) from emp join t on emp.id = t.id",
    ],
    "scalar and aggregate functions of one name": [
        "select max(a, b) from t",
        "select max(a) from t",
        "select min(a, b) from t",
    ],
    "ordinals": [
        "select id, name from emp order by (1)",
        "select id, name from emp order by (2)",
        "select id, name from emp order by 1 collate nocase",
        "select id, name from emp order by 2 collate nocase",
        "select id, name from emp order by 2 collate binary",
        "select id, name from emp group by (1)",
        "select id, name from emp group by (2)",
    ],
    "ordinals behind a star": [
        "select *, id from emp order by 1",
        "select *, id from emp order by 2",
        "select emp.*, t.id from emp join t order by 2",
        "select emp.*, t.id from emp join t order by t.id",
    ],
    "affinity": [
        "select id from emp where name = 1",
        "select id from emp where +name = 1",
        "select id from emp where -name = 1",
        "select id from emp order by +name",
        "select id from emp order by name",
    ],
    "order that is kept": [
        "select id, name from emp order by id, name",
        "select name, id from emp order by id, name",
        "select id, name from emp order by name, id",
        "select id, name from emp order by id desc, name",
        "select id, name from emp group by id, name",
        "select id, name from emp group by name, id",
    ],
}  # fmt: skip


@pytest.mark.parametrize("queries", EQUAL.values(), ids=EQUAL)
def test_equal(queries, tables):
    texts = {canonical_text(query, tables) for query in queries}
    assert len(texts) == 1, texts
    assert texts != {None}
    assert len({(label_approach(query, tables), structure_of(query)) for query in queries}) == 1


@pytest.mark.parametrize("queries", DIFFERENT.values(), ids=DIFFERENT)
def test_different(queries, tables):
    texts = [canonical_text(query, tables) for query in queries]
    assert None not in texts
    assert len(set(texts)) == len(queries), texts


def test_nearly_all_of_these_queries_run(path):
    """The tables above are about SQLite: it runs them, but for functions that it may lack."""
    executor = Executor()
    for query in [query for queries in [*EQUAL.values(), *DIFFERENT.values()] for query in queries]:
        got = executor.run(path, query)
        lacking = r"no such function: (regexp|concat)|unable to use function MATCH|malformed JSON"
        assert not isinstance(got, Failure) or re.match(lacking, got.detail, re.IGNORECASE), (query, got)


REPAIRED = [
    "select id from emp where name ilike 'ANN'",
    "select id from emp pivot(sum(id) for dept in ('x'))",
    "select id from emp qualify row_number() over (order by id) = 1",
    "select id::text from emp",
    "select nvl(id, 0) from emp",
    "select id from emp order by id fetch first 1 rows only",
    "select id from emp group by id fetch",
    "select id from emp limit １",  # noqa: RUF001
]


@pytest.mark.parametrize("query", REPAIRED)
def test_what_sqlglot_repairs_is_run_as_it_stands(query, path, tables):
    """6: sqlglot parses these, SQLite refuses them. They have keys, and are wrong."""
    assert isinstance(Executor().run(path, query), Failure)
    assert re.fullmatch("(RAW:)?[0-9a-f]{64}", strategy_key(query, tables))
    assert label_approach(query, tables) in (*APPROACHES, OTHER)


def test_approaches_by_hand_where_sqlglot_misleads(tables):
    cases = {
        "select (select max(rowid) from t) from emp": "scalar_subquery",
        "select (select max(a) from t where a = 'x' collate nocase) from emp": "scalar_subquery",
        'select (select max(a) from t where a = "a text") from emp': "scalar_subquery",
        "select (select max(a) from t where a = sal) from emp": "correlated_subquery",
        "select total(sal) from emp": "aggregate",
        "select max(a, b) from t": "filter",
        "select group_concat(name) from emp": "aggregate",
        "values (1, 2)": "filter",
        "select id from emp where id in _t0": "in_subquery",
        "select a.id from emp a full join t b on a.id = b.id": "outer_join",
    }
    assert {query: label_approach(query, tables) for query in cases} == cases


def test_a_mixed_set_operation_has_no_subquery():
    three = "select id from emp union select id from t intersect select id from emp"
    assert "sub=none set=1" in structure_of(three)
    assert "sub=scalar" in structure_of(three + " where id > (select 1)")


# Texts that sqlglot takes exponential time or endless stack for. SQLite runs the shorter ones.
ENDLESS = {
    "joins": "select 1 from t a0" + "".join(f" join t a{i}" for i in range(1, 40)),
    "left joins": "select 1 from t a0" + "".join(f" left join t a{i}" for i in range(1, 40)),
    "date": "select " + "date(" * 28 + "1" + ")" * 28,
    "json": "select " + "json(" * 28 + "1" + ")" * 28,
    "struct": "select " + "struct(" * 28 + "1" + ")" * 28,
    "parentheses": "select " + "(" * 200 + "1" + ")" * 200,
    "many parentheses": "select " + "(" * 100_000,
    "case": "select " + "case when 1 then " * 200 + "1" + " end" * 200,
    "not": "select " + "not " * 5000 + "1",
    "minus": "select " + "- " * 5000 + "1",
    "braces": "select " + "{a: " * 300,
    "or": "select 1 from t where " + " or ".join(f"a = {i}" for i in range(50_000)),
    "concatenation": "select " + " || ".join(["a"] * 4000),
    "union": "select 1 " + "union select 1 " * 900,
    "between": "select 1 where " + "1 between 1 and " * 900 + "1",
    "comment and brackets": "select 1 -- " + "\n[" * 300_000,
    "position": "select 1 order by " + "9" * 5000,
    "quotes": "select " + "'" * 99_999,
    "a megabyte": "select '" + "x" * 1_000_000 + "'",
}


@pytest.mark.parametrize("query", ENDLESS.values(), ids=ENDLESS)
def test_time_and_stack_are_bounded(query):
    started = time.process_time()
    key = strategy_key(query)
    assert key == strategy_key("\n" + query.upper())
    label_approach(query)
    structure_of(query)
    assert time.process_time() - started < 3


def test_keys_do_not_depend_on_the_stack_of_the_caller():
    """A key from a shallow worker and one from within a training loop have to be the same, and cells too."""
    queries = ["select " + " || ".join(["a"] * n) for n in range(60, 140, 7)]
    queries += ["select 1" + " union select 1" * n for n in (90, 110, 300, 400, 430)]
    queries += ["select " + "abs(" * n + "1" + ")" * n for n in range(20, 36)]
    queries += ["select " + "(select 1 + " * n + "1" + ")" * n for n in range(20, 36)]
    queries += ["select 1 where " + "exists (select case when 1 then " * n + "1" + " end)" * n for n in range(10, 18)]

    queries += ["select " + "not " * n + "1" for n in range(20, 420, 20)]
    queries += ["select " + "case when 1 then " * n + "1" + " end" * n for n in range(26, 46)]

    def deep(frames: int) -> list[str]:
        return deep(frames - 1) if frames else [part for query in queries for part in described(query)]

    def described(query: str) -> tuple[str, str]:
        return strategy_key(query), label_approach(query)

    code = "import sys; from elite_lightning.domains.sql.strategy import strategy_key\n"
    code += "from elite_lightning.domains.sql.labeler import label_approach\n"
    code += "for line in sys.stdin: print(strategy_key(line.rstrip()), label_approach(line.rstrip()))"
    shallow = subprocess.run(
        [sys.executable, "-c", code], input="\n".join(queries), capture_output=True, text=True, check=True
    ).stdout.split()
    assert deep(150) == shallow
    assert len({key[:4] == "RAW:" for key in shallow[::2]}) == 2


FALLBACK_EQUAL = [
    (
        "select CAST(a AS unsigned big int) FROM t WHERE b = 'x'",
        'SELECT cast("A" as UNSIGNED /*c*/ BIG INT) from [t] where `b`=="y";',
    ),
    (
        "select * from emp left natural join t where id in (1, 2, 3)",
        "SELECT * FROM emp LEFT NATURAL JOIN t WHERE id IN (4)",
    ),
    (
        "select 'it''s', x'00', 0x1F, 1.5e3, .5, ?1, :a from t left natural join emp",
        "select 'a', 'b', 1, 2, 3, @b, $c from t left natural join emp",
    ),
]

FALLBACK_DIFFERENT = [
    "select cast(a as unsigned big int) from t",
    "select cast(b as unsigned big int) from t",
    "select cast(a as unsigned big int) from emp",
    "select cast(a as signed big int) from t",
    "select cast(a as unsigned big int), 1 from t",
    "select cast('a' as unsigned big int) from t",
    "select cast(a as unsigned big int) from [t ,]",
    "select cast(a as unsigned big int) from t, t",
    "select cast(a as unsigned big int) from [t , t]",
    "select cast([a as] as unsigned big int) from t",
]


def test_what_sqlglot_cannot_parse_has_a_key_of_its_tokens(tables, path):
    for one, other in FALLBACK_EQUAL:
        assert fallback_text(one, tables) == fallback_text(other, tables)
        assert strategy_key(one, tables) == strategy_key(other, tables)
        assert strategy_key(one, tables).startswith("RAW:")
        assert (label_approach(one, tables), structure_of(one)) == (OTHER, UNPARSED)
    keys = {strategy_key(query, tables) for query in FALLBACK_DIFFERENT}
    assert len(keys) == len(FALLBACK_DIFFERENT)
    assert not isinstance(Executor().run(path, FALLBACK_DIFFERENT[0]), Failure)


def test_damaged_queries_never_raise(tables):
    """Tokens put in, left out and changed at random, those that only other dialects know among them."""
    rng = random.Random(11)
    queries = [query for queries in [*EQUAL.values(), *DIFFERENT.values()] for query in queries] + REPAIRED
    foreign = [*"(){}[]?@$.,;*'\"`\\²", "::", "->", "fetch", "qualify", "pivot", "interval", "lateral", "top", "sample"]
    for _ in range(4000):
        words = rng.choice(queries).replace("(", " ( ").split()
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(words))
            words[place : place + rng.randrange(2)] = [rng.choice(foreign + words)]
        query = " ".join(words)
        assert re.fullmatch("(RAW:)?[0-9a-f]{64}", strategy_key(query, tables)), query
        assert label_approach(query, tables) in (*APPROACHES, OTHER)
        assert structure_of(query)
