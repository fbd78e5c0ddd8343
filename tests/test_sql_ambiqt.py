"""AmbiQT's rule: each kind and each peculiarity by hand, and the official scores of the official output files."""

import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from elite_lightning.domains.sql.ambiqt import ambiqt_hits, ambiqt_outputs, normalised, same_rows_as_ambiqt
from elite_lightning.errors import UsageError
from elite_lightning.metrics import both_at_k

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "ambiqt"
KEYS = {
    "col-synonyms": ("extra_map",),
    "tbl-synonyms": ("extra_table_map",),
    "tbl-split": ("split_map", "primary_key"),
    "tbl-agg": ("new_table_name",),
}


def asked(kind, ambiguity, original, prediction, right=()):
    """What a prediction is rewritten to, and the hits if the queries in `right` match."""
    seen = []
    hits = ambiqt_hits(kind, ambiguity, original, prediction, lambda sql: seen.append(sql) or sql in right)
    return seen, hits


COLUMNS = {"extra_map": {"Singer": {"Age": ["years_old", "birthdate"]}, "song": {"name": ["title", "label"]}}}
TABLES = {"extra_table_map": {"singer": ["artist", "Performer"]}}
SPLIT = {"split_map": {"singer": "Country"}, "primary_key": {"singer": "singer_id"}}
AGGREGATE = {"new_table_name": "singer_age"}


@pytest.mark.parametrize(
    ("prediction", "rewritten"),
    [
        ("SELECT years_old FROM singer;", ["select age from singer", "select years_old from singer"]),
        (
            "select t1.Birthdate from singer as t1",
            ["select t1.Birthdate from singer as t1".lower(), "select t1.age from singer as t1"],
        ),
        # The original name is exchanged for the synonym, so that it is wrong.
        ("select age from singer", ["select years_old from singer", "select birthdate from singer"]),
        (
            "select max( years_old ) , title from x",
            ["select max(age), name from x", "select max(years_old), title from x"],
        ),
        # Aliases are two characters and a dot, nothing else.
        ("select singer.years_old, s.years_old from x", ["select singer.years_old, s.years_old from x"] * 2),
        # Words are exchanged within literals, case aside.
        (
            "select 1 from x where a = ' Age '",
            ["select 1 from x where a = ' years_old '", "select 1 from x where a = ' birthdate '"],
        ),
        # What stands before an @ is cut off.
        ("select name @ select years_old from singer", ["select age from singer", "select years_old from singer"]),
        ("select 1 from x where mail = 'a@b.c'", ["b.c'", "b.c'"]),
    ],
)
def test_columns_are_exchanged_word_by_word(prediction, rewritten):
    assert asked("col-synonyms", COLUMNS, "", prediction)[0] == rewritten


@pytest.mark.parametrize(
    ("prediction", "rewritten"),
    [
        ("select name from artist", ["select name from singer", "select name from artist"]),
        ("select name from PERFORMER", ["select name from performer", "select name from singer"]),
        ("select name from singer", ["select name from artist", "select name from performer"]),
        ("select t1.name from artist as t1", ["select t1.name from singer as t1", "select t1.name from artist as t1"]),
        # A column that is qualified by its table's name is lost.
        ("select artist.name from artist", ["select singerartist from singer", "select artist.name from artist"]),
        # Within literals only in the same case, and nothing is cut off at an @.
        ("select 'artist @ Artist ' from x", ["select 'artist @ Artist ' from x"] * 2),
        ("select ' artist ' from x", ["select ' singer ' from x", "select ' artist ' from x"]),
    ],
)
def test_tables_are_exchanged_word_by_word(prediction, rewritten):
    assert asked("tbl-synonyms", TABLES, "", prediction)[0] == rewritten


@pytest.mark.parametrize(
    ("prediction", "rewritten"),
    [
        (
            "SELECT t1.name, t2.country FROM singer AS t1 JOIN singer_country AS t2 ON t1.singer_id = t2.singer_id",
            "select name, country from singer",
        ),
        (
            "select count( t1.name ) from singer as t1 join singer_country as t2 on t2.singer_id = t1.singer_id "
            "where t2.country = 'x'",
            "select count(name) from singer where country = 'x'",
        ),
        # In the other order the official pattern looks for a table that is called like the column.
        (
            "select t2.name from singer_country as t1 join singer as t2 on t1.singer_id = t2.singer_id",
            "select name from singer_country as t1 join singer as t2 on singer_id = singer_id",
        ),
        (
            "select t2.name from singer_country as t1 join country as t2 on t1.singer_id = t2.singer_id",
            "select name from singer",
        ),
    ],
)
def test_a_split_table_is_joined_again(prediction, rewritten):
    assert asked("tbl-split", SPLIT, "", prediction)[0] == [prediction, rewritten]


def test_a_key_in_upper_case_is_never_found():
    query = "select t1.name from singer as t1 join singer_country as t2 on t1.Singer_ID = t2.Singer_ID"
    other = {**SPLIT, "primary_key": {"singer": "Singer_ID"}}
    assert asked("tbl-split", other, "", query)[0][1].startswith("select name from singer as t1 join")


@pytest.mark.parametrize(
    ("original", "prediction", "rewritten"),
    [
        (
            "SELECT avg(age), min(age) FROM singer WHERE country = 'France'",
            "select avg_age , min_age from singer_age where country = 'France'",
            "select avg(age), min(age) from singer where country = 'France'",
        ),
        (
            "select country, count(*) from singer group by country",
            "select country, number from singer_age",
            "select country, count(*) from singer group by country",
        ),
        (
            "select t2.n, max(t1.age) from a as t1 join band as t2 on t1.b = t2.b group by t2.n having count(*) > 1",
            "select n, max_age from singer_age where number > 1",
            "select t2.n, max(t1.age) from a as t1 join band as t2 on t1.b = t2.b group by t2.n having count(*) > 1",
        ),
        (
            "select max(percentage) from countrylanguage where language = 'x' group by countrycode",
            "select max_percentage from singer_age where language = 'x'",
            "select max(percentage) from countrylanguage where language = 'x' group by countrycode",
        ),
        # A grouping is added even where there is one.
        (
            "select language, max(percentage) from countrylanguage group by countrycode",
            "select language, max_percentage from singer_age group by countrycode",
            "select language, max(percentage) from countrylanguage group by countrycode group by countrycode",
        ),
    ],
)
def test_an_aggregate_table_is_computed_again(original, prediction, rewritten):
    assert asked("tbl-agg", AGGREGATE, original, prediction)[0] == [prediction, rewritten]


def test_the_second_reading_counts_only_if_the_first_does_not_match():
    query = "select name from singer"
    assert asked("tbl-split", SPLIT, "", query, right=[query]) == ([query], (True, False))
    assert asked("tbl-split", SPLIT, "", "x @ " + query, right=[query]) == ([query], (True, False))
    assert asked("tbl-split", SPLIT, "", "select t1.name from singer", right=[query])[1] == (False, True)
    assert asked("col-synonyms", COLUMNS, "", "select 7", right=["select 7"])[1] == (True, True)  # neither is mentioned


@pytest.mark.parametrize("kind", KEYS)
def test_an_empty_prediction_is_wrong(kind):
    everything = COLUMNS | TABLES | SPLIT | AGGREGATE
    for prediction in ("", " ", ";", *([] if kind == "tbl-synonyms" else ["@", "x @ "])):
        assert ambiqt_hits(kind, everything, "select 1", prediction, lambda _: True) == (False, False)


def test_what_is_missing_is_named():
    for kind in KEYS:
        with pytest.raises(UsageError, match="has no '"):
            ambiqt_hits(kind, {}, "", "select 1", lambda _: False)
    with pytest.raises(UsageError, match="no kind 'other'"):
        ambiqt_hits("other", {}, "", "select 1", lambda _: False)


def test_outputs_are_cut_or_ranked_by_place():
    assert ambiqt_outputs(["a", "a", "b", "c"], 3) == ["a", "a", "b"]
    # Scores: a 0, b 2, c 4, d 3, b 5, e 7, f 6.
    assert ambiqt_outputs([["a", "b", "c"], ["d", "b", "e"], ["f"]], 6) == ["a", "b", "d", "c", "f", "e"]
    assert ambiqt_outputs([["a", "b"], ["c"]], 2) == ["a", "b"]
    assert ambiqt_outputs([], 5) == []


def test_order_counts_where_the_original_is_ordered():
    rows, other = [(1,), (2,), (2,)], [(2,), (1,)]
    assert same_rows_as_ambiqt("select a from t", rows, other)
    assert not same_rows_as_ambiqt("SELECT a FROM t ORDER BY a", rows, other)
    assert same_rows_as_ambiqt("select a from t ORDER BY a", rows, list(rows))
    assert not same_rows_as_ambiqt("select a from t", rows, [(1,)])


def test_normalising_keeps_what_is_quoted():
    assert normalised("SELECT  COUNT ( * ) , 'A  b'  FROM `T`;") == "select count(*), 'A b' from `T`"


# The official files.

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no AmbiQT at {DATA}")


@cache
def rows_of(database, sql):
    path = DATA / "db-content" / "database" / database / f"{database}.sqlite"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()
    except sqlite3.Error:
        return None


def hits_of(kind, record, prediction):
    original = record["orig_query"]
    wanted = rows_of(record["db_id"], normalised(original))

    def matches(sql):
        got = rows_of(record["db_id"], sql)
        return got is not None and same_rows_as_ambiqt(original, wanted, got)

    return ambiqt_hits(kind, {key: record[key] for key in KEYS[kind]}, original, prediction, matches)


# Measured with the official functions (testzer0/AmbiQT at 2dd908bd), k = 5, judge "direct execution": questions whose
# first, second, either and both interpretations are covered.
OFFICIAL = {
    ("join-ambiguity", "logical-beam"): (224, 159, 225, 158),
    ("join-ambiguity", "t5-3b-top_k-25"): (200, 18, 210, 8),
    ("precomputed-aggregates", "logical-beam"): (33, 53, 61, 25),
    ("precomputed-aggregates", "t5-3b-top_k-25"): (11, 51, 57, 5),
}


@needs_data
@pytest.mark.parametrize(("folder", "name"), OFFICIAL)
def test_the_official_outputs_get_the_official_scores(folder, name):
    kind = "tbl-split" if folder == "join-ambiguity" else "tbl-agg"
    records = json.loads((DATA / "outputs" / folder / f"{name}.json").read_text())
    counts = [0, 0, 0, 0]
    for record in records:
        predictions = ambiqt_outputs(record.get("t2s_outs") or record["template_filled"], 5)
        table = [hits_of(kind, record, prediction) for prediction in predictions]
        first, second = (any(column) for column in zip(*table, strict=True))
        found = (first, second, first or second, first and second)
        counts = [count + new for count, new in zip(counts, found, strict=True)]
        assert both_at_k(table, len(table)) == (first and second)
    assert tuple(counts) == OFFICIAL[folder, name]


# The golds that the official rule itself does not accept, by their places in validation.json. C: another table has a
# column of that name or is called so, and too much is exchanged. T: a literal with parentheses (189 to 192), or a
# column of the table's name. P: a GROUP BY is added to a query that has one or needs none.
REFUSED = {
    "col-synonyms": (
        *(73, 74, 101, 102, 111, 113, 123, 124, *range(129, 133), 139, 140, 179, 180, 195, 196, 200, 202, 204, 206),
        *(237, 238, *range(243, 255), 327, 329, 391, 393, 397, 399, 425, 427, 429, 431, 457, 559, 566, 579, 581, 591),
        *(593, 598, 600, 606, 610, 619, 621, 624, 628, 640, 642, 676, 678, 814, 816, 911, 912, 990, 992, 1039, 1040),
        *(1065, 1068, 1075, 1078, 1082, 1085, 1087, 1090, 1096, 1098, 1102, 1104, 1105, 1107, 1221, 1223),
    ),
    "tbl-synonyms": (189, 190, 191, 192, 1164, 1166),
    "tbl-split": (),
    "tbl-agg": (24, 25, 83, 84, 85, 86),
}


@needs_data
@pytest.mark.parametrize("kind", KEYS)
def test_golds_cover_both_interpretations_but_for_those_that_the_rule_refuses(kind):
    records = json.loads((DATA / "benchmark" / kind / "validation.json").read_text())
    for number, record in enumerate(records):
        table = [hits_of(kind, record, record[name]) for name in ("query1", "query2")]
        assert both_at_k(table, 2) == (number not in REFUSED[kind]), record["question"]
        if number not in REFUSED[kind]:
            assert table == [(True, False), (False, True)]
        if kind in ("col-synonyms", "tbl-synonyms"):
            assert hits_of(kind, record, record["orig_query"]) == (False, False)
