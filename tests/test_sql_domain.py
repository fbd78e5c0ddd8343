"""The SQL domain from a response to its verdict, on databases with copies, here and in worker processes."""

import json
import pickle
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.sql import DatabaseError, Limits, SqlDomain
from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Domain, Problem, Reason
from elite_lightning.verify import VerificationPool, Want, judge

SPIDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "spider"

GOLD = "SELECT name FROM emp WHERE sal = (SELECT MAX(sal) FROM emp)"


def write_database(path: Path, rows: list[tuple[int, str, float | None]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, sal REAL)")
        connection.executemany("INSERT INTO emp VALUES (?, ?, ?)", rows)
        connection.commit()


@pytest.fixture
def root(tmp_path) -> Path:
    write_database(tmp_path / "firm" / "firm.sqlite", [(1, "Ann", 9.5), (2, "Bob", 3.0), (3, "Cy", None)])
    write_database(tmp_path / "firm" / "copy_1.sqlite", [(1, "Dee", 2.0), (2, "Eve", 4.0), (3, "Flo", 4.0)])
    return tmp_path


@pytest.fixture
def domain(root) -> SqlDomain:
    return SqlDomain(root)


def problem(gold: str = GOLD, ordered: bool = False, database: str = "firm") -> Problem:
    return Problem("p", "who earns most?", {"database": database, "gold": gold, "ordered": ordered})


def test_it_is_a_domain_that_travels_by_its_settings(domain):
    assert isinstance(domain, Domain)
    assert domain.name == "sql"
    domain.verify(problem(), GOLD)
    twin = pickle.loads(pickle.dumps(domain))
    assert (twin.databases, twin.limits) == (domain.databases, domain.limits)
    assert twin.verify(problem(), GOLD).correct
    assert twin.fingerprint() == domain.fingerprint()
    assert len(pickle.dumps(domain)) < 1000


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        (GOLD, None),
        ("SELECT name FROM emp a WHERE sal NOTNULL AND NOT EXISTS (SELECT 1 FROM emp b WHERE b.sal > a.sal)", None),
        ("SELECT name FROM (SELECT *, RANK() OVER (ORDER BY sal DESC) r FROM emp) WHERE r = 1", None),
        # right on the problem's own rows, wrong where two earn most
        ("SELECT name FROM emp ORDER BY sal DESC LIMIT 1", Reason.WRONG_RESULT),
        ("SELECT 'Ann'", Reason.WRONG_RESULT),
        ("SELECT name, sal FROM emp WHERE sal = (SELECT MAX(sal) FROM emp)", Reason.WRONG_RESULT),
        ("SELECT nom FROM emp", Reason.ERROR),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT COUNT(*) FROM n", Reason.TOO_MANY_STEPS),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n", Reason.TOO_MANY_ROWS),
        ("WITH x AS (SELECT 1) DELETE FROM emp", Reason.NOT_ALLOWED),
        ("-- nothing", Reason.NO_SOLUTION),
    ],
)
def test_verdicts(root, solution, reason):
    domain = SqlDomain(root, Limits(steps=2_000_000))
    before = {file: file.read_bytes() for file in root.rglob("*.sqlite")}
    verdict = domain.verify(problem(), solution)
    assert (verdict.correct, verdict.reward, verdict.reason) == (reason is None, float(reason is None), reason)
    assert bool(verdict.detail) is (reason is not None)
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == before


def test_order_counts_where_the_problem_says_so(domain):
    gold = "SELECT name FROM emp ORDER BY id"
    backwards = "SELECT name FROM emp ORDER BY id DESC"
    assert domain.verify(problem(gold, ordered=False), backwards).correct
    assert domain.verify(problem(gold, ordered=True), backwards).reason is Reason.WRONG_RESULT
    assert domain.verify(problem(gold, ordered=True), gold).correct


def test_details_say_what_differs(domain):
    gold = "SELECT name FROM emp"
    assert domain.verify(problem(gold), gold + " WHERE id < 3").detail == "2 rows instead of 3 on firm.sqlite"
    assert domain.verify(problem(gold), "SELECT id FROM emp").detail == "other rows than gold's on firm.sqlite"
    assert domain.verify(problem(gold), "SELECT * FROM emp").detail == "3 columns instead of 1"


def test_what_the_user_has_to_repair_is_no_verdict(domain, root):
    with pytest.raises(DatabaseError, match=r"no database file at .*shop.*\('shop'\)"):
        domain.verify(problem(database="shop"), GOLD)
    with pytest.raises(UsageError, match=r"gold query 'SELECT x FROM emp' cannot run on .*no such column: x.*repair"):
        domain.verify(problem("SELECT x FROM emp"), GOLD)
    with pytest.raises(UsageError, match=r"problem 'q' has no data\['database'\]"):
        domain.verify(Problem("q", "?", {"gold": GOLD}), GOLD)
    (root / "text").mkdir()
    (root / "text" / "text.sqlite").write_text("no database at all" * 99)
    for ask in (lambda it: domain.verify(it, GOLD), domain.prompt):
        with pytest.raises(DatabaseError, match=r"text\.sqlite cannot be read as a SQLite database"):
            ask(problem(database="text"))
    with VerificationPool(domain, workers=1) as pool, pytest.raises(DatabaseError, match="no database file"):
        pool.judge(problem(database="shop"), GOLD)


def test_prompt_shows_schema_question_target_and_parent(domain):
    plain = domain.prompt(problem())
    assert all(part in plain for part in ("emp", "id", "sal", "who earns most?"))
    full = domain.prompt(problem(), "window", "SELECT 1")
    assert "window" in full
    assert "SELECT 1" in full
    assert "window" not in plain


def test_descriptors_know_the_schema(domain):
    correlated = "SELECT name FROM emp WHERE (SELECT COUNT(*) FROM emp AS e WHERE e.sal > emp.sal) = 0"
    assert domain.cell(problem(), correlated) == Cell(
        "correlated_subquery", "joins=0 sub=scalar set=0 agg=agg order=none case=0 window=0 distinct=0"
    )
    assert domain.cell(problem(), "SELECT FROM").approach == "other"
    assert domain.strategy(problem(), 'SELECT id FROM emp WHERE name = "x"') == domain.strategy(
        problem(), "select E.ID from emp E where 'y' = E.Name"
    )
    assert domain.strategy(problem(), "SELECT id FROM emp") != domain.strategy(problem(), "SELECT sal FROM emp")


def test_fingerprint_follows_rules_limits_and_every_byte(root):
    seen = {SqlDomain(root).fingerprint(), SqlDomain(root, Limits(rows=7)).fingerprint()}
    with closing(sqlite3.connect(root / "firm" / "copy_1.sqlite")) as connection:
        connection.execute("UPDATE emp SET name = 'Gus' WHERE id = 1")
        connection.commit()
    seen.add(SqlDomain(root).fingerprint())
    (root / "firm" / "copy_1.sqlite").rename(root / "firm" / "copy_2.sqlite")
    seen.add(SqlDomain(root).fingerprint())
    assert len(seen) == 4
    moved = root.with_name(root.name + "_moved")
    root.rename(moved)
    assert SqlDomain(moved).fingerprint() in seen


def test_pool_and_judge_agree_on_responses(domain):
    responses = [
        f"I think\n```sql\n{GOLD};\n```", GOLD.lower(), "SELECT name FROM emp", "no idea", "SELECT", "DROP TABLE emp"
    ]  # fmt: skip
    items = [(problem(), response) for response in responses * 5]
    want = Want(cell=True, strategy=True)
    with VerificationPool(domain, workers=2) as pool:
        judged = pool.judge_many(items, want)
    assert judged == [judge(domain, *item, want) for item in items]
    reasons = [None, None, Reason.WRONG_RESULT, Reason.NO_SOLUTION, Reason.ERROR, Reason.NO_SOLUTION]
    assert [part.verdict.reason for part in judged[:6]] == reasons
    assert judged[0].strategy == judged[1].strategy


@pytest.mark.skipif(not SPIDER.is_dir(), reason="the Spider files beside the repository (../shared/data) are absent")
def test_spiders_gold_queries_are_right_by_their_own_standard():
    examples = json.loads((SPIDER / "dev.json").read_text())
    domain = SqlDomain(SPIDER / "database")
    for index, item in enumerate(random.Random(2).sample(examples, 150)):
        ordered = "order by" in item["query"].lower()
        asked = Problem(
            f"dev-{index}", item["question"], {"database": item["db_id"], "gold": item["query"], "ordered": ordered}
        )
        judgement = judge(domain, asked, item["query"], Want(cell=True, strategy=True))
        assert judgement.verdict.correct, (item, judgement)
        assert judgement.cell is not None
        assert not judgement.strategy.startswith("RAW:")
