"""Statements that try to hang, fill, crash, change or read what they must not, through the real verification pool."""

import hashlib
import multiprocessing
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.sql.executor import Limits
from elite_lightning.domains.sql.scoring import ScoringDomain
from elite_lightning.types import Problem, Reason
from elite_lightning.verify import VerificationPool

LIMITS = Limits(steps=2_000_000, seconds=0.8, heap_bytes=100_000_000)
TIMEOUT_S = 1.5
N = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
GOLD = "SELECT id, name FROM emp"


def write_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT);"
            "INSERT INTO emp VALUES (1, 'Ann'), (2, NULL), (3, CAST(x'ff41' AS TEXT));"
        )


HOSTILE = {
    Reason.NOT_ALLOWED: {
        "attach": "ATTACH 'new.db' AS o",
        "attach by its path": "ATTACH '{root}/other/other.sqlite' AS o",
        "attach a URI": "ATTACH 'file:{root}/new.db?mode=rwc' AS o",
        "detach": "DETACH main",
        "vacuum": "VACUUM",
        "vacuum into": "VACUUM INTO '{root}/copy.db'",
        "pragma": "PRAGMA query_only = OFF",
        "pragma that writes": "PRAGMA user_version = 7",
        "pragma journal": "PRAGMA journal_mode = WAL",
        "pragma directory": "PRAGMA temp_store_directory = '{root}'",
        "pragma function": "SELECT * FROM pragma_table_info('emp')",
        "pragma list": "SELECT * FROM pragma_database_list",
        "temporary view in place of a table": "CREATE TEMP VIEW emp AS SELECT 7 AS id, 'x' AS name",
        "temporary table": "CREATE TEMP TABLE emp AS SELECT 7 AS id, 'x' AS name",
        "temporary trigger": "CREATE TEMP TRIGGER t AFTER INSERT ON emp BEGIN SELECT 1; END",
        "create table": "CREATE TABLE x(a)",
        "create index": "CREATE INDEX x ON emp(name)",
        "create virtual table": "CREATE VIRTUAL TABLE x USING fts5(a)",
        "insert": "INSERT INTO emp VALUES (9, 'x')",
        "replace": "REPLACE INTO emp VALUES (1, 'x')",
        "update": "UPDATE emp SET name = 'x'",
        "delete": "DELETE FROM emp",
        "drop": "DROP TABLE emp",
        "alter": "ALTER TABLE emp RENAME TO x",
        "reindex": "REINDEX",
        "analyze": "ANALYZE",
        "insert behind WITH": "WITH x AS (SELECT 9) INSERT INTO emp SELECT *, 'x' FROM x",
        "delete behind WITH": "WITH x AS (SELECT 1) DELETE FROM emp WHERE id IN x RETURNING id",
        "update behind WITH": "WITH x AS (SELECT 1) UPDATE emp SET id = 9 RETURNING id",
        "write behind a comment": "/* SELECT 1 */ DELETE FROM emp",
        "begin": "BEGIN EXCLUSIVE",
        "commit": "COMMIT",
        "savepoint": "SAVEPOINT s",
        "explain": "EXPLAIN SELECT 1",
        "query plan": "EXPLAIN QUERY PLAN SELECT 1",
        "load code": "SELECT load_extension('{root}/x.so')",
        "load code in a subquery": "SELECT id FROM emp WHERE id IN (SELECT load_extension('x', 'y'))",
        "log": "SELECT sqlite_log(1, 'x')",
        "C addresses": "SELECT fts3_tokenizer('simple')",
        "luck": "SELECT id, name FROM emp ORDER BY random()",
        "statements of the connection": "SELECT sql FROM sqlite_stmt",
        "pages of the file": "SELECT * FROM dbstat",
        "two queries": "SELECT 1; SELECT 2",
        "query and write": GOLD + "; DELETE FROM emp",
        "many statements": "SELECT 1;" * 5000,
    },
    Reason.ERROR: {
        "read a file": "SELECT readfile('/etc/passwd')",
        "write a file": "SELECT writefile('{root}/x', 'y')",
        "list a folder": "SELECT * FROM fsdir('/')",
        "another database": "SELECT * FROM other.emp",
        "endless series": "SELECT value FROM generate_series(1, 10000000000)",
        "write the schema": "WITH x AS (SELECT 1) UPDATE sqlite_master SET sql = ''",
        "deep parentheses": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "deep subqueries": "SELECT " + "(SELECT " * 500 + "1" + ")" * 500,
        "deep CASE": "SELECT " + "CASE WHEN 1 THEN " * 800 + "1" + " END" * 800,
        "deep NOT": "SELECT " + "NOT " * 9000 + "1",
        "long OR": f"SELECT * FROM emp WHERE {' OR '.join(f'id={i}' for i in range(5000))}",
        "many UNIONs": "SELECT 1" + " UNION ALL SELECT 1" * 3000,
        "many columns": f"SELECT {', '.join('1' * 3000)}",
        "many tables": f"SELECT 1 FROM {', '.join(f'emp e{i}' for i in range(70))}",
        "deep JSON": f"SELECT json('{'[' * 30000}{']' * 30000}')",
        "long pattern": f"SELECT name LIKE '{'%a' * 20000}' FROM emp",
        "overflow": "SELECT abs(-9223372036854775808)",
        "NUL": GOLD + "\x00",
        "NUL and a write": "SELECT 1\x00; DROP TABLE emp",
        "lone surrogate": "SELECT '\ud800'",
        "byte order mark": "\ufeffSELECT 1",
        "full-width digit": "SELECT \uff11",
        "parameter": "SELECT :p",
        "fence": "```sql\nSELECT 1\n```",
        "prose": "The answer is 42.",
        "cut off": "SELECT id, name FROM emp WHERE name = 'An",
        "unknown collation": "SELECT name FROM emp ORDER BY name COLLATE icu",
        "invented function": "SELECT id, name FROM emp WHERE name REGEXP '(a+)+$'",
    },
    Reason.NO_SOLUTION: {
        "empty": "",
        "white space": " \n\t",
        "semicolons": ";;",
        "comment": "-- SELECT 1",
        "open comment": "/* SELECT 1",
    },
    Reason.TOO_LONG: {
        "1 MB of SQL": "SELECT '" + "x" * 1_000_000 + "'",
        "1 MB of comment": "--" + "x" * 1_000_000 + "\nSELECT 1",
        "1 MB of comment starts": "/*" * 500_000,
        "many bytes in few characters": "SELECT '" + "\U0001f600" * 30_000 + "'",
        "long IN": f"SELECT 1 IN ({','.join(map(str, range(20000)))})",
    },
    Reason.TOO_MANY_STEPS: {
        "endless recursion": N + "SELECT COUNT(*) FROM n",
        "endless UNION": "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n) SELECT COUNT(*) FROM n",
        "endless sort": N + "SELECT i FROM n ORDER BY i DESC",
        "endless window": N + "SELECT SUM(i) OVER (ORDER BY i) FROM n",
        "endless DISTINCT": N + "SELECT DISTINCT i FROM n ORDER BY 1",
        "endless group_concat": N + "SELECT group_concat(i) FROM n",
        "endless JSON": N + "SELECT COUNT(*) FROM n, json_each('[1, 2, 3]')",
        "endless EXISTS": N + "SELECT id FROM emp WHERE EXISTS (SELECT 1 FROM n WHERE i < 0)",
        "endless OFFSET": N + "SELECT i FROM n LIMIT 1 OFFSET 9000000000",
        "cross join": f"SELECT COUNT(*) FROM {', '.join(f'emp AS e{i}' for i in range(60))}",
    },
    Reason.TOO_MANY_ROWS: {
        "rows without end": N + "SELECT i FROM n",
        "cross join of rows": f"SELECT 1 FROM {', '.join(f'emp AS e{i}' for i in range(30))}",
    },
    Reason.TOO_LARGE: {
        "blob": "SELECT zeroblob(900000000)",
        "text": "SELECT hex(zeroblob(500001))",
        "doubling": N.replace("i + 1", "i || i") + "SELECT MAX(LENGTH(i)) FROM n",
        "replaced": "SELECT replace(hex(zeroblob(400000)), '0', 'xxxxxxxxxx')",
        "concatenated": N + "SELECT group_concat(hex(zeroblob(1000))) FROM (SELECT i FROM n LIMIT 600)",
        "JSON": N + "SELECT json_group_array(hex(zeroblob(1000))) FROM (SELECT i FROM n LIMIT 600)",
        "wide result": f"SELECT {', '.join(['hex(zeroblob(400000))'] * 22)}",
        "long result": N + "SELECT hex(zeroblob(4000)) FROM n",
    },
    Reason.OUT_OF_MEMORY: {
        "queue of a recursion": "WITH RECURSIVE n(i) AS (SELECT zeroblob(900000) UNION ALL SELECT i FROM n, "
        "(SELECT 1 UNION ALL SELECT 2)) SELECT COUNT(*) FROM n",
        "sort of blobs": N + "SELECT length(b) FROM (SELECT hex(zeroblob(400000 + i - i)) AS b FROM n) ORDER BY b",
    },
    Reason.TIMEOUT: {
        "slow function": N + "SELECT COUNT(upper(printf('%.*c', 900000, 'x') || i)) FROM n",
        "huge printf": "SELECT LENGTH(printf('%.*c', 2000000000, 'x'))",
        "needle in a haystack": "SELECT instr(zeroblob(1000000), zeroblob(499999) || x'01')",
        "needles replaced": "SELECT replace(hex(zeroblob(499999)), hex(zeroblob(200000)) || '1', 'x')",
    },
}
CASES = [(reason, name) for reason, statements in HOSTILE.items() for name in statements]


def contents(folder: Path) -> dict[Path, str]:
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*") if file.is_file()}


def children() -> set[int]:
    """Processes that this one started and that are still there, but for multiprocessing's own helper."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            helper = b"resource_tracker" in (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if parent == os.getpid() and not helper:
            found.add(int(stat.parent.name))
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of two databases that is the working directory, a pool with one worker, and a look behind afterwards."""
    root = tmp_path_factory.mktemp("a folder with ? and #")
    for name in ("firm", "other"):
        write_database(root / name / f"{name}.sqlite")
    before, running, back = contents(root), children(), Path.cwd()
    os.chdir(root)
    try:
        with VerificationPool(ScoringDomain(root, LIMITS), workers=1, timeout_s=TIMEOUT_S, retries=0) as pool:
            yield root, pool, before
    finally:
        os.chdir(back)
    assert contents(root) == before
    assert children() == running
    assert multiprocessing.active_children() == []


def test_there_are_enough_of_them():
    assert len(CASES) >= 60


@pytest.mark.parametrize(("reason", "name"), CASES, ids=[f"{reason}-{name}" for reason, name in CASES])
def test_a_hostile_statement_ends_with_its_reason_and_leaves_no_trace(world, reason, name):
    root, pool, before = world
    sql = HOSTILE[reason][name].replace("{root}", str(root))
    problem = Problem(name, "?", {"database": "firm", "gold": GOLD, "rule": "default"})
    begin = time.monotonic()
    verdict = pool.judge_many([(problem, sql)])[0].verdict
    took = time.monotonic() - begin
    assert verdict.reason is reason, verdict
    assert verdict.detail.isprintable()
    assert 0 < len(verdict.detail) <= 250
    assert took < TIMEOUT_S + 3.0  # a new worker, on a busy machine
    assert contents(root) == before
    right = f"SELECT e.id, e.name FROM emp AS e -- after {name}"
    assert pool.judge_many([(problem, right)])[0].verdict.correct
    wrong = f"SELECT id, 'x' FROM emp -- after {name}"
    assert pool.judge_many([(problem, wrong)])[0].verdict.reason is Reason.WRONG_RESULT
