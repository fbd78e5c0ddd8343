"""Gold as prediction is right on every data set under every rule; those that cannot run are known by name.

By default a sample of each set is run; ELITE_FULL_SWEEP=1 runs every query of every set.
"""

import json
import os
import random
from pathlib import Path

import pytest

from elite_lightning.domains.sql.prediction_files import GoldItem
from elite_lightning.domains.sql.scoring import score_predictions

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FULL = os.environ.get("ELITE_FULL_SWEEP") == "1"
SAMPLE = 60
RULES = (
    *("default", "bird_ex", "soft_f1", "spider_exec", "test_suite", "test_suite_keep_distinct", "ambiqt_direct"),
)  # all but r_ves, which times every query a hundred times

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the benchmarks beside the repository (../shared/data) are absent"
)


def from_json(path: str, sql: str = "query", name: str = "") -> list[GoldItem]:
    items = json.loads((DATA / path).read_text())
    return [
        GoldItem(f"{name or Path(path).stem} {index}", item[sql], item["db_id"]) for index, item in enumerate(items)
    ]


def ambiqt() -> list[GoldItem]:
    kinds = ("col-synonyms", "tbl-synonyms", "tbl-split", "tbl-agg")
    return [
        item for kind in kinds for item in from_json(f"ambiqt/benchmark/{kind}/validation.json", "orig_query", kind)
    ]


def ambrosia() -> list[GoldItem]:
    root = DATA / "other/ambrosia/data"
    items = []
    for path in sorted(root.rglob("examples.json")):
        database = path.parent.relative_to(root).as_posix()
        for number, example in enumerate(json.loads(path.read_text())):
            queries = {key: sql for key, sql in example.items() if key.startswith("sql_query") and "general" not in key}
            items += [GoldItem(f"{database} {number} {key}", sql, database) for key, sql in queries.items() if sql]
    return items


def kaggle_dbqa() -> list[GoldItem]:
    folder = "other/kaggle-dbqa"
    names = sorted(path.name for path in (DATA / folder / "databases").iterdir())
    return [item for name in names for item in from_json(f"{folder}/examples/{name}.json")]


# The official number of golds without rows, on own databases; measured for the files in ../shared/data.
def train_gold():
    """SQL, a tab and a database a line."""
    lines = (DATA / "spider/train_gold.sql").read_text().splitlines()
    parted = ((number, *line.rpartition("\t")) for number, line in enumerate(lines, start=1) if line.strip())
    return [GoldItem(f"line {number}", sql, database.strip()) for number, sql, _, database in parted]


EMPTY = {
    **{
        "spider dev": 57,
        "spider dev on variants": 57,
        "spider train": 259,
        "spider train_gold.sql": 1621,
        "bird dev": 74,
    },
    **{"bird mini-dev": 33, "kaggle-dbqa": 0, "spider-dk": 58, "spider-syn": 54, "spider-realistic": 40},
}

SETS = {  # golds, folder of databases, folder of copies, number of golds, those that cannot run
    "spider dev": (lambda: from_json("spider/dev.json"), "spider/database", None, 1034, []),
    "spider dev on variants": (
        *(lambda: from_json("spider/dev.json"), "spider/database", "spider/test_suite_database", 1034, []),
    ),
    "spider train": (
        lambda: from_json("spider/train_spider.json"),
        *("spider/database", None, 7000, ["train_spider 3153", "train_spider 4513", "train_spider 4514"]),
    ),
    "spider train_gold.sql": (
        train_gold,
        *("spider/database", None, 8659, ["line 4398", "line 5939", "line 5940"]),
    ),
    "bird dev": (lambda: from_json("bird/dev.json", "SQL"), "bird/dev_databases", None, 1534, []),
    "bird mini-dev": (lambda: from_json("bird/mini_dev_sqlite.json", "SQL"), "bird/dev_databases", None, 500, []),
    "ambiqt": (ambiqt, "ambiqt/db-content/database", None, 3046, []),
    "ambrosia": (ambrosia, "other/ambrosia/data", None, 2965, []),
    "kaggle-dbqa": (kaggle_dbqa, "other/kaggle-dbqa/databases", None, 87, []),
    "spider-syn": (lambda: from_json("other/spider-syn/dev.json"), "spider/database", None, 1034, []),
    "spider-dk": (lambda: from_json("other/spider-dk/Spider-DK.json"), "spider-dk", None, 535, ["Spider-DK 76"]),
    "spider-realistic": (
        *(lambda: from_json("other/ibm-toolkit/spider-realistic.json"), "spider/database", None, 508, []),
    ),
}


@pytest.fixture
def spider_dk(tmp_path) -> Path:
    """Spider-DK's own databases beside Spider's, as its README asks for."""
    for folder in (DATA / "spider/database", DATA / "other/spider-dk/database"):
        for database in folder.iterdir():
            (tmp_path / database.name).symlink_to(database)
    return tmp_path


@pytest.mark.parametrize("name", SETS)
def test_gold_as_prediction_is_right_under_every_rule(name, spider_dk):
    read, databases, copies, count, broken = SETS[name]
    golds = read()
    assert len(golds) == count
    if not FULL:
        golds = random.Random(0).sample(golds, SAMPLE) + [gold for gold in golds if gold.id in broken]
    copies = DATA / copies if copies else None
    folder = spider_dk if databases == "spider-dk" else DATA / databases
    scores = score_predictions(
        golds, [gold.sql for gold in golds], folder, RULES, copies, workers=2 if FULL else 0, timeout_s=300
    )
    if FULL and name in EMPTY:
        assert scores.rules["bird_ex"].empty == EMPTY[name]
    for rule in RULES:
        failed = scores.rules[rule].gold_failed
        assert sorted(set(failed)) == sorted(broken), rule
        wrong = {gold.id: v for gold, v in zip(golds, scores.verdicts[rule], strict=True) if not v.correct}
        assert sorted(wrong) == sorted(set(failed)), (rule, wrong)
