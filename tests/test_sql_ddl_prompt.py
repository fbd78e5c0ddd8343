"""DDL prompts: what they say about a schema, in which order it goes when the budget is short, and who counts tokens."""

import pickle
import re
import sqlite3
from contextlib import closing

import pytest
from conftest import ROOT, byte_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from elite_lightning.domains.sql import CompactPrompt, DdlPrompt, SqlDomain
from elite_lightning.domains.sql.ddl import quoted, read_tables
from elite_lightning.domains.sql.relevance import relevance, words_of
from elite_lightning.module import EliteModule
from elite_lightning.policy import TokenCodec
from elite_lightning.types import Problem, TokenBudget

SCRIPT = """
CREATE TABLE clients (id INTEGER PRIMARY KEY, "full name" TEXT, "% of sales" REAL, fax TEXT);
CREATE TABLE orders (client INTEGER REFERENCES clients, item INTEGER, "order" INT, noted BLOB,
    PRIMARY KEY (client, item), FOREIGN KEY (item) REFERENCES items (id));
CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT, colour TEXT);
CREATE TABLE unused (id INTEGER PRIMARY KEY, thing TEXT, other TEXT);
INSERT INTO clients VALUES (1, 'Ann O''Hara', 12.5, NULL), (2, 'Bob', NULL, ''), (3, 'Bob', 3, NULL);
INSERT INTO orders VALUES (1, 1, 7, x'00ff');
INSERT INTO items VALUES (1, 'a very long label indeed', 'red'), (2, 'b', 'blue'), (3, 'c', 'red');
INSERT INTO unused VALUES (1, 'thing', 'other');
"""
CSV = (
    "original_column_name,column_name,column_description,data_format,value_description\n"
    "fax,fax,fax,text,\n"
    "colour,shade,what it looks like,text,red or blue\n"
)
FULL = """\
CREATE TABLE clients (
  id INTEGER PRIMARY KEY, -- e.g. 1, 2
  "full name" TEXT, -- e.g. 'Ann O''Hara', 'Bob'
  "% of sales" REAL, -- e.g. 12.5, 3.0
  fax TEXT
);
CREATE TABLE orders (
  client INTEGER REFERENCES clients (id), -- e.g. 1
  item INTEGER REFERENCES items (id), -- e.g. 1
  "order" INT, -- e.g. 7
  noted BLOB,
  PRIMARY KEY (client, item)
);
CREATE TABLE items (
  id INTEGER PRIMARY KEY, -- e.g. 1, 2
  label TEXT, -- e.g. 'a very l...', 'b'
  colour TEXT -- shade; what it looks like; red or blue; e.g. 'red', 'blue'
);
CREATE TABLE unused (
  id INTEGER PRIMARY KEY, -- e.g. 1
  thing TEXT, -- e.g. 'thing'
  other TEXT -- e.g. 'other'
);

Hint: prices are in euros
Question: Which labels did Ann order?
Do it."""
QUESTION = Problem("p", "Which labels did Ann order?", {"evidence": "prices are in euros"})
SETTINGS = {"values": 2, "value_characters": 8, "instruction": "Do it."}


@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "shop"
    (folder / "database_description").mkdir(parents=True)
    (folder / "database_description" / "items.csv").write_text(CSV)
    (folder / "database_description" / "clients.csv").write_text(CSV)
    with closing(sqlite3.connect(folder / "shop.sqlite")) as connection:
        connection.executescript(SCRIPT)
    return folder / "shop.sqlite"


def characters(prompt):
    """A prompt whose budget is counted in characters, so that a test can name it exactly."""
    prompt.count_tokens_with(len)
    return prompt


def test_the_whole_prompt(database):
    assert DdlPrompt(None, **{**SETTINGS, "value_characters": 10}).write(database, QUESTION) == FULL.replace(
        "'a very l...'", "'a very lon...'"
    )


def test_the_schema_of_the_prompt_is_sql(database):
    text = DdlPrompt(None).write(database, QUESTION)
    statements = text[: text.index("\n\nHint")]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        connection.execute("PRAGMA foreign_key_check")
        ours = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert {name for (name,) in ours} == {"clients", "orders", "items", "unused"}


def test_target_and_parent_come_behind_the_question(database):
    text = DdlPrompt(None, **SETTINGS).write(database, QUESTION, "in_subquery", "SELECT 1")
    assert text.endswith(
        "Question: Which labels did Ann order?\nApproach to take: in subquery\n"
        "A right query that takes another approach: SELECT 1\nDo it."
    )


def left_out(text):
    """What a cut prompt lacks, by kind, read off its text alone."""
    columns = set(re.findall(r'^  ("[^"]+"|\w+) ', text, re.MULTILINE)) - {"PRIMARY"}
    return {
        "values": "e.g." not in text,
        "descriptions": "what it looks like" not in text,
        "columns": {"fax", "noted", "thing", "other", "colour"} - columns,
        "tables": {"clients", "orders", "items", "unused"} - set(re.findall(r"CREATE TABLE (\w+)", text)),
    }


def test_parts_go_in_the_stated_order(database):
    """From one budget to the next smaller one, nothing comes back, and later kinds wait for earlier ones."""
    length = len(DdlPrompt(None, **SETTINGS).write(database, QUESTION))
    previous = left_out(FULL)
    seen = []
    for budget in range(length, 150, -5):
        text = characters(DdlPrompt(budget, **SETTINGS)).write(database, QUESTION)
        lacks = left_out(text)
        assert previous["columns"] <= lacks["columns"]
        assert previous["tables"] <= lacks["tables"]
        if lacks["descriptions"]:
            assert lacks["values"]
        if "more columns" in text:
            assert lacks["descriptions"]
        if lacks["tables"]:
            assert {"fax", "noted", "thing", "other"} <= lacks["columns"]
        assert "Hint: prices are in euros\nQuestion: Which labels did Ann order?" in text
        assert len(text) <= budget or lacks["tables"] == {"clients", "unused", "items"}
        previous = lacks
        seen.append(text)
    # `orders` shares "order" by its name and a column, more than `items` with "label".
    assert "CREATE TABLE orders" in seen[-1]
    assert "-- 3 more tables" in seen[-1]
    assert "client INTEGER," in seen[-1]  # a key column stays, without the table that is gone


def test_related_columns_outlive_whole_tables_and_are_counted(database):
    text = characters(DdlPrompt(330, **SETTINGS)).write(database, QUESTION)
    assert "label TEXT" in text
    assert '"order" INT' in text
    assert "colour" not in text
    assert "-- 1 more columns" in text
    assert "CREATE TABLE orders" in text
    assert "-- 2 more tables" in text


@given(st.integers(min_value=1, max_value=1200))
def test_any_budget_is_kept_or_one_table_with_its_keys_is_left(tmp_path_factory, budget):
    folder = tmp_path_factory.getbasetemp() / "law"
    if not folder.is_dir():
        folder.mkdir()
        with closing(sqlite3.connect(folder / "law.sqlite")) as connection:
            connection.executescript(SCRIPT)
    path = folder / "law.sqlite"
    text = characters(DdlPrompt(budget, **SETTINGS)).write(path, QUESTION)
    assert len(text) <= budget or ("-- 3 more tables" in text and '"order"' not in text)


def test_what_was_cut_is_reported_and_only_then(database):
    prompt = characters(DdlPrompt(100_000, **SETTINGS))
    prompt.write(database, QUESTION)
    assert prompt.cut_report() is None
    prompt = characters(DdlPrompt(len(FULL) - 30, **SETTINGS))
    for _ in range(3):
        prompt.write(database, QUESTION)  # the same prompt counts once
    prompt.write(database, Problem("short", "Who?", {}))
    limit = len(FULL) - 30
    assert prompt.cut_report() == (
        f"1 of 2 prompts were longer than prompts.max_tokens={limit} and were cut: sample values in 1"
    )
    prompt = characters(DdlPrompt(50, **SETTINGS))
    prompt.write(database, QUESTION)
    assert prompt.cut_report().endswith(
        "sample values in 1, descriptions in 1, columns in 1, tables in 1; 1 are still longer"
    )


def test_the_budget_is_in_the_tokens_that_the_policy_sees(database):
    codec = TokenCodec(byte_tokenizer())  # a token a byte, and one in front
    domain = SqlDomain(database.parent.parent, prompts=DdlPrompt(600))
    assert isinstance(domain, TokenBudget)
    domain.count_tokens_with(lambda text: len(codec.encode_prompt(text)))
    problem = Problem("p", QUESTION.question, {"database": "shop", "gold": "SELECT 1"})
    assert 500 < len(codec.encode_prompt(domain.prompt(problem))) <= 600
    # Without a tokenizer three bytes count as a token: nothing needs to go.
    assert "e.g." in SqlDomain(database.parent.parent, prompts=DdlPrompt(600)).prompt(problem)


def test_the_module_hands_its_tokenizer_to_the_domain(database):
    """English takes fewer tokens of the bundled tokenizer than the estimate says, digits and symbols take more."""
    domain = SqlDomain(database.parent.parent, prompts=DdlPrompt(250))
    problem = Problem("p", QUESTION.question, {"database": "shop", "gold": "SELECT 1"})
    estimated = domain.prompt(problem)
    module = EliteModule(domain, path=str(ROOT / "elite_lightning" / "assets" / "pocketsql_base"))
    exact = domain.prompt(problem)
    assert 230 < len(module.codec.encode_prompt(exact)) <= 250
    assert len(module.codec.encode_prompt(estimated)) > 250 or len(estimated) < len(exact)


def test_a_key_that_names_no_column_points_to_the_primary_key(tmp_path):
    path = tmp_path / "keys.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE pairs (right_part INT, left_part INT, PRIMARY KEY (left_part, right_part))")
        connection.execute("CREATE TABLE uses (a INT, b INT, FOREIGN KEY (a, b) REFERENCES pairs)")
    a, b = read_tables(path, 0, 0)[1].columns
    assert (a.references, b.references) == (("pairs", "left_part"), ("pairs", "right_part"))
    assert read_tables(path, 0, 0)[0].primary_key == ("left_part", "right_part")


def test_prompts_travel_as_settings_and_decide_the_fingerprint(database):
    root = database.parent.parent
    domain = SqlDomain(root, prompts=characters(DdlPrompt(300)))
    twin = pickle.loads(pickle.dumps(domain))
    assert twin.prompts.max_tokens == 300
    forms = [CompactPrompt(), DdlPrompt(300), DdlPrompt(301), DdlPrompt(300, values=1), DdlPrompt(300, instruction="x")]
    prints = [SqlDomain(root, prompts=form).fingerprint() for form in forms]
    assert len(set(prints)) == len(forms)
    assert prints[0] == SqlDomain(root).fingerprint()
    assert twin.fingerprint() == domain.fingerprint() == prints[1]
    (database.parent / "database_description" / "items.csv").write_text(CSV.replace("looks", "seems"))
    assert SqlDomain(root, prompts=DdlPrompt(300)).fingerprint() != prints[1]
    assert SqlDomain(root).fingerprint() == prints[0]  # the compact form does not read them


def test_the_fingerprint_covers_the_used_databases_alone(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with closing(sqlite3.connect(tmp_path / name / f"{name}.sqlite")) as connection:
            connection.execute("CREATE TABLE t (a)")
    before = SqlDomain(tmp_path, used=["one"]).fingerprint(), SqlDomain(tmp_path).fingerprint()
    with closing(sqlite3.connect(tmp_path / "two" / "two.sqlite")) as connection, connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert SqlDomain(tmp_path, used=["one"]).fingerprint() == before[0]
    assert SqlDomain(tmp_path).fingerprint() != before[1]


@pytest.mark.parametrize(
    "name", ["a", "order", "Order", "a b", "50%", "x(y)", 'q"q', "é", "1a", "index", "key", "true"]
)
def test_a_quoted_name_is_one_that_sqlite_takes(name):
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE {quoted(name)} ({quoted(name)} INT)")
        connection.execute(f"INSERT INTO {quoted(name)} VALUES (7)")
        assert connection.execute(f"SELECT {quoted(name)} FROM {quoted(name)}").fetchone() == (7,)
        assert connection.execute("SELECT name FROM sqlite_master").fetchone() == (name,)
    assert (quoted(name) == name) == (name in ("a", "key", "true"))


def test_words_and_scores_by_hand():
    assert words_of("superheroName HTTPServer_ids 2nd") == {"superhero", "name", "http", "server", "id", "2", "nd"}
    names = {"a": ["hair_colour"], "b": ["eye_colour"], "c": ["height"]}
    assert relevance(names, "Which eye colours?") == {"a": 0.5, "b": 1.5, "c": 0}


def test_text_that_is_not_utf8_is_shown(tmp_path):
    path = tmp_path / "odd.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.execute("INSERT INTO t VALUES (CAST(x'4dfc6e' AS TEXT))")
    assert read_tables(path, 3, 40)[0].columns[0].values == ("'M\ufffdn'",)


def test_settings_out_of_range_are_named():
    with pytest.raises(ValueError, match=r"prompts\.max_tokens must be at least 1, or null for no limit, got 0"):
        DdlPrompt(0)
    with pytest.raises(ValueError, match=r"prompts\.values"):
        DdlPrompt(values=-1)


def test_generated_columns_are_columns_of_the_prompt_and_of_the_keys(tmp_path):
    (tmp_path / "shop").mkdir()
    path = tmp_path / "shop" / "shop.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE sales (id INTEGER PRIMARY KEY, twice INTEGER AS (2 * price), price INTEGER);"
            "INSERT INTO sales (id, price) VALUES (1, 21);"
        )
    [table] = read_tables(path, 2, 20)
    assert [(column.name, column.values) for column in table.columns] == [
        ("id", ("1",)),
        ("twice", ("42",)),
        ("price", ("21",)),
    ]
    domain = SqlDomain(tmp_path)
    problem = Problem("q", "Which?", {"database": "shop", "gold": "SELECT twice FROM sales"})
    assert "twice" in domain.prompt(problem)
    assert domain.strategy(problem, "SELECT twice FROM sales") == domain.strategy(
        problem, "SELECT s.twice FROM sales s"
    )
