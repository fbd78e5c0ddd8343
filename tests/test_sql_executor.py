"""Running untrusted SQL: what it may not do, what stops it, and what is the user's fault instead."""

import hashlib
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.executor import DatabaseError, Executor, Failure, Limits
from elite_lightning.types import Reason

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "


@pytest.fixture
def path(tmp_path) -> Path:
    """A database in a folder of its own, with a text that is not UTF-8."""
    folder = tmp_path / "a folder with ? and #"
    folder.mkdir()
    file = folder / "emp.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE emp(id INTEGER PRIMARY KEY, Name TEXT, sal REAL, js TEXT);"
            "INSERT INTO emp VALUES (1, 'Ann', 9.5, '[1, 2]'), (2, NULL, 3.0, '[]'), (3, CAST(x'ff41' AS TEXT), 1, '');"
            "CREATE VIEW rich AS SELECT name FROM emp WHERE sal > 5;"
            "CREATE VIEW broken AS SELECT x FROM gone;"
        )
    return file


def contents(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.rglob("*"))}


def test_rows_come_as_sqlite_gives_them(path):
    executor = Executor()
    assert executor.run(path, "SELECT id, name, sal FROM emp ORDER BY id;  -- done") == Rows(
        3, [(1, "Ann", 9.5), (2, None, 3.0), (3, "\udcffA", 1.0)]
    )
    assert executor.run(path, "/* why */ SELECT name FROM rich") == Rows(1, [("Ann",)])
    assert executor.run(path, "VALUES (1, x'00')") == Rows(2, [(1, b"\x00")])
    assert executor.run(path, "SELECT id, id FROM emp WHERE 0") == Rows(2, [])
    assert executor.run(path, "SELECT value FROM emp, json_each(emp.js) WHERE emp.id = 1") == Rows(1, [(1,), (2,)])
    recursion = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n"
    assert executor.run(path, recursion) == Rows(1, [(1,), (2,), (3,)])


def test_columns_are_listed_in_lower_case_with_views(path):
    assert Executor().columns(path) == {"emp": ("id", "name", "sal", "js"), "rich": ("name",)}


HOSTILE = {
    "attach another database": ("ATTACH 'new.db' AS o", Reason.NOT_ALLOWED),
    "copy the database": ("VACUUM INTO 'new.db'", Reason.NOT_ALLOWED),
    "pragma": ("PRAGMA query_only = OFF", Reason.NOT_ALLOWED),
    "pragma as a table": ("SELECT * FROM pragma_table_info('emp')", Reason.NOT_ALLOWED),
    "shadow a table": ("CREATE TEMP VIEW emp AS SELECT 7 AS id", Reason.NOT_ALLOWED),
    "insert": ("INSERT INTO emp(id) VALUES (9)", Reason.NOT_ALLOWED),
    "insert behind WITH": ("WITH x AS (SELECT 9) INSERT INTO emp(id) SELECT * FROM x", Reason.NOT_ALLOWED),
    "delete behind WITH": ("WITH x AS (SELECT 1) DELETE FROM emp WHERE id IN x RETURNING id", Reason.NOT_ALLOWED),
    "drop": ("DROP TABLE emp", Reason.NOT_ALLOWED),
    "explain": ("EXPLAIN SELECT 1", Reason.NOT_ALLOWED),
    "begin": ("BEGIN EXCLUSIVE", Reason.NOT_ALLOWED),
    "two statements": ("SELECT 1; DROP TABLE emp", Reason.NOT_ALLOWED),
    "two queries": ("SELECT 1; SELECT 2", Reason.NOT_ALLOWED),
    "load code": ("SELECT load_extension('x.so')", Reason.NOT_ALLOWED),
    "luck": ("SELECT id FROM emp ORDER BY random() LIMIT 1", Reason.NOT_ALLOWED),
    "other statements of the connection": ("SELECT sql FROM sqlite_stmt", Reason.NOT_ALLOWED),
    "rows without end": (ENDLESS + "i FROM n", Reason.TOO_LARGE),
    "loop without end": (ENDLESS + "COUNT(*) FROM n", Reason.TIMEOUT),
    "cross join": (f"SELECT COUNT(*) FROM {', '.join(f'emp AS e{i}' for i in range(40))}", Reason.TIMEOUT),
    "large blob": ("SELECT zeroblob(900000000)", Reason.TOO_LARGE),
    "growing text": (ENDLESS.replace("i + 1", "i || i") + "MAX(LENGTH(i)) FROM n", Reason.TOO_LARGE),
    "wide result": (f"SELECT {', '.join(['hex(zeroblob(400000))'] * 100)}", Reason.TOO_LARGE),
    "large sort": (ENDLESS + "hex(zeroblob(400000 + i - i)) FROM n ORDER BY 1", Reason.TOO_LARGE),
    "large statement": ("SELECT '" + "x" * 200_000 + "'", Reason.TOO_LARGE),
    "deep expression": ("SELECT " + "(" * 2000 + "1" + ")" * 2000, Reason.ERROR),
    "long sum": ("SELECT " + "1+" * 2000 + "1", Reason.ERROR),
    "NUL": ("SELECT 1\x00", Reason.ERROR),
    "surrogate": ("SELECT '\ud800'", Reason.ERROR),
    "parameter": ("SELECT :p", Reason.ERROR),
    "unknown column": ("SELECT nothing FROM emp", Reason.ERROR),
    "no SQL": ("SELECT the best answer", Reason.ERROR),
    "empty": ("", Reason.NO_SOLUTION),
    "semicolons": (" ;; ", Reason.NO_SOLUTION),
    "comment": ("-- SELECT 1", Reason.NO_SOLUTION),
    "open comment": ("/* SELECT 1", Reason.NO_SOLUTION),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_statements_end_with_a_reason_and_without_a_trace(path, case, monkeypatch):
    monkeypatch.chdir(path.parent)
    sql, reason = HOSTILE[case]
    before = contents(path.parent)
    executor = Executor(Limits(steps=2_000_000, heap_bytes=100_000_000))
    begin = time.monotonic()
    failure = executor.run(path, sql)
    assert isinstance(failure, Failure), failure
    assert failure.reason is reason, failure
    assert failure.detail.isprintable()
    assert 0 < len(failure.detail) <= 200
    assert time.monotonic() - begin < 5
    assert executor.run(path, "SELECT id FROM emp ORDER BY id") == Rows(1, [(1,), (2,), (3,)])
    assert contents(path.parent) == before


def test_a_printed_bomb_is_cut_by_the_limit_on_a_value(path):
    assert Executor().run(path, "SELECT LENGTH(printf('%.*c', 9000000, 'x'))") == Rows(1, [(None,)])


def test_the_refused_function_is_named(path):
    assert "random" in Executor().run(path, "SELECT random()").detail


def test_the_budget_is_counted_in_steps_so_that_load_does_not_matter(path):
    """The same query passes or fails by its steps, however often and in whatever order it is run."""
    query = ENDLESS.replace("FROM n)", "FROM n WHERE i < 20000)") + "COUNT(*) FROM n"
    small, large = Executor(Limits(steps=200_000)), Executor(Limits(steps=400_000))
    for _ in range(3):
        assert small.run(path, query).reason is Reason.TIMEOUT
        assert large.run(path, query) == Rows(1, [(20000,)])
    assert "200000 steps" in small.run(path, query).detail


def test_the_clock_is_the_second_bound(path):
    begin = time.monotonic()
    failure = Executor(Limits(steps=10**12, seconds=0.2)).run(path, ENDLESS + "COUNT(*) FROM n")
    assert failure == Failure(Reason.TIMEOUT, "more than 0.2 seconds")
    assert time.monotonic() - begin < 2


def test_limits_on_rows_and_bytes_are_exact(path):
    three = "SELECT id FROM emp"
    assert isinstance(Executor(Limits(rows=3)).run(path, three), Rows)
    assert Executor(Limits(rows=2)).run(path, three) == Failure(Reason.TOO_LARGE, "more than 2 rows")
    assert isinstance(Executor(Limits(result_bytes=24)).run(path, three), Rows)
    assert Executor(Limits(result_bytes=23)).run(path, three).reason is Reason.TOO_LARGE


def test_missing_empty_and_foreign_files_are_the_users_to_repair(path, tmp_path):
    executor = Executor()
    empty, text, cut = (tmp_path / name for name in ("empty.sqlite", "text.sqlite", "cut.sqlite"))
    empty.touch()
    text.write_text("this is no database" * 1000)
    cut.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DatabaseError, match=r"no database file at .*missing\.sqlite"):
        executor.run(tmp_path / "missing.sqlite", "SELECT 1")
    for file in (empty, text, cut):
        with pytest.raises(DatabaseError, match=rf"{file.name}.*copy or create it anew") as caught:
            executor.run(file, "SELECT COUNT(*) FROM emp")
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "missing.sqlite").exists()


def test_a_file_with_unmerged_changes_is_refused_and_a_settled_one_is_read_without_new_files(path):
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO emp(id) VALUES (4)")
    writer.commit()
    with pytest.raises(DatabaseError, match=r"unmerged changes in emp\.sqlite-wal"):
        Executor().run(path, "SELECT COUNT(*) FROM emp")
    writer.close()
    before = contents(path.parent)
    assert Executor().run(path, "SELECT COUNT(*) FROM emp") == Rows(1, [(4,)])
    assert contents(path.parent) == before


def test_a_write_that_was_cut_short_is_refused(path, tmp_path):
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA cache_size=1")
    writer.execute("BEGIN")
    many = ENDLESS.replace("FROM n)", "FROM n WHERE i < 5000)")
    writer.execute(f"CREATE TABLE big AS {many} i, hex(zeroblob(100)) AS h FROM n")  # too much to stay in the cache
    crashed = tmp_path / "crashed"
    shutil.copytree(path.parent, crashed)
    writer.execute("ROLLBACK")
    writer.close()
    with pytest.raises(DatabaseError, match=r"unmerged changes in emp\.sqlite-journal"):
        Executor().run(crashed / path.name, "SELECT COUNT(*) FROM emp")


def test_threads_have_connections_of_their_own_and_many_files_do_not_pile_up(path, tmp_path):
    files = [Path(shutil.copy(path, tmp_path / f"{index}.sqlite")) for index in range(70)]
    executor = Executor()
    results: list[Rows | Failure] = []

    def ask() -> None:
        results.extend(executor.run(file, "SELECT COUNT(*) FROM emp") for file in files + files)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [Rows(1, [(3,)])] * 420
    ask()
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) < 200
