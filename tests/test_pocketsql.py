"""PocketSQL: the generator's promises, checked against the domain that judges answers to it."""

import itertools
import random
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from functools import partial

import pytest
import sqlglot

from datamodules.pocketsql.databases import COPIES, nullable_keys, write_databases
from datamodules.pocketsql.demonstrations import PocketDemonstrations
from datamodules.pocketsql.families import FAMILIES
from datamodules.pocketsql.phrasings import conditions, filters, openers
from datamodules.pocketsql.problems import make_problems
from datamodules.pocketsql.schema_text import parse_schema
from datamodules.pocketsql.schemas import SPLITS
from datamodules.pocketsql.source import PocketSqlSource, prepare, split_schemas
from datamodules.pocketsql.words import NOUNS, held_out_names, pseudo_word
from elite_lightning.domains.sql import SqlDomain
from elite_lightning.domains.sql.labeler import APPROACHES, label_approach
from elite_lightning.types import Reason


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return PocketSqlSource(str(tmp_path_factory.mktemp("pocketsql")))


@pytest.fixture(scope="module")
def made(source):
    folder = source.folder / "databases"
    return {split: make_problems(split, SPLITS[split], folder, 96, 0) for split in SPLITS}


def test_sizes_and_ids(source):
    splits = [source.train(), source.validation(), source.test()]
    assert [len(split) for split in splits] == [1536, 96, 96]
    ids = [problem.id for split in splits for problem in split]
    assert len(set(ids)) == len(ids)
    questions = {(p.data["database"], p.question) for split in splits for p in split}
    assert len(questions) == len(ids)


def test_every_family_is_equally_frequent(source):
    counts = Counter(problem.data["family"] for problem in source.train())
    assert set(counts) == set(FAMILIES)
    assert max(counts.values()) - min(counts.values()) <= 25  # repeated questions are dropped


def test_databases_and_phrasings_are_held_out(source):
    databases = [{p.data["database"] for p in s} for s in (source.train(), source.validation(), source.test())]
    assert databases[0].isdisjoint(databases[1] | databases[2])
    assert databases[1].isdisjoint(databases[2])
    for phrasings in (*(partial(conditions, family=family) for family in FAMILIES), openers, filters):
        training, validation, test = (set(phrasings(split=split)) for split in SPLITS)
        assert len(training | validation | test) == len(training) + len(validation) + len(test)
        assert len(training) >= 4


def test_training_is_on_many_databases_without_held_out_names(source):
    assert len({problem.data["database"] for problem in source.train()}) > 240
    assert len({problem.data["database"] for problem in source.train()[:512]}) > 200
    training = split_schemas(0)["train"]
    assert len(training) == 256
    names = {table.name for schema in training.values() for table in schema.tables}
    names |= {column.name for schema in training.values() for table in schema.tables for column in table.columns}
    assert len(names) > 1000
    assert names.isdisjoint(held_out_names())


def test_every_known_solution_is_correct_for_the_domain(source, made):
    for problems in made.values():
        for item in problems:
            assert len(item.solutions) >= 3
            for solution in item.solutions:
                verdict = source.domain.verify(item.problem, solution)
                assert verdict.correct, (solution, verdict)


def test_solutions_of_a_problem_are_different_strategies(source, made):
    for item in made["train"]:
        keys = {source.domain.strategy(item.problem, solution) for solution in item.solutions}
        assert len(keys) == len(item.solutions), item.solutions


def test_solutions_of_a_problem_fill_different_cells(source, made):
    """Cells are coarser than strategies; nearly all solutions still have one of their own."""
    solutions = [(item.problem, solution) for item in made["train"] for solution in item.solutions]
    cells = {(problem.id, source.domain.cell(problem, solution)) for problem, solution in solutions}
    assert len(cells) >= 0.9 * len(solutions)


def test_a_solution_to_another_problem_is_wrong(source, made):
    by_database = defaultdict(list)
    for item in made["test"]:
        by_database[item.problem.data["database"]].append(item)
    verdicts = [
        source.domain.verify(one.problem, other.solutions[0])
        for items in by_database.values()
        for one, other in itertools.pairwise(items)
    ]
    wrong = [verdict for verdict in verdicts if verdict.reason is Reason.WRONG_RESULT]
    assert len(wrong) >= 0.95 * len(verdicts)


def test_rows_hold_nulls_ties_and_repeated_links(source):
    nulls = ties = repeated = 0
    for split in SPLITS.values():
        for schema in split.values():
            path = source.folder / "databases" / schema.name / f"{schema.name}.sqlite"
            with closing(sqlite3.connect(path)) as connection:
                assert not connection.execute("PRAGMA foreign_key_check").fetchall()
                for table in schema.tables:
                    rows = connection.execute(f"SELECT * FROM {table.name}").fetchall()
                    nulls += sum(cell is None for row in rows for cell in row)
                    keys = [column.name for column in table.all("reference")]
                    if keys:
                        links = connection.execute(f"SELECT {', '.join(keys)} FROM {table.name}").fetchall()
                        repeated += len(set(links)) < len(links)
                    elif table.is_entity:
                        number = table.all("number")[0].name
                        values = connection.execute(f"SELECT {number} FROM {table.name}").fetchall()
                        ties += len(set(values)) < len(values)
    databases = sum(map(len, SPLITS.values()))
    assert nulls > 3 * databases
    assert ties > databases
    assert repeated > databases / 2


def test_copies_have_other_rows(source):
    for folder in (source.folder / "databases").iterdir():
        contents = set()
        for path in folder.glob("*.sqlite"):
            with closing(sqlite3.connect(path)) as connection:
                contents.add("\n".join(connection.iterdump()))
        assert len(contents) == COPIES


def test_right_by_luck_on_one_copy_is_wrong(tmp_path):
    schema = parse_schema("luck", "things(id, name, kind{a b}, size#) parts(thing>things, mass#)")
    write_databases(schema, tmp_path, 0)
    item = make_problems("train", {"luck": schema}, tmp_path, 20, 0)[5]
    own = tmp_path / "luck" / "luck.sqlite"
    with closing(sqlite3.connect(own)) as connection:
        rows = connection.execute(item.solutions[0]).fetchall()
    values = " UNION ALL ".join("SELECT " + ", ".join(_literal(cell) for cell in row) for row in rows)
    verdict = SqlDomain(tmp_path).verify(item.problem, values)
    assert verdict.reason is Reason.WRONG_RESULT


def _literal(cell):
    return "NULL" if cell is None else str(cell) if isinstance(cell, int) else f"'{cell}'"


def test_the_benchmark_is_made_once_and_alike(source, tmp_path):
    again = prepare(tmp_path / "other", 0)
    for name in ("train", "validation", "test"):
        assert (again / f"{name}.jsonl").read_bytes() == (source.folder / f"{name}.jsonl").read_bytes()
    before = (again / "train.jsonl").stat().st_mtime_ns
    assert prepare(tmp_path / "other", 0) == again
    assert (again / "train.jsonl").stat().st_mtime_ns == before
    assert not list((tmp_path / "other").glob(".draft-*"))


def test_too_many_training_problems_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"train_problems must be between 1 and 1536, got 9999"):
        PocketSqlSource(str(tmp_path), train_problems=9999)


def test_demonstrations_are_a_function_of_seed_and_index():
    stream = PocketDemonstrations()
    assert stream.demonstration(7, 1) == PocketDemonstrations().demonstration(7, 1)
    assert len({stream.demonstration(index, 1).prompt for index in range(200)}) == 200
    assert stream.demonstration(7, 1) != stream.demonstration(7, 2)


def test_demonstrations_never_show_held_out_names_or_phrasings():
    stream, held = PocketDemonstrations(), held_out_names()
    assert {"musicians", "rehearsals", "hop", "vessels"} <= held
    for index in range(500):
        demonstration = stream.demonstration(index, 3)
        words = set(demonstration.prompt.replace("_", " ").split()) | set(demonstration.prompt.split())
        assert not words & {name for name in held if "_" not in name}, demonstration.prompt


def test_shares_of_demonstration_prompts():
    stream = PocketDemonstrations()
    prompts = [stream.demonstration(index, 5).prompt for index in range(1000)]
    targeted = sum("\napproach :" in prompt for prompt in prompts)
    parents = sum("\nparent :" in prompt for prompt in prompts)
    assert 440 <= targeted <= 560
    assert 200 <= parents <= 300


def test_a_demonstration_realises_the_approach_that_it_names():
    stream = PocketDemonstrations()
    for index in range(300):
        demonstration = stream.demonstration(index, 9)
        assert label_approach(demonstration.response) in APPROACHES
        for line in demonstration.prompt.splitlines():
            if line.startswith("approach : "):
                assert label_approach(demonstration.response) == line.removeprefix("approach : ")


def test_slips_are_wrong_in_one_detail_and_as_frequent_as_asked():
    clean, careless = PocketDemonstrations(slip_share=0.0), PocketDemonstrations(slip_share=0.35)
    pairs = [(clean.demonstration(i, 4), careless.demonstration(i, 4)) for i in range(600)]
    assert all(a.prompt == b.prompt for a, b in pairs)
    slipped = [(a.response, b.response) for a, b in pairs if a.response != b.response]
    assert 0.3 <= len(slipped) / len(pairs) <= 0.4
    assert all(label_approach(right) == label_approach(wrong) for right, wrong in slipped)


def test_nouns_are_plain_identifiers_for_sqlite_and_sqlglot():
    for noun in NOUNS:
        sql = f"SELECT MAX ( {noun} ) FROM {noun} AS t1 WHERE {noun} < 10 AND t1. {noun} > 3 GROUP BY {noun}"
        sqlglot.parse_one(sql, read="sqlite")
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE {noun} ({noun} INTEGER)")
            connection.execute(sql)


def test_pseudo_words_are_no_keywords():
    rng = random.Random(0)
    with closing(sqlite3.connect(":memory:")) as connection:
        for word in {pseudo_word(rng) for _ in range(300)}:
            connection.execute(f"CREATE TABLE {word} ({word} INTEGER)")


def test_every_split_has_its_share_of_nullable_keys(source):
    for schemas in SPLITS.values():
        keys = [(s.name, c.name) for s in schemas.values() for t in s.tables for c in t.all("reference")]
        nullable = nullable_keys(schemas.values())
        assert abs(len(nullable) / len(keys) - 0.5) < 0.1
        for schema in schemas.values():
            for path in (source.folder / "databases" / schema.name).glob("*.sqlite"):
                with closing(sqlite3.connect(path)) as connection:
                    for table in schema.tables:
                        for column in table.all("reference"):
                            query = f"SELECT COUNT(*) - COUNT({column.name}) FROM {table.name}"
                            (nulls,) = connection.execute(query).fetchone()
                            assert nulls == 0 or (schema.name, column.name) in nullable
                            assert (schema.name, column.name) not in nullable or nulls <= 12
