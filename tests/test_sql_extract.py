"""Finding the query within a response."""

import pytest

from elite_lightning.domains.sql.extract import extract_sql

FENCE = "```"

CASES = {
    "SELECT 1": "SELECT 1",
    "  select 1 ;\n ": "select 1",
    "SELECT ';' ;;": "SELECT ';'",
    "WITH a AS (SELECT 1) SELECT * FROM a": "WITH a AS (SELECT 1) SELECT * FROM a",
    "VALUES (1)": "VALUES (1)",
    "-- the answer\nSELECT 1": "-- the answer\nSELECT 1",
    "/* a */ /* b */ SELECT 1": "/* a */ /* b */ SELECT 1",
    f"First {FENCE}sql\nSELECT 1\n{FENCE} no, {FENCE}SQL\nSELECT 2;\n{FENCE} done": "SELECT 2",
    f"{FENCE}sql\nSELECT 3": "SELECT 3",
    f"{FENCE}python\nprint(1)\n{FENCE}\n{FENCE}sql SELECT 4{FENCE}": "SELECT 4",
    f"<think>{FENCE}sql\nSELECT 1\n{FENCE}</think> SELECT 5": "SELECT 1",
    "<think>SELECT 1 or </think> hm </think>\nSELECT 6;": "SELECT 6",
    "<think>SELECT 1": None,
    f"{FENCE}sql\nDROP TABLE t\n{FENCE}": None,
    "The answer is SELECT 1": None,
    "SELECTED": None,
    "DELETE FROM t": None,
    "-- SELECT 1": None,
    ";": None,
    "": None,
    "(SELECT 1)": None,
    "\x00": None,
}


@pytest.mark.parametrize(("response", "sql"), CASES.items())
def test_cases(response, sql):
    assert extract_sql(response) == sql


def test_hostile_text_does_not_take_forever():
    for text in ("/*" * 50_000, "--\n" * 50_000 + "x", "```sql" * 30_000, " " * 200_000 + "x", ";" * 200_000):
        extract_sql(text)
