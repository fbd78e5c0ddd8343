"""The journal keeps whole batches, belongs to one search, and says so in one line when it does not fit."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from elite_lightning.archive import Outcome
from elite_lightning.search import Attempt, JournalError, SearchJournal, SearchReport
from elite_lightning.types import Cell

META = {"method": "map_elites", "seed_samples": 8, "sampling.temperature": 1.0, "domain": "abc"}
ATTEMPTS = [
    Attempt(0, 0, 0, "p", None, (), "SELECT\n'ü\0'", "SELECT 'ü'", Outcome.INSERTED, 1.0, Cell("in", "flat")),
    Attempt(1, 0, 0, "q", None, (), "", None, Outcome.NO_SOLUTION, 0.0, None),
    Attempt(2, 0, 1, "p", "join", (0,), "x", "x", Outcome.WRONG_RESULT, 0.25, None, 7),
    Attempt(3, 1, 0, "p", "join", (0, 2), "y", "y", Outcome.REPLACED, 1.0, Cell("in", "flat")),
]


def test_attempts_come_back_as_they_were(tmp_path):
    path = tmp_path / "new" / "search.sqlite"
    with SearchJournal(path, META) as journal:
        for part in (ATTEMPTS[:2], ATTEMPTS[2:3], ATTEMPTS[3:]):
            journal.append(part)
    with SearchJournal(path, dict(reversed(META.items()))) as journal:
        assert list(journal.attempts()) == ATTEMPTS
        assert len(journal) == 4
        assert [journal.batch(0, 0), journal.batch(0, 1), journal.batch(1, 0), journal.batch(1, 1)] == [
            *(ATTEMPTS[:2], ATTEMPTS[2:3], ATTEMPTS[3:], [])
        ]


def test_other_tools_can_read_it(tmp_path):
    path = tmp_path / "search.sqlite"
    with SearchJournal(path, META) as journal:
        journal.append(ATTEMPTS)
        # Also while it is open.
        rows = sqlite3.connect(path).execute("SELECT id, asked, parents, outcome, approach FROM attempts").fetchall()
        assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert rows[3] == (3, "join", "[0, 2]", "replaced", "in")
    meta = dict(sqlite3.connect(path).execute("SELECT * FROM meta"))
    assert {key: json.loads(value) for key, value in meta.items()} == META


def test_a_journal_of_the_release_before_is_read_and_gone_on_with(tmp_path):
    """It had no column for tokens."""
    path = tmp_path / "search.sqlite"
    with SearchJournal(path, META) as journal:
        journal.append([replace(a, tokens=None) for a in ATTEMPTS[:3]])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE attempts DROP COLUMN tokens")
        connection.execute("PRAGMA user_version = 1")
    for meta in (None, META):
        with SearchJournal(path, meta) as journal:
            assert list(journal.attempts()) == [replace(a, tokens=None) for a in ATTEMPTS[:3]]
    with SearchJournal(path, META) as journal:
        journal.append([replace(ATTEMPTS[3], tokens=5)])
        assert [a.tokens for a in journal.attempts()] == [None, None, None, 5]
        assert SearchReport.of(journal.attempts(), 2).generated_tokens is None


def test_a_batch_is_written_whole_or_not_at_all(tmp_path):
    with SearchJournal(tmp_path / "search.sqlite", META) as journal:
        journal.append(ATTEMPTS[:2])
        with pytest.raises(JournalError, match="another process searches in the same run folder"):
            journal.append([ATTEMPTS[3], ATTEMPTS[1]])
        assert list(journal.attempts()) == ATTEMPTS[:2]
        journal.append(ATTEMPTS[2:])
        assert len(journal) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed_samples": 4}, "was written with seed_samples = 8, this run has 4"),
        ({"sampling.temperature": 0.7}, "with sampling.temperature = 1.0, this run has 0.7"),
        ({"domain": "abd"}, "with domain = 'abc', this run has 'abd'"),
        ({"more": 1}, "with more = None, this run has 1"),
    ],
)
def test_a_journal_of_another_search_is_refused_by_the_key_that_differs(tmp_path, change, message):
    path = tmp_path / "search.sqlite"
    with SearchJournal(path, META) as journal:
        journal.append(ATTEMPTS)
    with pytest.raises(JournalError, match=message) as error:
        SearchJournal(path, META | change)
    assert "\n" not in str(error.value)
    with SearchJournal(path) as journal:
        assert len(journal) == 4


def test_other_files_are_refused_and_left_alone(tmp_path):
    text, database, newer = tmp_path / "text", tmp_path / "database", tmp_path / "newer"
    text.write_text("not a database at all, whatever its length may be\n" * 99)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    SearchJournal(newer, META).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    for path, message in [
        (text, "file is not a database; move it away"),
        (database, "is not a search journal; move it away"),
        (newer, "is of version 3, this release reads version 2"),
        (tmp_path, "unable to open database file"),
    ]:
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(JournalError, match=message):
            SearchJournal(path, META)
        assert before is None or path.read_bytes() == before
    with pytest.raises(JournalError, match="no search journal"):
        SearchJournal(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_a_file_that_was_killed_before_its_first_line_is_begun(tmp_path):
    path = tmp_path / "search.sqlite"
    path.touch()
    with SearchJournal(path, META) as journal:
        assert len(journal) == 0
