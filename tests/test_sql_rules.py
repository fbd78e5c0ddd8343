"""The comparison rules: measured truth tables of the official evaluators, and what the default does differently."""

import math
import pickle
import sqlite3
from collections import Counter
from contextlib import closing
from functools import partial
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.domains.sql import Limits, SqlDomain
from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.database_file import ColumnNames
from elite_lightning.domains.sql.executor import Executor
from elite_lightning.domains.sql.rules import RULES, Database, Pair, Query, rule_named
from elite_lightning.domains.sql.rules.r_ves import mean_ratio, r_ves, reward_of
from elite_lightning.domains.sql.rules.select_units import select_units
from elite_lightning.domains.sql.rules.suite import joined_operators, without_distinct
from elite_lightning.domains.sql.verifier import verify_sql
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem, Reason


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A database with ties, NULL, duplicates and a foreign key, and two copies with other rows."""
    root = tmp_path_factory.mktemp("databases")
    (root / "firm").mkdir()
    rows = {
        "firm": [(1, "Ann", 9.5, 1), (2, "Bob", 3.0, 1), (3, "Cy", 3.0, 2), (4, "Dee", None, 2), (5, "Ann", 3.0, None)],
        "copy_1": [(1, "Eve", 1.0, 1), (2, "Flo", 2.0, 2)],
        "copy_2": [(1, "Gus", 4.0, 1), (2, "Hal", 4.0, 1)],
    }
    for name, employees in rows.items():
        with closing(sqlite3.connect(root / "firm" / f"{name}.sqlite")) as connection:
            connection.executescript(
                "CREATE TABLE dept(id INTEGER PRIMARY KEY, title TEXT);"
                "CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, sal REAL, dept INTEGER REFERENCES dept);"
                "INSERT INTO dept VALUES (1, 'x'), (2, 'y');"
            )
            connection.executemany("INSERT INTO emp VALUES (?, ?, ?, ?)", employees)
            connection.commit()
    return root


def verdict(root, rule, gold, solution, **data):
    problem = Problem("p", "?", {"database": "firm", "gold": gold, **data})
    return SqlDomain(root, rule=rule).verify(problem, solution)


def literal(cell) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    return f"'{cell}'" if isinstance(cell, str) else repr(int(cell) if isinstance(cell, bool) else cell)


def as_query(rows, columns=1) -> str:
    if not rows:
        return f"SELECT {', '.join(['NULL'] * columns)} WHERE 0"
    return "SELECT * FROM (VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows) + ")"


# What the official scripts said (BIRD EX, soft F1, test suite without and with an `order by` in gold), measured; and
# what the default says, without and with a top-level ORDER BY, by its own rule.
TRUTH = [
    ([(1,), (1,)], [(1,)], 1, 1, 0, 0, 0),
    ([(1,), (2,)], [(2,), (1,)], 1, 0, 1, 0, 1),
    ([(1, "a")], [("a", 1)], 0, 1, 1, 1, 0),
    ([(1,)], [(1.0,)], 1, 1, 1, 1, 1),
    ([(True,)], [(1,)], 1, 1, 1, 1, 1),
    ([("1",)], [(1,)], 0, 0, 0, 0, 0),
    ([(None,)], [("",)], 0, 0, 0, 0, 0),
    ([(b"a",)], [("a",)], 0, 0, 0, 0, 0),
    ([("A",)], [("a",)], 0, 0, 0, 0, 0),
    ([(0.1 + 0.2,)], [(0.3,)], 0, 0, 0, 0, 1),
    ([], [], 1, 1, 1, 1, 1),
    ([], [(None,)], 0, 0, 0, 0, 0),
    ([(1,)], [(1, 2)], 0, 2 / 3, 0, 0, 0),
    ([(1,)], [(1, 1, 1)], 0, 1, 0, 0, 0),
    ([(1, 2), (2, 1)], [(1, 2), (1, 2)], 0, 2 / 3, 0, 0, 0),
    ([(1, "1.")], [(1.0, "1.")], 1, 1, 0, 0, 1),
]


@pytest.mark.parametrize(("gold", "got", "ex", "f1", "suite", "suite_ordered", "default"), TRUTH)
def test_the_measured_truth_table(root, gold, got, ex, f1, suite, suite_ordered, default):
    ask, answer = as_query(gold), as_query(got)
    assert verdict(root, "bird_ex", ask, answer).reward == ex
    assert verdict(root, "soft_f1", ask, answer).reward == pytest.approx(f1)
    assert verdict(root, "test_suite", ask, answer).reward == suite
    assert verdict(root, "test_suite", ask + " /* ORDER BY */", answer).reward == suite_ordered
    assert verdict(root, "default", ask, answer).reward == default


@pytest.mark.parametrize(
    ("rule", "gold", "solution", "correct"),
    [
        # DISTINCT is taken away, or kept; which of both, depends on nothing else
        ("test_suite", "SELECT DISTINCT name FROM emp", "SELECT name FROM emp", True),
        ("test_suite_keep_distinct", "SELECT DISTINCT name FROM emp", "SELECT name FROM emp", False),
        ("bird_ex", "SELECT DISTINCT name FROM emp", "SELECT name FROM emp", True),
        ("default", "SELECT DISTINCT name FROM emp", "SELECT name FROM emp", False),
        ("test_suite", "SELECT COUNT(DISTINCT name) FROM emp", "SELECT COUNT(name) FROM emp", True),
        ("test_suite", "SELECT 'distinct x'", "SELECT ' x'", False),
        ("test_suite", "SELECT id FROM emp WHERE sal > = 3", "SELECT id FROM emp WHERE sal >= 3", True),
        ("test_suite", "SELECT YEAR( CURDATE() )", "SELECT 2020", True),
        # right on the first database only: own rows, or all copies
        ("bird_ex", "SELECT COUNT(*) FROM emp", "SELECT 5", True),
        ("spider_exec", "SELECT name FROM emp WHERE id = 2", "SELECT name FROM emp WHERE name = 'Bob'", True),
        ("test_suite", "SELECT COUNT(*) FROM emp", "SELECT 5", False),
        ("default", "SELECT COUNT(*) FROM emp", "SELECT 5", False),
        # an ORDER BY anywhere, or at the top only
        ("test_suite", "SELECT id FROM (SELECT id FROM emp ORDER BY id)", "SELECT id FROM emp ORDER BY -id", False),
        ("default", "SELECT id FROM (SELECT id FROM emp ORDER BY id)", "SELECT id FROM emp ORDER BY -id", True),
        ("bird_ex", "SELECT id FROM emp ORDER BY id", "SELECT id FROM emp ORDER BY -id", True),
        ("ambiqt_direct", "select id from emp order by id", "SELECT id FROM emp ORDER BY -id", False),
        ("ambiqt_direct", "SELECT id FROM emp ORDER BY id", "SELECT id FROM emp ORDER BY -id", True),
        ("ambiqt_direct", "select name from emp", "select distinct name from emp", True),
        # Spider's classic match: columns by what is selected, rows as a list
        ("spider_exec", "SELECT id, name FROM emp", "SELECT e.name, e.id AS i FROM emp AS e", True),
        ("spider_exec", "SELECT id FROM emp", "SELECT id + 0 FROM emp", False),
        ("spider_exec", "SELECT id FROM emp ORDER BY id", "SELECT id FROM emp ORDER BY -id", False),
        ("spider_exec", "SELECT name FROM emp", "SELECT DISTINCT name FROM emp", False),
        ("spider_exec", "SELECT COUNT(*) FROM emp", "SELECT COUNT(id) FROM emp", False),
        ("spider_exec", "SELECT COUNT(*) FROM emp", "SELECT SUM(1) FROM emp", False),
        ("spider_exec", "SELECT MAX(sal), MIN(sal) FROM emp", "SELECT COUNT(sal), MIN(sal) FROM emp", True),
        ("spider_exec", "SELECT * FROM dept", "SELECT * FROM (SELECT id, 'z' FROM dept)", True),
        ("spider_exec", "SELECT dept FROM emp WHERE id < 3", "SELECT d.id FROM emp e JOIN dept d ON d.id = e.dept "
         "WHERE e.id < 3", True),
        ("spider_exec", "SELECT id FROM emp WHERE 0", "SELECT name FROM emp WHERE 0", False),
        ("bird_ex", "SELECT id FROM emp WHERE 0", "SELECT name, 1 FROM emp WHERE 0", True),
        ("default", "SELECT id FROM emp WHERE 0", "SELECT name, 1 FROM emp WHERE 0", False),
    ],
)  # fmt: skip
def test_where_the_rules_differ(root, rule, gold, solution, correct):
    assert verdict(root, rule, gold, solution).correct is correct


@pytest.mark.parametrize("rule", RULES)
def test_under_every_rule_gold_is_right_and_what_is_no_query_is_wrong(root, rule):
    gold = "SELECT name, COUNT(*) FROM emp GROUP BY name ORDER BY 2 DESC, 1"
    right = verdict(root, rule, gold, gold)
    assert right.correct
    assert right.reward == 1 or rule == "r_ves"
    empty = "SELECT id FROM emp WHERE 0"
    for nothing in ("", ";", "-- SELECT 1", "SELECT", "the answer is 7", "DELETE FROM emp"):
        wrong = verdict(root, rule, empty, nothing)
        assert (wrong.correct, wrong.reward) == (False, 0.0)
    assert "would be right as well" in verdict(root, rule, empty, empty).detail


def test_an_empty_result_is_flagged_only_if_it_is_empty_on_every_database(root):
    flagged = "would be right as well"
    assert flagged in verdict(root, "default", "SELECT id FROM emp WHERE id > 9", "SELECT id FROM emp WHERE 0").detail
    some = "SELECT id FROM emp WHERE id = 5"
    assert verdict(root, "default", some, some).detail == ""
    assert flagged in verdict(root, "bird_ex", "SELECT id FROM emp WHERE id > 5", "SELECT 1, 2 WHERE 0").detail


def test_a_partial_score_is_a_reward_and_no_success(root):
    half = verdict(root, "soft_f1", "SELECT 1, 2", "SELECT 1, 3")
    assert (half.correct, half.reason, half.reward) == (False, Reason.WRONG_RESULT, pytest.approx(0.5))


def test_an_unknown_rule_is_refused_with_the_names_of_all(root):
    with pytest.raises(UsageError, match=r"no comparison rule is called 'ex': choose one of default, bird_ex"):
        SqlDomain(root, rule="ex")
    with pytest.raises(UsageError, match="test_suite"):
        rule_named("")


def test_rule_and_copies_travel_and_show_in_the_fingerprint(root, tmp_path):
    (tmp_path / "firm").mkdir()
    (tmp_path / "firm" / "more.sqlite").write_bytes((root / "firm" / "copy_2.sqlite").read_bytes())
    domain = SqlDomain(root, rule="test_suite", copies=tmp_path)
    twin = pickle.loads(pickle.dumps(domain))
    assert (twin.rule, twin.copies) == (domain.rule, domain.copies)
    assert [path.name for path in twin._paths("firm")] == [
        *("firm.sqlite", "copy_1.sqlite", "copy_2.sqlite", "more.sqlite")
    ]
    prints = [SqlDomain(root), SqlDomain(root, rule="bird_ex"), SqlDomain(root, copies=tmp_path)]
    assert len({domain.fingerprint() for domain in prints}) == 3
    assert SqlDomain(root, rule="default").fingerprint() == SqlDomain(root, Limits()).fingerprint()


# Ties: what gold's ORDER BY and LIMIT leave open, and what they do not.
T = 1_700_000_000  # a second of the clock; the next one is nearer than 1e-9 of it
DAYS = "VALUES ('a', 2459000.25), ('b', 2459000.3), ('c', 2459001.6)"
SALARIES = "SELECT name, id FROM emp ORDER BY sal DESC"  # Ann 9.5; Bob, Cy and Ann 3.0; Dee NULL


@pytest.mark.parametrize(
    ("gold", "solution", "correct"),
    [
        (SALARIES, "SELECT name, id FROM emp ORDER BY sal DESC, id DESC", True),
        (SALARIES, "SELECT name, id FROM emp ORDER BY sal, id", False),
        (SALARIES, "SELECT name, id FROM emp", False),
        (SALARIES + " LIMIT 2", "SELECT name, id FROM emp WHERE id IN (1, 5)", True),
        (SALARIES + " LIMIT 2", "SELECT name, id FROM emp WHERE id IN (1, 4)", False),
        (SALARIES + " LIMIT 2", "SELECT name, id FROM emp WHERE id IN (1, 5) ORDER BY id DESC", False),
        (SALARIES + " LIMIT 2", "SELECT name, id FROM emp WHERE id = 1 UNION ALL SELECT 'Ann', 1", False),
        (SALARIES + " LIMIT 2", "SELECT name, id FROM emp WHERE sal >= 3 ORDER BY sal DESC", False),
        (SALARIES + " LIMIT 1 OFFSET 2", "SELECT 'Ann', 5", True),
        (SALARIES + " LIMIT 1 OFFSET 2", "SELECT 'Ann', 1", False),
        (SALARIES + " LIMIT 4, 1", "SELECT 'Dee', 4", True),
        ("SELECT name FROM emp LIMIT 2", "SELECT name FROM emp WHERE id IN (2, 3) ORDER BY id DESC", True),
        ("SELECT name FROM emp LIMIT 2", "VALUES ('Ann'), ('Ann')", True),
        ("SELECT name FROM emp LIMIT 2", "VALUES ('Bob'), ('Bob')", False),
        # keys that are aliases, numbers, aggregates, hidden behind a star, or columns of a UNION
        ("SELECT name AS n, sal AS s FROM emp ORDER BY s LIMIT 2", "VALUES (NULL, NULL)", False),
        ("SELECT name n, sal s FROM emp ORDER BY s LIMIT 2", "VALUES ('Dee', NULL), ('Cy', 3)", True),
        ("SELECT name, sal FROM emp ORDER BY 2 LIMIT 2", "VALUES ('Dee', NULL), ('Cy', 3)", True),
        ("SELECT dept FROM emp GROUP BY dept ORDER BY COUNT(*) DESC LIMIT 1", "SELECT 2", True),
        ("SELECT dept FROM emp GROUP BY dept ORDER BY COUNT(*) DESC LIMIT 1", "SELECT NULL", False),
        ("SELECT * FROM emp ORDER BY sal LIMIT 2", "SELECT * FROM emp WHERE id IN (4, 5) ORDER BY sal", True),
        ("SELECT name FROM emp UNION ALL SELECT 'Bob' ORDER BY name LIMIT 3", "VALUES ('Ann'), ('Ann'), ('Bob')", True),
        ("SELECT DISTINCT sal FROM emp ORDER BY sal LIMIT 2", "VALUES (NULL), (3)", True),
        ("SELECT DISTINCT name FROM emp ORDER BY sal LIMIT 2", "VALUES ('Dee'), ('Cy')", False),  # keys not certain
        # sums in another order are the same number as cells; as sort keys they are what SQLite sorts by
        ("SELECT 'a', 0.1 + 0.2 + 0.3 ORDER BY 2", "SELECT 'a', 0.3 + 0.2 + 0.1", True),
        ("SELECT column1 FROM (VALUES ('a', 0.1 + 0.2), ('b', 0.3)) ORDER BY column2", "VALUES ('a'), ('b')", False),
        (f"SELECT column1 FROM (VALUES ('a', {T}.0), ('b', {T}.5)) ORDER BY column2 LIMIT 1", "SELECT 'b'", False),
        # all forms of a column's number and of an alias, and what looks like one
        *((f"SELECT id, sal FROM emp ORDER BY {two} DESC LIMIT 1", "SELECT 2, 3", False)
          for two in ("(2)", "+2", "- -2", "0x2", "2 COLLATE NOCASE", "((2) COLLATE BINARY)")),
        ("SELECT id, sal FROM emp ORDER BY (2) LIMIT 2", "VALUES (4, NULL), (5, 3)", True),
        ("SELECT id, sal FROM emp UNION SELECT 6, 3 ORDER BY (2) DESC LIMIT 2", "VALUES (1, 9.5), (6, 3)", True),
        ("SELECT id, sal FROM emp UNION SELECT 6, 3 ORDER BY (2) DESC LIMIT 2", "VALUES (6, 3), (1, 9.5)", False),
        ("SELECT id, sal FROM emp ORDER BY 1 + 1 LIMIT 1", "SELECT 5, 3", True),
        ("SELECT id AS sal FROM emp ORDER BY (sal) LIMIT 1", "SELECT 4", False),
        ("SELECT id AS sal FROM emp ORDER BY sal COLLATE NOCASE LIMIT 1", "SELECT 4", False),
        ("SELECT id, sal AS s FROM emp ORDER BY \"s\" || '' LIMIT 2", "VALUES (4, NULL), (5, 3)", False),
        # keys are computed by gold's own words: sqlglot writes CAST(x AS DATE) as DATE(x), one day for a and b
        (f"SELECT column1 FROM ({DAYS}) ORDER BY CAST(column2 AS DATE)", "VALUES ('a'), ('b'), ('c')", True),
        (f"SELECT column1 FROM ({DAYS}) ORDER BY CAST(column2 AS DATE)", "VALUES ('b'), ('a'), ('c')", False),
        (f"SELECT column1 FROM ({DAYS}) ORDER BY CAST(column2 AS DATE) LIMIT 1", "SELECT 'b'", False),
        # words of clauses within items and terms
        ("SELECT sal IS DISTINCT FROM 3, id FROM emp ORDER BY sal IS DISTINCT FROM 3 LIMIT 1", "SELECT 0, 5", True),
        ("SELECT id /* , */, (SELECT 1 ORDER BY 1 LIMIT 1) FROM emp ORDER BY sal NULLS LAST LIMIT 2;",
         "VALUES (5, 1), (2, 1)", True),
    ],
)  # fmt: skip
def test_what_order_and_limit_leave_open(root, gold, solution, correct):
    """On the first database alone, since some solutions are literals that fit its rows only."""
    own = [root / "firm" / "firm.sqlite"]
    assert verify_sql(Executor(), rule_named("default"), own, gold, solution).correct is correct


@pytest.mark.parametrize("index", ["", "CREATE INDEX i ON t(k1, a)"])
def test_an_index_that_changes_the_order_of_ties_changes_no_verdict(tmp_path, index):
    """With the index, SQLite 3.40 gives gold's tied rows in one order and, without the LIMIT, in the other."""
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"CREATE TABLE t(a, b, k1, k2); INSERT INTO t VALUES ('x', 1, 1.0, 0), (1, 3.5, 1.0, 0); {index}"
        )
    gold = "SELECT b, a FROM t ORDER BY k1, k2 LIMIT 1 OFFSET 1"
    for solution, correct in (("SELECT 1, 'x'", True), ("SELECT 3.5, 1", True), ("SELECT 1, 1", False)):
        assert verify_sql(Executor(), rule_named("default"), [path], gold, solution).correct is correct


def test_seconds_of_a_clock_do_not_run_together(tmp_path):
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, ts REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, T + i) for i in range(500)])
        connection.commit()
    for gold, solution in (
        ("SELECT max(ts) FROM t", "SELECT min(ts) FROM t"),
        ("SELECT id FROM t ORDER BY ts DESC LIMIT 1", "SELECT 0"),
        ("SELECT ts FROM t ORDER BY ts DESC LIMIT 5", "SELECT ts FROM t ORDER BY ts LIMIT 5"),
        ("SELECT ts FROM t WHERE id < 3", "SELECT ts FROM t WHERE id IN (0, 1, 3)"),
    ):
        verify = partial(verify_sql, Executor(), rule_named("default"), [path], gold)
        assert (verify(solution).correct, verify(gold).correct) == (False, True)


def test_what_the_problem_says_about_order_comes_before_golds_order_by(root):
    gold, backwards = "SELECT id FROM emp ORDER BY id", "SELECT id FROM emp ORDER BY id DESC"
    tied = "SELECT name, id FROM emp ORDER BY sal DESC, -id"
    assert not verdict(root, "default", gold, backwards).correct
    assert verdict(root, "default", gold, backwards, ordered=False).correct
    assert not verdict(root, "default", "SELECT id FROM emp", backwards, ordered=True).correct
    assert not verdict(root, "default", SALARIES, tied, ordered=True).correct


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=5),
    labels=st.lists(st.sampled_from("ab"), min_size=5, max_size=5),
    limit=st.integers(1, 5),
    offset=st.integers(0, 3),
)
def test_the_default_accepts_exactly_what_gold_could_have_returned(tmp_path_factory, keys, labels, limit, offset):
    """Brute force: every order of the rows that the keys allow, cut by OFFSET and LIMIT."""
    path = tmp_path_factory.mktemp("t") / "t.sqlite"
    rows = list(zip(labels, keys, strict=False))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t(a, k)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.commit()
    rank = {None: -1, 0: 0, 1: 1, 2: 2}
    orders = [order for order in permutations(rows) if [rank[k] for _, k in order] == sorted(rank[k] for k in keys)]
    allowed = {tuple(a for a, _ in order[offset : offset + limit]) for order in orders}
    gold = f"SELECT a FROM t ORDER BY k LIMIT {limit} OFFSET {offset}"
    executor = Executor()
    wanted = executor.run(path, gold)
    for size in range(len(keys) + 1):
        for guess in product("ab", repeat=size):
            got = Rows(1, [(label,) for label in guess])
            pair = Pair(Query(gold, wanted), Query("", got), Database(executor, path))
            assert (rule_named("default").score(pair) == 1) is (guess in allowed), (guess, allowed)


cells = st.sampled_from([None, 0, 1, 1.0, "1", "a", "", b"a"])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.lists(st.tuples(*[cells] * n), min_size=1, max_size=4)] * 2)))
def test_column_permutations_agree_with_trying_all(tables):
    """Brute force over all orders of columns, behind the official script's first look at sorted rows."""
    gold, got = tables

    def sorted_cells(rows):
        return [tuple(sorted(row, key=lambda cell: str(cell) + str(type(cell)))) for row in rows]

    for order_by in (False, True):
        left, right = sorted_cells(gold), sorted_cells(got)
        looks_equal = left == right if order_by else set(left) == set(right)
        tries = [[tuple(row[i] for i in order) for row in got] for order in permutations(range(len(got[0])))]
        same = any(t == gold if order_by else Counter(t) == Counter(gold) for t in tries)
        pair = Pair(
            Query("order by" if order_by else "", Rows(len(gold[0]), gold)), Query("", Rows(len(got[0]), got)), None
        )
        assert (rule_named("test_suite").score(pair) == 1) is (looks_equal and same)


def test_tables_that_look_alike_in_every_row_and_column_are_told_apart():
    """Rows are the edges of a ring of six, or of two rings of three: each row and each column holds two ones."""
    ring = [tuple(int(j in (i, (i + 1) % 6)) for j in range(6)) for i in range(6)]
    rings = [tuple(int(i // 3 == j // 3 and j % 3 in (i % 3, (i + 1) % 3)) for j in range(6)) for i in range(6)]
    turned = [tuple(row[j] for j in (3, 1, 5, 0, 2, 4)) for row in reversed(ring)]
    for got, expected in ((turned, 1), (rings, 0), (ring[::-1], 1)):
        pair = Pair(Query("", Rows(6, ring)), Query("", Rows(6, got)), None)
        assert rule_named("test_suite").score(pair) == expected


@pytest.mark.parametrize("columns", [12, 600])
def test_many_equal_columns_do_not_explode(columns):
    rows = [(1,) * columns] * 5 + [(2,) * columns]
    gold, got = Query("", Rows(columns, rows)), Query("", Rows(columns, rows[::-1]))
    assert rule_named("test_suite").score(Pair(gold, got, None)) == 1


def test_names_of_selected_items():
    columns = {"singer": ("id", "name"), "concert": ("id", "singer_id", "year")}
    names = ColumnNames(columns, ((("concert", "singer_id"), ("singer", "id")),))
    units = {
        "SELECT T2.Name, count(*) FROM concert AS T1 JOIN singer AS T2": ["singer.name", "*"],
        "SELECT max(DISTINCT year), (name), name n FROM concert, singer": [
            "concert.year",
            "singer.name",
            "singer.name",
        ],
        "SELECT singer_id, year - 1, avg(year + id) FROM concert": ["singer.id", "concert.year - 1"],
        "SELECT name FROM singer UNION SELECT year FROM concert": ["singer.name"],
    }
    for sql, expected in units.items():
        assert [unit.lower() for unit in select_units(sql, names)][: len(expected)] == [
            unit.replace("singer.id", "concert.singer_id") for unit in expected
        ]
    assert select_units("SELECT FROM", names) is None
    assert select_units("SELECT " + "(" * 300 + "1" + ")" * 300, names) is None


def test_preparation_keeps_literals():
    assert without_distinct("SELECT DISTINCT a, 'DISTINCT', \"distinct\" FROM t -- distinct").split() == [
        *("SELECT", "a,", "'DISTINCT',", '"distinct"', "FROM", "t", "--", "distinct")
    ]
    assert joined_operators("a > = 1 AND b ! = '< ='") == "a >= 1 AND b != '<='"
    assert joined_operators("year (curdate ())  - 1") == "2020- 1"


def test_r_ves_by_hand():
    assert [reward_of(ratio) for ratio in (2.0, 1.99, 1.0, 0.99, 0.5, 0.25, 0.1)] == [1.25, 1, 1, 0.75, 0.75, 0.5, 0.25]
    assert mean_ratio([1.2] * 5) == pytest.approx(1.2)  # the official script divides by zero here
    assert mean_ratio([1.0] * 99 + [1000.0]) == pytest.approx(1.0)
    assert mean_ratio([3.0]) == 3.0
    assert r_ves([1.25, 1.0, 0.25, 0]) == pytest.approx(100 * (math.sqrt(1.25) + 1 + 0.5) / 4)
    assert r_ves([1.25] * 3) == pytest.approx(111.803, abs=1e-3)
    with pytest.raises(ValueError, match="at least one ratio"):
        mean_ratio([])


def test_r_ves_rewards_the_faster_of_two_right_queries(root):
    slow = "SELECT 7 FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000) "
    slow += "SELECT COUNT(*) FROM n)"
    assert verdict(root, "r_ves", slow, "SELECT 7").reward == pytest.approx(math.sqrt(1.25))
    assert verdict(root, "r_ves", "SELECT 7", slow).reward == pytest.approx(0.5)
    assert verdict(root, "r_ves", "SELECT 7", "SELECT 8").reward == 0


def test_the_documentation_names_every_rule_and_every_reason():
    text = (Path(__file__).parents[1] / "docs" / "sql_rules.md").read_text()
    for name in [*RULES, *(reason.value for reason in Reason)]:
        assert f"| `{name}` |" in text, name
