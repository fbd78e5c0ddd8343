"""Running untrusted SQL: what it may not do, what stops it, and what is the user's fault instead."""

import gc
import hashlib
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.sql.compare import Rows
from elite_lightning.domains.sql.executor import DatabaseError, Executor, Failure, Limits
from elite_lightning.domains.sql.result_cache import ResultCache
from elite_lightning.domains.sql.scoring import ScoringDomain
from elite_lightning.types import Problem, Reason
from elite_lightning.verify import VerificationPool

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


def test_virtual_tables_can_be_read_and_nothing_else(tmp_path):
    path = tmp_path / "v.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE VIRTUAL TABLE note USING fts5(text); CREATE VIRTUAL TABLE old USING fts4(text);"
            'CREATE VIRTUAL TABLE "a""b" USING rtree(id, low, high);'
            "INSERT INTO note VALUES ('red kite'), ('blue'); INSERT INTO old VALUES ('red kite');"
            'INSERT INTO "a""b" VALUES (1, 2, 3); PRAGMA writable_schema = ON;'
            "INSERT INTO sqlite_master VALUES ('table', 'gone', 'gone', 0, 'CREATE VIRTUAL TABLE gone USING voyage')"
        )
    before, executor = path.read_bytes(), Executor()
    for query, rows in {
        "SELECT highlight(note, 0, '<', '>') FROM note WHERE note MATCH 'kite'": [("red <kite>",)],
        "SELECT text FROM note WHERE rowid = 2": [("blue",)],
        "SELECT text FROM old WHERE old MATCH 'kite'": [("red kite",)],
        'SELECT * FROM "a""b" WHERE low < 2.5': [(1, 2.0, 3.0)],
    }.items():
        assert executor.run(path, query).rows == rows
        assert Executor().run(path, query).rows == rows  # as the first query of a connection too
    assert executor.run(path, "SELECT * FROM gone") == Failure(Reason.ERROR, "no such module: voyage")
    for write in ("INSERT INTO note VALUES ('x')", 'DELETE FROM "a""b"', "INSERT INTO old(old) VALUES ('optimize')"):
        assert executor.run(path, f"WITH x AS (SELECT 1) {write}").reason is Reason.NOT_ALLOWED
    assert path.read_bytes() == before


def test_a_printed_bomb_is_cut_by_the_limit_on_a_value(path):
    assert Executor().run(path, "SELECT LENGTH(printf('%.*c', 9000000, 'x'))") == Rows(1, [(None,)])


def test_the_refused_function_is_named(path):
    assert "random" in Executor().run(path, "SELECT random()").detail


def test_the_budget_is_counted_in_steps_so_that_load_does_not_matter(path):
    """The same query passes or fails by its steps, however often and in whatever order it is run."""
    query = ENDLESS.replace("FROM n)", "FROM n WHERE i < 20000)") + "COUNT(*) FROM n"
    small, large = Executor(Limits(steps=200_000)), Executor(Limits(steps=400_000))
    for _ in range(3):
        assert small.run(path, query).reason is Reason.TOO_MANY_STEPS
        assert large.run(path, query) == Rows(1, [(20000,)])
    assert "200000 steps" in small.run(path, query).detail


def test_the_clock_is_the_second_bound(path):
    begin = time.monotonic()
    failure = Executor(Limits(steps=10**12, seconds=0.2)).run(path, ENDLESS + "COUNT(*) FROM n")
    assert failure == Failure(Reason.TIMEOUT, "more than 0.2 seconds")
    assert time.monotonic() - begin < 2


def test_every_limit_is_exact_and_has_its_own_reason(path):
    three = "SELECT id FROM emp"
    assert isinstance(Executor(Limits(rows=3)).run(path, three), Rows)
    assert Executor(Limits(rows=2)).run(path, three) == Failure(Reason.TOO_MANY_ROWS, "more than 2 rows")
    assert isinstance(Executor(Limits(result_bytes=24)).run(path, three), Rows)
    assert Executor(Limits(result_bytes=23)).run(path, three).reason is Reason.TOO_LARGE
    assert isinstance(Executor(Limits(value_bytes=1000)).run(path, "SELECT hex(zeroblob(499))"), Rows)
    assert Executor(Limits(value_bytes=1000)).run(path, "SELECT hex(zeroblob(501))").reason is Reason.TOO_LARGE
    assert isinstance(Executor(Limits(sql_bytes=len(three))).run(path, three), Rows)
    assert Executor(Limits(sql_bytes=len(three) - 1)).run(path, three) == Failure(
        Reason.TOO_LONG, f"the query is longer than {len(three) - 1} bytes"
    )
    accents = "SELECT 'éé'"
    assert isinstance(Executor(Limits(sql_bytes=len(accents) + 2)).run(path, accents), Rows)
    assert Executor(Limits(sql_bytes=len(accents) + 1)).run(path, accents).reason is Reason.TOO_LONG


def test_time_within_one_function_counts(path):
    """SQLite asks nobody while printf runs, and then has a result to offer."""
    slow = "SELECT LENGTH(printf('%.*c', 60000000, 'x'))"
    assert Executor(Limits(seconds=0.02)).run(path, slow) == Failure(Reason.TIMEOUT, "more than 0.02 seconds")
    assert Executor().run(path, slow) == Rows(1, [(None,)])


def test_memory_is_judged_without_what_other_databases_hold(path, tmp_path):
    """A process of its own: SQLite never raises the limit on its heap again."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, shutil\n"
        "from pathlib import Path\n"
        "from elite_lightning.domains.sql.executor import Executor, Limits\n"
        "path, folder = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "executor = Executor(Limits(heap_bytes=8_000_000, value_bytes=10_000_000))\n"
        "query = 'SELECT length(group_concat(b)) FROM (SELECT hex(zeroblob(%d)) AS b ORDER BY 1)'\n"
        "print(executor.run(path, query % 500_000)[0])\n"
        "for index in range(60):\n"
        "    copy = shutil.copy(path, folder / f'{index}.sqlite')\n"
        "    executor.run(Path(copy), 'SELECT COUNT(*) FROM emp')\n"
        "print(executor.run(path, (query + ' ') % 500_000)[0])\n"
        "print(executor.run(path, query % 4_000_000)[0])\n"
        "print(executor.run(path, 'SELECT COUNT(*) FROM emp'))\n"
    )
    command = [sys.executable, str(program), str(path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.splitlines() == ["1", "1", "out_of_memory", "Rows(columns=1, rows=[(3,)])"]


def test_results_are_remembered_by_content_and_text(path, tmp_path):
    executor, query = Executor(), "SELECT id FROM emp"
    first = executor.run(path, query)
    twin = Path(shutil.copy(path, tmp_path / "twin.sqlite"))
    assert executor.run(path, query) is first
    assert executor.run(twin, query) is first
    assert executor.run(twin, query + " ") is not first
    failure = executor.run(path, "SELECT x FROM emp")
    assert executor.run(twin, "SELECT x FROM emp") is failure
    with closing(sqlite3.connect(twin)) as connection:
        connection.execute("DELETE FROM emp WHERE id > 1")
        connection.commit()
    assert executor.run(twin, query) == Rows(1, [(1,)])
    assert executor.run(path, query) is first
    twin.unlink()
    with pytest.raises(DatabaseError, match="no database file"):
        executor.run(twin, query)


@pytest.mark.parametrize(
    "query",
    ["SELECT CURRENT_TIMESTAMP", "SELECT strftime('%f')", "SELECT julianday('n' || 'ow')", "SELECT unixepoch()"],
)
def test_what_sees_the_clock_is_run_again(path, query):
    executor = Executor()
    assert executor.run(path, query) is not executor.run(path, query)


def test_what_the_clock_stopped_is_tried_again_and_what_steps_stopped_is_not(path):
    clock = Executor(Limits(steps=10**12, seconds=0.05))
    endless = ENDLESS + "COUNT(*) FROM n"
    assert clock.run(path, endless) is not clock.run(path, endless)
    steps = Executor(Limits(steps=100_000))
    assert steps.run(path, endless) is steps.run(path, endless)


def test_what_is_remembered_has_a_bound():
    cache = ResultCache(100_000)
    for index in range(1000):
        cache.put(b"db", f"SELECT {index}", Rows(1, [("x" * 900,)]), 900)
        assert cache.bytes <= 100_000
        assert cache.get(b"db", "SELECT 0") is not None  # used each time, so it stays
    assert 50 < len(cache) < 110
    assert cache.get(b"db", "SELECT 1") is None
    assert cache.get(b"db", "SELECT 999") == Rows(1, [("x" * 900,)])
    assert cache.get(b"other", "SELECT 999") is None
    cache.put(b"db", "large", Rows(1, [("x" * 30_000,)]), 30_000)
    assert cache.get(b"db", "large") is None


def test_names_hold_foreign_keys_with_and_without_a_named_column(tmp_path):
    with closing(sqlite3.connect(tmp_path / "k.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE Dept(No INTEGER PRIMARY KEY, title);"
            "CREATE TABLE emp(id, boss REFERENCES emp(ID), dept REFERENCES dept, gone REFERENCES nowhere);"
        )
    assert set(Executor().names(tmp_path / "k.sqlite").references) == {
        (("emp", "boss"), ("emp", "id")),
        (("emp", "dept"), ("dept", "no")),
    }


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

    def open_files():
        # Of these files alone: other tests of this process may have left connections of their own open.
        links = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return sum(link.startswith(str(tmp_path)) for link in links)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    gc.disable()  # files must not wait for the collector, which comes by seldom
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [Rows(1, [(3,)])] * 420
        del threads, thread
        assert open_files() == 0
    finally:
        gc.enable()
    ask()
    assert 0 < open_files() <= 2 * 64


def test_many_queries_leave_no_file_and_no_process_behind(path, tmp_path):
    """100,000 queries with ELITE_FULL_SWEEP=1, else 2,400, on more databases than stay open, good and bad by turns."""
    total = 100_000 if os.environ.get("ELITE_FULL_SWEEP") == "1" else 2_400
    for index in range(80):
        folder = tmp_path / f"db{index}"
        folder.mkdir()
        shutil.copy(path, folder / f"db{index}.sqlite")
    endless = ENDLESS + "i + {} FROM n"
    kinds = ["SELECT id FROM emp -- {}", "SELECT x{} FROM emp", "DROP TABLE emp -- {}", endless, "({}"]
    items = [
        (Problem(str(n), "?", {"database": f"db{n % 80}", "gold": "SELECT id FROM emp", "rule": "bird_ex"}),
         kinds[n % len(kinds)].format(n))
        for n in range(total)
    ]  # fmt: skip
    with VerificationPool(ScoringDomain(tmp_path, Limits(steps=20_000)), workers=1) as pool:
        pool.judge_many(items[:800])
        (worker,) = (process.pid for process in multiprocessing.active_children())
        files, own = len(os.listdir(f"/proc/{worker}/fd")), len(os.listdir("/proc/self/fd"))
        reasons = [part.verdict.reason for part in pool.judge_many(items[800:])]
        assert reasons == [*(None, Reason.ERROR, Reason.NOT_ALLOWED, Reason.TOO_MANY_STEPS, Reason.ERROR)] * (
            len(reasons) // 5
        )
        assert [process.pid for process in multiprocessing.active_children()] == [worker]
        assert len(os.listdir(f"/proc/{worker}/fd")) <= files + 2
        assert len(os.listdir("/proc/self/fd")) <= own + 2
    assert multiprocessing.active_children() == []
