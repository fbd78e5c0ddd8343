"""Finding the query within a response: a table by hand for every rule, laws for all texts, and what models wrote."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.domains.sql.extract import extract_sql

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PREDICTIONS = DATA / "other" / "predictions" / "bird_mini_dev"

FENCE = "```"

PLAIN = {
    "SELECT 1": "SELECT 1",
    "  select 1 ;\n ": "select 1",
    "\ufeffSELECT 1\u200b": "SELECT 1",
    "SELECT ';' ;;": "SELECT ';'",
    "WITH a AS (SELECT 1) SELECT * FROM a": "WITH a AS (SELECT 1) SELECT * FROM a",
    "VALUES (1)": "VALUES (1)",
    "-- the answer\nSELECT 1": "-- the answer\nSELECT 1",
    "/* a */ /* b */ SELECT 1": "/* a */ /* b */ SELECT 1",
    "SELECT 1 -- not; the end\nFROM t /* nor; here */ WHERE a = ';' AND [b;c] = `d;e`": (
        "SELECT 1 -- not; the end\nFROM t /* nor; here */ WHERE a = ';' AND [b;c] = `d;e`"
    ),
    # nothing is repaired
    "SELECT name FROM emp WHERE dept = 'x": "SELECT name FROM emp WHERE dept = 'x",
    "SELECT COUNT(": "SELECT COUNT(",
    "SELECT a FROM t WHERE n = 'Women\\'s'": "SELECT a FROM t WHERE n = 'Women\\'s'",
    "SELECT DISTINCT FROM WHERE": "SELECT DISTINCT FROM WHERE",
    "WITH nothing": "WITH nothing",
    # no query
    "SELECTED": None,
    "DELETE FROM t": None,
    "-- SELECT 1": None,
    ";": None,
    "": None,
    "(SELECT 1)": None,
    "\x00": None,
    "I do not know.": None,
}

TURNS = {
    "SELECT 1<|im_end|>": "SELECT 1",
    "SELECT 1</s></s>": "SELECT 1",
    "<s> SELECT 1 <|endoftext|>": "SELECT 1",
    "<|start_header_id|>assistant<|end_header_id|>\n\nSELECT 1;<|eot_id|>": "SELECT 1",
    "SELECT 1<|im_end|>\n<|im_start|>user\nAnd the others?<|im_end|>\n<|im_start|>assistant\nSELECT 2": "SELECT 1",
    "SELECT 1<end_of_turn>\n<start_of_turn>model\nSELECT 2": "SELECT 1",
    "SELECT 1 [/INST] SELECT 2": "SELECT 1",
    "SELECT 1<｜end▁of▁sentence｜>": "SELECT 1",  # noqa: RUF001
    "<|channel|>analysis<|message|>SELECT 1?<|end|><|start|>assistant<|channel|>final<|message|>SELECT 2": "SELECT 2",
    "<|im_end|>SELECT 1": "SELECT 1",
    "<|im_end|>": None,
}

THOUGHTS = {
    "<think>SELECT 1 or </think> hm </think>\nSELECT 6;": "SELECT 6",
    "SELECT 1 or so </think>SELECT 2": "SELECT 2",
    f"<think>{FENCE}sql\nSELECT 1\n{FENCE}</think> SELECT 5": "SELECT 5",
    f"<think>{FENCE}sql\nSELECT 1\n{FENCE}</think>\n{FENCE}sql\nSELECT 2\n{FENCE}": "SELECT 2",
    "<Thinking>a</Thinking>SELECT 1": "SELECT 1",
    "<reasoning>a</reasoning>SELECT 1 <think> was that right?": "SELECT 1",
    "<think>SELECT 1": None,
    f"<think>{FENCE}sql\nSELECT 1\n{FENCE}": None,
    f"<think>{FENCE}sql\nSELECT 1\n{FENCE}</think>": None,
}

TAGS = {
    "<answer>SELECT 1</answer>": "SELECT 1",
    f"So:<answer>\n{FENCE}sql\nSELECT 1\n{FENCE}\n</answer> Done": "SELECT 1",
    "<sql>SELECT 1</sql> no, <SQL>SELECT 2</SQL>": "SELECT 2",
    "<think>a</think><answer>SELECT 1": "SELECT 1",
    "<answer>I cannot</answer>": None,
}

JSON = {
    '{"sql": "SELECT a\\nFROM t WHERE b = \\"c\\""}': 'SELECT a\nFROM t WHERE b = "c"',
    '{"reasoning": "SELECT it", "sql": "SELECT 1", "confidence": 0.9}': "SELECT 1",
    '{"answer": {"query": "SELECT 1"}}': "SELECT 1",
    '{"step": 1, "my_own_key": "SELECT 1"}': "SELECT 1",
    '{"SQL": "SELECT a\nFROM t"}': "SELECT a\nFROM t",  # a real line break, which JSON forbids
    f'{FENCE}json\n{{"sql": "SELECT 1"}}\n{FENCE}': "SELECT 1",
    f'{{"sql": "{FENCE}sql\\nSELECT 1\\n{FENCE}"}}': "SELECT 1",
    'Here it is: {"query": "SELECT 1"} Good luck!': "SELECT 1",
    '"SELECT 1"': "SELECT 1",
    '["SELECT 1", "SELECT 2"]': "SELECT 2",
    '{"sql": "SELECT a FROM t WHERE \\"b': 'SELECT a FROM t WHERE "b',
    '{"sql": "SELECT a FROM t\\nWHERE b = \\': "SELECT a FROM t\nWHERE b =",
    '{"sql": "SELECT \\"a\\" FROM t WHERE b = \'\\u00': 'SELECT "a" FROM t WHERE b = \'\\u00',
    '{"sql": "SELECT \'\\u00e9': "SELECT 'é",
    '{"sql": null}': None,
    '{"sql": "DROP TABLE t"}': None,
    "{" * 5000: None,
    '{"a":' * 5000: None,
}

ESCAPES = {
    "SELECT a\\nFROM t\\nWHERE b = 1": "SELECT a\nFROM t\nWHERE b = 1",
    'SELECT \\"a b\\" FROM t': 'SELECT "a b" FROM t',
    "The query:\\nSELECT a\\nFROM t": "SELECT a\nFROM t",
    f"{FENCE}sql\\nSELECT 1\\n{FENCE}": "SELECT 1",
    "SELECT '\\n', a FROM t WHERE b LIKE '\\%' ESCAPE '\\'": "SELECT '\\n', a FROM t WHERE b LIKE '\\%' ESCAPE '\\'",
}

FENCES = {
    f"First {FENCE}sql\nSELECT 1\n{FENCE} no, {FENCE}SQL\nSELECT 2;\n{FENCE} done": "SELECT 2",
    f"{FENCE}sql\nSELECT 3": "SELECT 3",
    f"{FENCE}SQLite\nSELECT 3\n{FENCE}": "SELECT 3",
    f"{FENCE}\nSELECT 3\n{FENCE}": "SELECT 3",
    f"{FENCE}SELECT 3{FENCE}": "SELECT 3",
    f"{FENCE}text\nSELECT 3\n{FENCE}": "SELECT 3",
    "~~~sql\nSELECT 3\n~~~\nSee above.": "SELECT 3",
    f"{FENCE}python\nprint(1)\n{FENCE}\n{FENCE}sql SELECT 4{FENCE}": "SELECT 4",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\nIt gives\n{FENCE}\n| 1 |\n{FENCE}": "SELECT 1",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\nFaster with\n{FENCE}sql\nCREATE INDEX i ON t(a)\n{FENCE}": "SELECT 1",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\n{FENCE}\nSELECT 2\n{FENCE}": "SELECT 1",
    f"{FENCE}`markdown\n{FENCE}sql\nSELECT 1\n{FENCE}\n{FENCE}`": "SELECT 1",
    f"{FENCE}markdown\n{FENCE}sql\nSELECT 1\n{FENCE}\n{FENCE}": "SELECT 1",
    f"SELECT 1\n{FENCE}\nThis query selects it.": "SELECT 1",
    f"SELECT 1\n{FENCE}\nIt gives\n{FENCE}\nSELECT 9\n{FENCE}": "SELECT 1",
    f"{FENCE}`markdown\n{FENCE}\nSELECT 1\n{FENCE}\n{FENCE}`\nSELECT 2 was wrong": "SELECT 1",
    f"SELECT 1\n{FENCE}\nBetter:\n{FENCE}sql\nSELECT 2\n{FENCE}": "SELECT 2",
    f"The answer is in prose: SELECT 1\n{FENCE}python\nprint(1)\n{FENCE}": "SELECT 1",
    f"{FENCE}sql\nSELECT 1\n``": "SELECT 1",
    "SELECT `a b`": "SELECT `a b`",
    f"{FENCE}sql\nDROP TABLE t\n{FENCE}": None,
    f"{FENCE}python\nprint(1)\n{FENCE}": None,
    FENCE: None,
}

ENTITIES = {
    "SELECT a FROM t WHERE b &lt;= 5 AND c &gt; 1": "SELECT a FROM t WHERE b <= 5 AND c > 1",
    "SELECT a FROM t WHERE b = &#39;x&#39;": "SELECT a FROM t WHERE b = 'x'",
    "SELECT a FROM t WHERE b = '&lt;p&gt;'": "SELECT a FROM t WHERE b = '&lt;p&gt;'",
    "SELECT a & b FROM t": "SELECT a & b FROM t",
}

STATEMENTS = {
    "SQL: SELECT 1": "SELECT 1",
    "sql\nSELECT 1": "SELECT 1",
    "SQLQuery:\n\nSELECT 1": "SELECT 1",
    "sqlite> SELECT 1;": "SELECT 1",
    "1. SELECT 1;\n2. SELECT 2;": "SELECT 2",
    "The query is `SELECT a FROM t`, I think.": "SELECT a FROM t",
    "Use the `SELECT` statement.": None,
    "The answer is SELECT 1": None,
    "Here is the query you asked for:\n\nSELECT a\nFROM t\n\nThis query returns all of them.": "SELECT a\nFROM t",
    "SELECT a\n\nFROM t\nExplanation: it selects a.": "SELECT a\n\nFROM t",
    "SELECT a FROM t\n\n**Why:** because": "SELECT a FROM t",
    "SELECT a FROM t\n### Notes\nnone": "SELECT a FROM t",
    "SELECT a FROM t; This gives the answer; I hope.": "SELECT a FROM t",
    "SELECT a FROM t;\nSELECT b FROM t;": "SELECT b FROM t",
    "SELECT 1; -- done": "SELECT 1",
    "SELECT 1; DROP TABLE t": "SELECT 1",
    "CREATE TEMP VIEW v AS SELECT 1;\nSELECT * FROM v": "SELECT * FROM v",
    "SELECT a FROM t; Select only those rows": "SELECT a FROM t",
    "With the schema in mind, this will do:\nSELECT 1": "SELECT 1",
    "Select the proper rows first:\nSELECT 1": "SELECT 1",
    "To find it, we join.\nWITH c(x) AS (SELECT 1)\nSELECT x FROM c\nWe are done here.": (
        "WITH c(x) AS (SELECT 1)\nSELECT x FROM c"
    ),
    # none of these lines is prose
    "SELECT a\nfirst_name last_name\nFROM t": "SELECT a\nfirst_name last_name\nFROM t",
    "SELECT a\nb c FROM t\nd JOIN e\nON a = b": "SELECT a\nb c FROM t\nd JOIN e\nON a = b",
    "SELECT a\n-- Step 1: the table\nFROM t -- note: all\n/* so: */ WHERE b > :c": (
        "SELECT a\n-- Step 1: the table\nFROM t -- note: all\n/* so: */ WHERE b > :c"
    ),
    "SELECT 'Dear Sir:\nthis is prose now'": "SELECT 'Dear Sir:\nthis is prose now'",
    "SELECT a FROM t\nUNION\nSELECT b FROM t": "SELECT a FROM t\nUNION\nSELECT b FROM t",
}

LITERALS = {  # in each, what looks like a wrapping is a part of a literal, or holds no query
    sql: sql
    for sql in (
        'SELECT a FROM t WHERE js = \'{"result": "ok"}\'',
        'SELECT a FROM t WHERE js = \'{"query": "SELECT 1"}\'',
        "SELECT a FROM t WHERE tag = '<answer>'",
        "SELECT a FROM t WHERE tag = '<sql>SELECT 1</sql>' AND b = 1",
        "SELECT a FROM t WHERE x = '</s>'",
        'SELECT a AS "<|im_end|>" FROM t',
        "SELECT a FROM t WHERE x = 'it''s <|im_end|>'",
        "SELECT a FROM t WHERE x = '<|channel|>final<|message|>' AND b = 1",
        "SELECT a FROM t WHERE x = '[INST]'",
        "SELECT a FROM t WHERE x LIKE '%<think>%'",
        "SELECT a FROM t WHERE x LIKE '%</think>%' -- that's it",
        "SELECT a FROM t WHERE x = '```'",
        "SELECT a FROM t WHERE x = '```sql SELECT 1```' AND b = 1",
        "SELECT a FROM t WHERE x = '\\n' AND y = '<p>'",
    )
}
LITERALS |= {f"{FENCE}sql\n{sql}\n{FENCE}\nDone.": sql for sql in LITERALS}
LITERALS |= {f"Here it is:\n\n{sql}": sql for sql in LITERALS if sql.startswith("SELECT")}

WITHOUT_QUERY = {
    f'It takes {{"query": "foo"}}.\n{FENCE}sql\nSELECT 1\n{FENCE}': "SELECT 1",
    f'{{"query": "foo"}}\n{FENCE}sql\nSELECT 1\n{FENCE}': "SELECT 1",
    f'{FENCE}sql\nSELECT 1\n{FENCE}\n{FENCE}json\n{{"result": "1"}}\n{FENCE}': "SELECT 1",
    f'Not {{"query": "SELECT 2"}}:\n{FENCE}sql\nSELECT 1\n{FENCE}': "SELECT 1",
    'I take {"step": 1}, then {"sql": "SELECT 1"} and get {"result": "1"}': "SELECT 1",
    '{"sql": "SELECT 1"} or better {"sql": "SELECT 2"}': "SELECT 2",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\nOutput: <output>3</output>": "SELECT 1",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\nThe <query> tag is unused.": "SELECT 1",
    "<sql>SELECT 1</sql>\n<output>3</output>": "SELECT 1",
    "<answer>The answer: <sql>SELECT 1</sql></answer>": "SELECT 1",
    f"<answer>{FENCE}sql SELECT 1{FENCE}</answer> <response>Good luck</response>": "SELECT 1",
    '<answer>{"sql": "SELECT 1"}</answer><output>1</output>': "SELECT 1",
    "<answer>SELECT a\\nFROM t</answer>": "SELECT a\nFROM t",
    "SELECT 1\n<output>3</output>": "SELECT 1",
    "SELECT a\n<b": "SELECT a\n<b",
    # a quote without an end, or an apostrophe, hides nothing
    "SELECT a FROM t WHERE x = 'abc</s>": "SELECT a FROM t WHERE x = 'abc",
    "<think>So:\nSELECT 1, but that's wrong</think>SELECT a FROM t WHERE c = 'x'": "SELECT a FROM t WHERE c = 'x'",
    f"SELECT a FROM t WHERE n = 'O'Brien'\n{FENCE}\nIt's 'him'.": "SELECT a FROM t WHERE n = 'O'Brien'",
}

QUERY = "SELECT a FROM t WHERE b > 1"
SENTENCES = [
    *("\n\nIn this query, a is selected.", "\n\nAs requested.", "\n\nAnd that is it.", "\n\nDone.", "\n\nDone!"),
    *("\n\nOn the other hand you could", "\n\nOn the other hand ...", "\n\n(Here b is ignored)", "\n\nWe count"),
    *("\n- This is all", "\n* This filters them", "\n1. This is it", "\n\n- Note b\n- Note c", "\nAs requested."),
    *("\n\nIs it right?", "\n\nWhere needed, add an index.", "\n\nAnd that is it.\n\nThe end"),
    "\n\nAs for b, b = 2 is out.",
]  # fmt: skip
SENTENCES_AFTER = {QUERY + sentence: QUERY for sentence in SENTENCES} | {
    sql: sql
    for sql in (  # SQLite takes the first four, and none of the lines of the others is at fault by itself
        "SELECT count(*) FROM t\n\nDone",
        "SELECT a FROM t\n\nWhere B Is Null\n\nOrder By A",
        "SELECT a, b\n- Price\n\nFrom t",
        "SELECT a FROM t\n\nWHERE a = 1\n\nAnd B In (1)",
        "SELECT a FROM t\n\nWhere B = = 3",
        "SELECT a FROM t\n\nWhere B Is Null\nAND a = = 3",
        "Select a From t\n\nWhere B B B",
        "SELECT a FROM t\n\nWHERE b b b",
        "SELECT a FROM t\nWHERE t.",
    )
}

QUESTIONS = {
    "SELECT 1\nQuestion: how many?\nSQL: SELECT 2": "SELECT 1",
    "SELECT 1;\n\nquestion : how many?\nSELECT 2;\n\nquestion : wh": "SELECT 1",
    "Answer: SELECT 1\n### Question: how many?\nAnswer: SELECT 2": "SELECT 1",
    "SELECT 1\n\nQ: how many?\nA: SELECT 2": "SELECT 1",
    "SELECT 1\nUser: and now?\nAssistant: SELECT 2": "SELECT 1",
    "SELECT 1;\nor rather:\nSELECT 2;\nQuestion 2: how many?\nSELECT 3": "SELECT 2",
    "Question: how many?\nSELECT 1\nNo: SELECT 2": "SELECT 2",
    "SELECT 1;\nThat answers the question: all.\nBetter: SELECT 2": "SELECT 2",
    f"{FENCE}sql\nSELECT 1\n{FENCE}\nQuestion: how many?\n{FENCE}sql\nSELECT 2\n{FENCE}": "SELECT 2",
}

BEFORE = {
    "With singer as the main table, we count:\nSELECT 1": "SELECT 1",
    "WITH a AS SELECT 1": "WITH a AS SELECT 1",
    "WITH a AS\n(SELECT 1)\nSELECT * FROM a": "WITH a AS\n(SELECT 1)\nSELECT * FROM a",
    "WITH a AS NOT MATERIALIZED (SELECT 1) SELECT * FROM a": "WITH a AS NOT MATERIALIZED (SELECT 1) SELECT * FROM a",
    "WITH a AS": "WITH a AS",
}

RULES = PLAIN | TURNS | THOUGHTS | TAGS | JSON | ESCAPES | FENCES | ENTITIES | STATEMENTS
RULES |= LITERALS | WITHOUT_QUERY | SENTENCES_AFTER | QUESTIONS | BEFORE


@pytest.mark.parametrize(("response", "sql"), RULES.items(), ids=[ascii(text)[:70] for text in RULES])
def test_rules(response, sql):
    assert extract_sql(response) == sql
    assert sql is None or extract_sql(sql) == sql


PARTS = [
    *("SELECT a FROM t", "WITH c AS (SELECT 1) SELECT 2", "VALUES (1)", "DROP TABLE t", ";", "'", '"', "`", "[", "("),
    *("```", "```sql\n", "```\n", "````", "~~~", "``", "<think>", "</think>", "<answer>", "</answer>", "<|im_end|>"),
    *('{"sql": "', '"}', "{", "[", "\\n", "\\", '\\"', "&lt;", "&#39;", "--", "/*", "*/", "\n", "\n\n", " ", ":", "#"),
    *("\n\nAs requested.", "\n- Done", "\nQuestion:", "</output>", "'<sql>'", "`"),
    *("This query returns", "Note:", "select", "\x00", "\ud800", "é", "\u200b"),
]  # fmt: skip
RESPONSES = st.one_of(
    st.text(max_size=80),
    st.text(st.characters(categories=None), max_size=30),  # lone surrogates as well
    st.lists(st.sampled_from(PARTS), max_size=14).map("".join),
)


@given(RESPONSES)
@settings(max_examples=1500, deadline=None)
def test_laws_for_all_texts(response):
    """Never an exception; a query begins with a query's keyword, and is the query in itself."""
    sql = extract_sql(response)
    if sql is not None:
        assert extract_sql(sql) == sql
        assert sql == sql.strip()
        assert not sql.endswith(";")
        with closing(sqlite3.connect(":memory:")) as connection:
            assert connection.execute("SELECT ? <> ''", (sql.encode("utf-8", "surrogatepass"),)).fetchone() == (1,)


LONG = [
    *("/*", "--\n", "x --\n", "```sql", "```", "``\n", " ", ";", "'", '"', "[", "[[", "{", '{"', '{"a":', '"sql": "'),
    *("<think>", "</think>", "<|a|>", "<sql>", "SELECT ", "SELECT;", "SELECT a b c ", "\nSELECT [", 'WITH "', "WITH ["),
    *("SELECT a\n\nDone.", "\n\nAs b ", "\n\nDone.", "\n- Do it", "<sql>SELECT 1", '{"query": 1}', "'<s>'"),
    *("SELECT '</s>' ", "\n\nDone.\n-- '\n"),
    *("\nQuestion:", "SELECT 1\nQ: ", "</a>", "<a>", "\n<a>"),
    *("WITH a (", ":", ": ", "\\", "\\n", "&lt;", "a ", "\n", "\na"),
]  # fmt: skip


@pytest.mark.parametrize("part", LONG, ids=ascii)
def test_time_is_linear(part):
    for begin in ("", "SELECT ", "text "):
        started = time.process_time()
        extract_sql(begin + part * (200_000 // len(part)) + "x")
        assert time.process_time() - started < 3


def _runs(database: str, sql: str) -> bool:
    path = DATA / "bird" / "dev_databases" / database / f"{database}.sqlite"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            connection.execute(f"EXPLAIN {sql}")
        except (sqlite3.Error, sqlite3.Warning):
            return False
        return True


@pytest.mark.skipif(
    not PREDICTIONS.is_dir(), reason="the predictions beside the repository (../shared/data) are absent"
)
@pytest.mark.parametrize(
    ("model", "raw", "extracted"),
    [
        ("gpt-4-turbo", 425, 477),
        ("gpt-35-turbo", 414, 414),
        ("phi-3-medium-128k-instruct-1", 366, 369),
        ("meta-llama-3-8b-instruct-2", 312, 320),
    ],
)
def test_what_models_wrote(model, raw, extracted):
    """How many of 500 answers compile, raw and extracted; none that does raw is lost or changed."""
    golds = json.loads((DATA / "bird" / "mini_dev_sqlite.json").read_text(encoding="utf-8"))
    answers = json.loads((PREDICTIONS / f"predict_mini_dev_{model}_sqlite.json").read_text(encoding="utf-8"))
    counts = [0, 0]
    for gold, answer in zip(golds, answers.values(), strict=True):
        text = answer.partition("\t----- bird -----\t")[0]
        sql = extract_sql(text)
        if _runs(gold["db_id"], text):
            counts[0] += 1
            assert sql == text.strip().rstrip("; \n")
        counts[1] += sql is not None and _runs(gold["db_id"], sql)
    assert counts == [raw, extracted]
