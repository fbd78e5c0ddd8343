"""The benchmarks in their official layouts: counts, ids, golds to the letter, splits, and what is said of faults."""

import json
import os
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from benchmark_files import (
    DATA,
    VISITS,
    bird_entry,
    write_ambiqt,
    write_ambrosia,
    write_bird,
    write_database,
    write_json,
    write_spider,
)
from conftest import ROOT
from toy import LetterSource

from datamodules.elite import EliteDataModule
from datamodules.sources import JsonlSource, ProblemSource
from datamodules.text_to_sql import AmbiqtSource, AmbrosiaSource, BirdSource, SpiderSource
from datamodules.text_to_sql.golds import golds_of, is_empty
from elite_lightning.domains.sql import CompactPrompt, DdlPrompt, SqlDomain
from elite_lightning.errors import UsageError

NO_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="the data beside the repository (../shared/data) are absent")
FULL = os.environ.get("ELITE_FULL_SWEEP") == "1"

LAYOUTS = {
    "bird": (write_bird, BirdSource),
    "spider": (write_spider, SpiderSource),
    "ambiqt": (write_ambiqt, AmbiqtSource),
    "ambrosia": (write_ambrosia, AmbrosiaSource),
}


def everything(source):
    return [problem for part in (source.train(), source.validation(), source.test()) for problem in part]


def ids(problems):
    return [problem.id for problem in problems]


@pytest.fixture(params=sorted(LAYOUTS))
def source(request, tmp_path):
    """A source of each kind on a small data set of our own."""
    write, kind = LAYOUTS[request.param]
    cache = {"cache": str(tmp_path / "cache")} if request.param == "ambiqt" else {}
    (tmp_path / "data").mkdir()
    return kind(str(write(tmp_path / "data")), **cache)


def test_every_source_gives_problems_that_its_domain_asks_and_accepts(source):
    assert isinstance(source, ProblemSource)
    problems = everything(source)
    assert len(set(ids(problems))) == len(problems) > 0
    json.dumps([dict(problem.data) for problem in problems])
    for problem in problems:
        prompt = source.domain.prompt(problem)
        assert problem.question in prompt
        assert "CREATE TABLE" in prompt
        for gold in golds_of(problem):
            asked = type(problem)(problem.id, problem.question, {**problem.data, "gold": gold})
            assert source.domain.verify(asked, gold).correct


def test_splits_share_no_problem_and_come_out_the_same_again(source):
    again = type(source)(source.root, **({"cache": source.cache} if isinstance(source, AmbiqtSource) else {}))
    for part in ("train", "validation", "test"):
        assert ids(getattr(source, part)()) == ids(getattr(again, part)())
    assert again.domain.fingerprint() == source.domain.fingerprint()


def test_reading_leaves_the_data_as_they_are(source, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    everything(source)
    source.domain.fingerprint()
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()} == before


def test_bird_takes_golds_and_evidence_from_the_json_to_the_letter(tmp_path):
    source = BirdSource(str(write_bird(tmp_path)), databases=["schools"])
    entries = {f"bird-dev-{e['question_id']}": e for e in json.loads((tmp_path / "dev.json").read_text())}
    problems = everything(source)
    assert sorted(ids(problems)) == ["bird-dev-0", "bird-dev-1"]
    for problem in problems:
        assert problem.data["gold"] == entries[problem.id]["SQL"]  # closing semicolon and double spaces included
        assert problem.data["evidence"] == entries[problem.id]["evidence"]
        assert problem.data["difficulty"] == "simple"
    assert "Hint: many means > 0.3" in source.domain.prompt(min(problems, key=lambda problem: problem.id))
    (left_out,) = [note for note in source.notes() if "left out" in note]
    assert left_out == "left out, because a gold query cannot run: bird-dev-2 (error, no such column: missing)"


def test_bird_numbers_repeated_questions(tmp_path):
    source = BirdSource(str(write_bird(tmp_path)), evaluation="mini_dev", split_evaluation=False)
    expected = ["bird-mini_dev-0", "bird-mini_dev-3", "bird-mini_dev-0#2", "bird-mini_dev-10"]
    assert ids(source.test()) == expected
    assert source.test()[0].data == source.test()[2].data


def test_bird_trains_on_its_training_file_where_there_is_one(tmp_path):
    write_bird(tmp_path)
    for number in range(11):
        write_database(tmp_path / "train" / "train_databases", f"t{number}", VISITS)
    entry = {"question": "Who?", "SQL": "SELECT name FROM visitors"}  # without question_id, as the official file
    write_json(tmp_path / "train" / "train.json", [{"db_id": f"t{n % 11}", **entry} for n in range(22)])
    source = BirdSource(str(tmp_path))
    assert len(source.test()) == 12  # the whole of dev.json, less the gold that cannot run
    held = {problem.data["db_id"] for problem in source.validation()}
    trained = {problem.data["db_id"] for problem in source.train()}
    assert (len(held), len(trained), held & trained) == (1, 10, set())
    assert sorted(ids([*source.train(), *source.validation()])) == sorted(f"bird-train-{n}" for n in range(22))
    assert source.train()[0].data["database"].startswith("train/train_databases/")


def test_spider_keeps_the_case_of_names_and_flags_empty_databases(tmp_path):
    source = SpiderSource(str(write_spider(tmp_path)))
    assert {problem.data["database"] for problem in source.train()} == {"cre_Tours", "music_2"}
    assert {problem.data["database"] for problem in source.test()} == {"visits"}
    assert [p.data["gold"] for p in source.validation()] == ['SELECT  town FROM visitors WHERE name = "Javier" ;']
    notes = "\n".join(source.notes())
    assert "training file: 9 problems on 3 databases" in notes
    assert "without a single row, so that any query without a result is right: music_2 (1 problems)" in notes
    assert "spider-train-8 (error, no such table: Ref_Company_Types)" in notes
    with pytest.raises(UsageError, match=r"Spider has no database 'cre_tours': did you mean 'cre_Tours'\?"):
        SpiderSource(str(tmp_path), databases=["cre_tours"]).train()


def test_spider_without_a_training_file_shares_dev_out(tmp_path):
    write_spider(tmp_path)
    (tmp_path / "train_spider.json").rename(tmp_path / "dev.json")
    source = SpiderSource(str(tmp_path))
    parts = [{p.data["db_id"] for p in part} for part in (source.train(), source.validation(), source.test())]
    assert sorted(map(len, parts)) == [1, 1, 1]
    assert len(set().union(*parts)) == 3
    whole = SpiderSource(str(tmp_path), split_evaluation=False)
    assert (len(whole.train()), len(whole.test())) == (0, 8)


def test_one_database_is_shared_by_questions_and_numbers_are_limits(tmp_path):
    write_database(tmp_path / "dev_databases", "museums", VISITS)
    write_json(tmp_path / "dev.json", [bird_entry(n, "museums", f"q{n}", "SELECT 1") for n in range(100)])
    source = BirdSource(str(tmp_path), databases=["museums"])
    assert [len(source.train()), len(source.validation()), len(source.test())] == [60, 20, 20]
    assert any("fewer than three databases" in note for note in source.notes())
    few = BirdSource(str(tmp_path), train_problems=7, validation_problems=0, test_problems=5)
    assert [len(few.train()), len(few.validation()), len(few.test())] == [7, 0, 5]
    assert set(ids(few.train())) < set(ids(source.train()))
    more = BirdSource(str(tmp_path), train_problems=9)
    assert set(ids(few.train())) < set(ids(more.train()))  # more problems keep the fewer ones
    with pytest.raises(ValueError, match="at least 0, got"):
        BirdSource(str(tmp_path), test_problems=-1)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_database_keeps_its_split_when_others_go(tmp_path, split):
    for number in range(10):
        write_database(tmp_path / "dev_databases", f"d{number}", "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    entries = [bird_entry(n, f"d{n}", "q", "SELECT a FROM t") for n in range(10)]
    write_json(tmp_path / "dev.json", entries)
    whole = {p.data["db_id"] for p in getattr(BirdSource(str(tmp_path)), split)()}
    assert len(whole) == {"train": 6, "validation": 2, "test": 2}[split]


def test_ambiqts_databases_have_what_both_readings_need(tmp_path):
    (tmp_path / "data").mkdir()
    source = AmbiqtSource(str(write_ambiqt(tmp_path / "data")), cache=str(tmp_path / "cache"))
    problems = {problem.data["kind"]: problem for problem in everything(source)}
    assert sorted(problems) == ["col-synonyms", "tbl-agg", "tbl-split", "tbl-synonyms"]
    shown = {kind: source.domain.prompt(problem) for kind, problem in problems.items()}
    assert "years INTEGER" in shown["col-synonyms"]
    assert "born INTEGER" in shown["col-synonyms"]
    assert "age" not in shown["col-synonyms"]
    assert "CREATE TABLE guest (\n  id INTEGER PRIMARY KEY" in shown["tbl-synonyms"]
    assert "CREATE TABLE caller (\n  id INTEGER PRIMARY KEY" in shown["tbl-synonyms"]
    assert "visitors" not in shown["tbl-synonyms"]
    assert "CREATE TABLE visitors_age (\n  id INTEGER REFERENCES visitors (id)" in shown["tbl-split"]
    aggregated = problems["tbl-agg"]
    assert aggregated.data["golds"][1] == "select avg_spent, name from visits_museums_spent"
    folder = source.domain.databases / aggregated.data["database"]
    with closing(sqlite3.connect(folder / f"{folder.name}.sqlite")) as connection:
        rows = connection.execute("SELECT * FROM visits_museums_spent ORDER BY name").fetchall()
    # By hand from the four visits: Capital 10 and 320, Jefferson 5, Plaza 20.
    assert rows == [
        ("Capital", 2, 330, 165.0, 10, 320),
        ("Jefferson", 1, 5, 5.0, 5, 5),
        ("Plaza", 1, 20, 20.0, 20, 20),
    ]
    assert 'ambiqt-tbl-split-1 (gold 2: error, near "index": syntax error)' in "\n".join(source.notes())
    assert aggregated.data["original"]["database"] == "museums"
    assert problems["tbl-split"].data["ambiguity"]["split_map"] == {"visitors": "age"}


def test_ambrosia_has_every_interpretation_and_tells_equal_names_apart(tmp_path):
    source = AmbrosiaSource(str(write_ambrosia(tmp_path)))
    problems = {problem.data["database"]: problem for problem in everything(source)}
    counts = {name: len(problem.data["golds"]) for name, problem in problems.items()}
    assert counts == {
        "scope/Travel/museums": 2,
        "attachment/Travel/museums": 2,
        "vague/Travel/museums": 3,
        "vague/Art/museums": 2,
    }
    assert all(problem.data["gold"] == problem.data["golds"][0] for problem in problems.values())
    assert problems["vague/Art/museums"].data["kind"] == "vague"


@pytest.mark.parametrize(
    ("break_it", "kind", "words"),
    [
        (lambda root: None, lambda root: BirdSource(None), ["BIRD", "--data.root"]),
        (lambda root: None, lambda root: BirdSource(str(root / "no")), ["no folder at", "data.root"]),
        (lambda root: (root / "dev.json").unlink(), BirdSource, ["dev.json", "evaluation=mini_dev"]),
        # BIRD's dev.json is not Spider's.
        (lambda root: None, SpiderSource, ["dev.json", "entry 0", "'query'"]),
        (lambda root: None, AmbrosiaSource, ["AMBROSIA", "examples.json", "data.root"]),
        (lambda root: None, AmbiqtSource, ["col-synonyms/validation.json", "data.root"]),
        (lambda root: (root / "dev.json").write_text("{}"), BirdSource, ["dev.json", "JSON list"]),
        (lambda root: (root / "dev.json").write_text("[1"), BirdSource, ["dev.json", "not valid JSON"]),
        (
            lambda root: write_json(root / "dev.json", [{"db_id": "a", "question": "q"}]),
            BirdSource,
            ["entry 0", "'SQL'"],
        ),
        (
            lambda root: (root / "dev_databases" / "Tours" / "Tours.sqlite").unlink(),
            BirdSource,
            ["1 databases are missing", "Tours.sqlite", "databases"],
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_clear_line(tmp_path, break_it, kind, words):
    root = write_bird(tmp_path)
    break_it(root)
    source = kind(str(root)) if isinstance(kind, type) else kind(root)
    with pytest.raises(UsageError) as raised:
        source.train()
    assert all(word in str(raised.value) for word in words), raised.value
    assert "\n" not in str(raised.value)


def test_the_folder_can_be_named_at_the_data_module(tmp_path):
    root = str(write_bird(tmp_path))
    assert ids(EliteDataModule(BirdSource(), root=root).source.test()) == ids(BirdSource(root).test())
    assert EliteDataModule(BirdSource(root), root=root).source.root == root
    with pytest.raises(UsageError, match="set only one of them"):
        EliteDataModule(BirdSource("elsewhere"), root=root)
    with pytest.raises(UsageError, match="LetterSource reads no data set's folder"):
        EliteDataModule(LetterSource(), root=root)


def test_json_lines_ask_about_databases_of_ones_own(tmp_path):
    write_database(tmp_path / "databases" / "ours", "museums", VISITS)
    line = {"id": "a", "question": "Who?", "data": {"database": "ours/museums", "gold": "SELECT name FROM visitors"}}
    (tmp_path / "train.jsonl").write_text(json.dumps(line) + "\n")
    domain = SqlDomain(tmp_path / "databases", prompts=DdlPrompt())
    (problem,) = JsonlSource(domain, str(tmp_path / "train.jsonl")).train()
    assert "CREATE TABLE visitors" in domain.prompt(problem)
    assert domain.verify(problem, "SELECT v.name FROM visitors v").correct
    assert domain.fingerprint() != SqlDomain(tmp_path / "databases", prompts=CompactPrompt()).fingerprint()


def test_the_guide_shows_each_configuration_and_names_its_files():
    guide = (ROOT / "docs" / "text_to_sql.md").read_text()
    for name in LAYOUTS:
        assert f"python train.py fit --config configs/{name}.yaml --data.root DIR" in guide


# The official files: counts and faults of the reference, measured independently of this code.


@NO_DATA
def test_bird_dev_and_mini_dev_have_their_official_numbers():
    root = str(DATA / "bird")
    dev = BirdSource(root, split_evaluation=False, check_golds=FULL)
    assert len(dev.test()) == 1534
    assert len({p.data["db_id"] for p in dev.test()}) == 11
    assert dev.test()[5].data["gold"] == json.loads((DATA / "bird" / "dev.json").read_text())[5]["SQL"]
    mini = BirdSource(root, evaluation="mini_dev", split_evaluation=False, check_golds=FULL)
    assert len(mini.test()) == 500
    repeated = [p.id for p in mini.test() if "#" in p.id]
    assert repeated == ["bird-mini_dev-137#2", "bird-mini_dev-138#2"]
    superhero = BirdSource(root, databases=["superhero"])
    assert len(everything(superhero)) == 129


@NO_DATA
def test_birds_descriptions_reach_the_prompt_whatever_their_encoding():
    source = BirdSource(str(DATA / "bird"), check_golds=False, prompts=DdlPrompt(None, description_characters=2000))
    shown = {p.data["db_id"]: source.domain.prompt(p) for p in everything(source)}
    assert "\u2022 Slow: 1-33" in shown["european_football_2"]  # Windows-1252
    assert "\u2022 Closed: It means" in shown["student_club"]
    assert "short-form Grand Prix \u2013 a race" in shown["formula_1"]
    assert "0: N; 1: Y" in shown["california_schools"]  # behind a byte-order mark
    assert '"Percent (%) Eligible Free (K-12)" REAL' in shown["california_schools"]
    assert 'CREATE TABLE "order" (' in shown["financial"]
    assert not any("\ufeff" in text for text in shown.values())
    # One official file has replacement characters in its own bytes; none comes from reading.
    (own,) = [path for path in sorted((DATA / "bird").rglob("*.csv")) if b"\xef\xbf\xbd" in path.read_bytes()]
    counts = {name: text.count("\ufffd") for name, text in shown.items() if "\ufffd" in text}
    assert counts == {own.parents[1].name: own.read_bytes().count(b"\xef\xbf\xbd")}


@NO_DATA
def test_spider_has_its_official_numbers_and_three_golds_that_cannot_run():
    databases = None if FULL else ["assets_maintenance", "document_management", "music_2", "cre_Doc_Template_Mgt"]
    source = SpiderSource(str(DATA / "spider"), databases=databases)
    problems = everything(source)
    notes = "\n".join(source.notes())
    assert "training file: 7000 problems on 140 databases" in notes
    assert "evaluation file: 1034 problems on 20 databases" in notes
    for name, why in {
        "spider-train-3153": "no such table: Ref_Company_Types",
        "spider-train-4513": "ORDER BY clause should come after INTERSECT not before",
        "spider-train-4514": "ORDER BY clause should come after INTERSECT not before",
    }.items():
        assert f"{name} (error, {why})" in notes
    assert "music_2 (100 problems)" in notes
    if FULL:
        assert len(problems) == 7000 - 3 + 1034


@NO_DATA
def test_spiders_empty_databases_are_the_seven_known_ones():
    empty = [path.parent.name for path in sorted((DATA / "spider" / "database").glob("*/*.sqlite")) if is_empty(path)]
    assert empty == ["academic", "geo", "imdb", "music_2", "restaurants", "scholar", "yelp"]


@NO_DATA
def test_ambiqts_readings_run_but_for_the_known_ones(tmp_path):
    databases = None if FULL else ["concert_singer", "dog_kennels"]
    source = AmbiqtSource(str(DATA / "ambiqt"), databases=databases, cache=str(tmp_path))
    left = Counter(problem.data["kind"] for problem in everything(source))
    notes = "\n".join(source.notes())
    assert "evaluation file: 3046 problems on 20 databases" in notes
    if FULL:
        assert left == {"col-synonyms": 1220, "tbl-synonyms": 1409, "tbl-split": 288, "tbl-agg": 64}
    else:
        assert set(left) == {"col-synonyms", "tbl-synonyms", "tbl-split", "tbl-agg"}


@NO_DATA
def test_ambrosia_has_its_numbers():
    source = AmbrosiaSource(str(DATA / "other" / "ambrosia"), check_golds=FULL)
    problems = everything(source)
    assert Counter(p.data["kind"] for p in problems) == {"scope": 501, "attachment": 362, "vague": 414}
    assert len({p.data["database"] for p in problems}) == 846
    assert sum(len(p.data["golds"]) for p in problems) == 2965
