"""Scoring files of predictions: the formats, the counts, and agreement with the official script's rule item by item."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.sql.executor import Limits
from elite_lightning.domains.sql.prediction_files import (
    BIRD_SEPARATOR,
    GoldItem,
    read_predictions,
)
from elite_lightning.domains.sql.scoring import score_predictions
from elite_lightning.errors import UsageError
from elite_lightning.types import Reason

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = sorted((DATA / "other/predictions/bird_mini_dev").glob("*.json"))

GOLDS = [
    GoldItem("a", "SELECT name FROM emp", "firm", "simple"),
    GoldItem("b", "SELECT id FROM emp ORDER BY id DESC", "firm", "simple"),
    GoldItem("c", "SELECT id FROM emp WHERE id > 9", "firm", "moderate"),
    GoldItem("d", "SELECT nil FROM emp", "firm", "moderate"),
]


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "firm").mkdir()
    with closing(sqlite3.connect(tmp_path / "firm" / "firm.sqlite")) as connection:
        connection.execute("CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO emp VALUES (?, ?)", [(1, "Ann"), (2, "Bob"), (3, "Ann")])
        connection.commit()
    return tmp_path


def write(folder: Path, name: str, content) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_counts_scores_and_errors_by_rule_and_difficulty(root, workers):
    predictions = ["SELECT DISTINCT name FROM emp", "SELECT id FROM emp", "SELECT 1 WHERE 0", "SELECT id FROM emp"]
    scores = score_predictions(GOLDS, predictions, root, ("default", "bird_ex", "soft_f1"), workers=workers)
    summary = scores.summary()
    assert summary["bird_ex"] == {
        "all": {"items": 4, "correct": 3, "score": 0.75},
        "by_difficulty": {
            "simple": {"items": 2, "correct": 2, "score": 1.0},
            "moderate": {"items": 2, "correct": 1, "score": 0.5},
        },
        "errors": {"gold_failed": 1},
        "empty": 1,
        "gold_failed": ["d"],
        "unjudged": [],
    }
    assert summary["default"]["all"] == {"items": 4, "correct": 1, "score": 0.25}
    assert summary["default"]["errors"] == {"wrong_result": 2, "gold_failed": 1}
    # soft F1 pairs rows by position: of 3, 2, 1 against 1, 2, 3 only the middle one hits
    assert summary["soft_f1"]["all"]["score"] == pytest.approx((1 + 1 / 3 + 1 + 0) / 4)
    assert [verdict.correct for verdict in scores.verdicts["bird_ex"]] == [True, True, True, False]
    assert "no such column: nil" in scores.verdicts["bird_ex"][3].detail
    assert json.loads(json.dumps(summary)) == summary


def test_predictions_are_run_as_they_are_written(root):
    answers = ["```sql\nSELECT name FROM emp\n```", "", "DROP TABLE emp", "SELECT wrong too"]
    verdicts = score_predictions(GOLDS, answers, root, ("bird_ex",), workers=0).verdicts["bird_ex"]
    assert [verdict.reason for verdict in verdicts] == [
        *(Reason.ERROR, Reason.NO_SOLUTION, Reason.NOT_ALLOWED, Reason.GOLD_FAILED)
    ]


def test_a_missing_database_a_wrong_rule_and_a_wrong_number_are_the_users_to_repair(root):
    with pytest.raises(UsageError, match=r"no database file at .*shop"):
        score_predictions([GoldItem("a", "SELECT 1", "shop")], ["SELECT 1"], root, workers=0)
    with pytest.raises(UsageError, match="no comparison rule is called 'ex'"):
        score_predictions(GOLDS, ["SELECT 1"] * 4, root, ("ex",))
    with pytest.raises(UsageError, match="3 predictions for 4 questions"):
        score_predictions(GOLDS, ["SELECT 1"] * 3, root)


def test_birds_format_is_paired_by_position_and_says_so_when_keys_are_out_of_order(tmp_path):
    values = [f"SELECT 1{BIRD_SEPARATOR}firm", "SELECT 2 ", None, f"SELECT 3{BIRD_SEPARATOR}shop"]
    straight = read_predictions(write(tmp_path, "p.json", {str(i): v for i, v in enumerate(values)}), GOLDS)
    assert straight.sql == ["SELECT 1", "SELECT 2", "", "SELECT 3"]
    assert len(straight.warnings) == 1
    assert "1 of 4 predictions name another database" in straight.warnings[0]
    sorted_keys = dict(zip(["0", "1", "10", "2"], values, strict=True))
    shuffled = read_predictions(write(tmp_path, "q.json", sorted_keys), GOLDS)
    assert shuffled.sql == straight.sql
    assert "paired with questions by position, not by key" in shuffled.warnings[0]


def test_spiders_format_is_one_query_a_line(tmp_path):
    plain = write(tmp_path, "p.txt", "SELECT 1\nSELECT 2\t0.9\n\nSELECT\x0b4\n")
    assert read_predictions(plain, GOLDS).sql == ["SELECT 1", "SELECT 2", "", "SELECT\x0b4"]
    parted = write(tmp_path, "q.txt", "SELECT 1\n\nSELECT 2\nSELECT 3\n\n\nSELECT 4\n\n")
    assert read_predictions(parted, GOLDS).sql == ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4"]
    scored = write(tmp_path, "r.txt", "\tSELECT 1\n \t SELECT 2\t0.9\r\n\nSELECT 4")
    assert read_predictions(scored, GOLDS).sql == ["SELECT 1", "SELECT 2", "", "SELECT 4"]


@pytest.mark.parametrize(("end", "warned"), [("\n\n", False), ("\n\n\n", False), ("\n", True)])
def test_the_last_prediction_may_be_empty(tmp_path, end, warned):
    """Lines that each end, an empty line more, and lines that are only parted; the last could be a file cut short."""
    found = read_predictions(write(tmp_path, "p.txt", "SELECT 1\n\nSELECT 3" + end), GOLDS)
    assert found.sql == ["SELECT 1", "", "SELECT 3", ""]
    assert bool(found.warnings) is warned


def test_a_rule_that_runs_a_query_a_hundred_times_has_the_time_for_it(root):
    """One run takes some 0.02 seconds: within the limit of a query, while a hundred of both are not within 0.6."""
    slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) SELECT COUNT(*) FROM n"
    scores = score_predictions(
        [GoldItem("a", slow, "firm")], [slow], root, ("r_ves", "bird_ex"), limits=Limits(seconds=2.0), timeout_s=0.6
    )
    assert {rule: (score.all.correct, score.errors) for rule, score in scores.rules.items()} == {
        "r_ves": (1, {}),
        "bird_ex": (1, {}),
    }
    assert list(scores.rules) == ["r_ves", "bird_ex"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.json", "SELECT 1", r"p\.json is not JSON .* use another ending than \.json"),
        ("p.json", "[1, 2, 3, 4]", r"p\.json is no JSON object \(list\)"),
        ("p.json", '{"0": "SELECT 1"}', r"p\.json has 1 predictions for 4 questions: give one for each"),
        ("p.txt", "SELECT 1\nSELECT 2\n", r"p\.txt has 2 predictions for 4 questions"),
        ("p.txt", "1\n2\n3\n4\n5", r"p\.txt has 5 predictions for 4 questions"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path, name, content, message):
    with pytest.raises(UsageError, match=message) as caught:
        read_predictions(write(tmp_path, name, content), GOLDS)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"none\.json cannot be read \(No such file"):
        read_predictions(tmp_path / "none.json", GOLDS)
    (tmp_path / "latin.txt").write_bytes(b"SELECT '\xe9'\n")
    with pytest.raises(UsageError, match=r"latin\.txt is not UTF-8 \(byte 8\)"):
        read_predictions(tmp_path / "latin.txt", GOLDS)


def official_rule(path: Path, predicted: str, gold: str) -> int:
    """What bird-bench/mini_dev's evaluation_ex.py computes, but that the file cannot be written to."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            predicted_rows = connection.execute(predicted).fetchall()
            gold_rows = connection.execute(gold).fetchall()
        return int(set(predicted_rows) == set(gold_rows))
    except Exception:
        return 0


@pytest.mark.skipif(not FILES, reason="the BIRD mini-dev predictions (../shared/data/other/predictions) are absent")
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem.split("_")[3])
def test_bird_ex_agrees_with_the_official_rule_item_by_item(file):
    """All 500 of each file with ELITE_FULL_SWEEP=1, else every fifth."""
    questions = json.loads((DATA / "bird/mini_dev_sqlite.json").read_text())
    golds = [GoldItem(str(i), q["SQL"], q["db_id"], q["difficulty"]) for i, q in enumerate(questions)]
    databases = DATA / "bird/dev_databases"
    predicted = read_predictions(file, golds)
    assert predicted.warnings == []
    raw = [value.split(BIRD_SEPARATOR)[0] for value in json.loads(file.read_text()).values()]
    step = 1 if os.environ.get("ELITE_FULL_SWEEP") == "1" else 5
    golds, raw = golds[::step], raw[::step]
    expected = [
        official_rule(databases / gold.database / f"{gold.database}.sqlite", sql, gold.sql)
        for gold, sql in zip(golds, raw, strict=True)
    ]
    scores = score_predictions(golds, predicted.sql[::step], databases, ("bird_ex",), workers=2)
    found = [int(verdict.correct) for verdict in scores.verdicts["bird_ex"]]
    assert {gold.id for gold, ours, theirs in zip(golds, found, expected, strict=True) if ours != theirs} == set()
    assert scores.rules["bird_ex"].all.score == sum(expected) / len(expected)
    counts = {level: share.items for level, share in scores.rules["bird_ex"].by_difficulty.items()}
    assert step != 1 or counts == {"simple": 148, "moderate": 250, "challenging": 102}
