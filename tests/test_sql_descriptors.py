"""Approach and structure: tables by hand, for families of questions whose answers differ in kind."""

import json
import random
import re
from pathlib import Path

import pytest

from elite_lightning.domains.sql.executor import Executor
from elite_lightning.domains.sql.labeler import APPROACHES, OTHER, label_approach
from elite_lightning.domains.sql.structure import UNPARSED, structure_of

SPIDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "spider"

TABLES = {"person": ("id", "name", "age", "city"), "loan": ("pid", "bid", "days"), "book": ("bid", "title", "pages")}

FAMILIES = {
    "persons without a loan": """
        in_subquery: SELECT name FROM person WHERE id NOT IN (SELECT pid FROM loan)
        exists: SELECT name FROM person p WHERE NOT EXISTS (SELECT 1 FROM loan WHERE pid = p.id)
        outer_join: SELECT name FROM person p LEFT JOIN loan l ON l.pid = p.id WHERE l.pid IS NULL
        set_operation: SELECT name FROM person EXCEPT SELECT name FROM person JOIN loan ON pid = id
        set_operation: SELECT name FROM person WHERE id IN (SELECT id FROM person EXCEPT SELECT pid FROM loan)
        correlated_subquery: SELECT name FROM person p WHERE (SELECT COUNT(*) FROM loan l WHERE l.pid = p.id) = 0
        correlated_subquery: SELECT name FROM person WHERE (SELECT COUNT(*) FROM loan WHERE pid = id) = 0
        cte: WITH c AS (SELECT pid FROM loan) SELECT name FROM person WHERE id NOT IN c""",
    "the oldest person": """
        order_limit: SELECT name FROM person ORDER BY age DESC LIMIT 1
        scalar_subquery: SELECT name FROM person WHERE age = (SELECT MAX(age) FROM person)
        in_subquery: SELECT name FROM person WHERE age IN (SELECT MAX(s.age) FROM person s)
        exists: SELECT name FROM person a WHERE NOT EXISTS (SELECT 1 FROM person b WHERE b.age > a.age)
        window: SELECT name FROM (SELECT *, RANK() OVER (ORDER BY age DESC) AS r FROM person) WHERE r = 1
        derived_table: SELECT name FROM person JOIN (SELECT MAX(age) AS m FROM person) ON age = m
        correlated_subquery: SELECT name FROM person a WHERE (SELECT COUNT(*) FROM person b WHERE b.age > a.age) = 0
        outer_join: SELECT a.name FROM person a LEFT JOIN person b ON b.age > a.age WHERE b.id IS NULL""",
    "books with more than two loans": """
        group_having: SELECT title FROM book b JOIN loan l ON b.bid = l.bid GROUP BY b.bid HAVING COUNT(*) > 2
        in_subquery: SELECT title FROM book WHERE bid IN (SELECT bid FROM loan GROUP BY bid HAVING COUNT(*) > 2)
        derived_table: SELECT title FROM book JOIN (SELECT bid, COUNT(*) n FROM loan GROUP BY 1) USING (bid) WHERE n > 2
        cte: WITH d AS (SELECT bid, COUNT(*) n FROM loan GROUP BY 1) SELECT title FROM book JOIN d USING (bid)""",
    "persons with a long and a short loan": """
        set_operation: SELECT pid FROM loan WHERE days > 9 INTERSECT SELECT pid FROM loan WHERE days < 3
        in_subquery: SELECT pid FROM loan WHERE pid IN (SELECT pid FROM loan WHERE days > 9) AND days < 3
        self_join: SELECT DISTINCT a.pid FROM loan a JOIN loan b ON a.pid = b.pid WHERE a.days > 9 AND b.days < 3
        self_join: SELECT DISTINCT a.pid FROM loan a, loan b WHERE a.pid = b.pid AND a.days > 9 AND b.days < 3
        group_having: SELECT pid FROM loan GROUP BY pid HAVING MAX(days) > 9 AND MIN(days) < 3
        case: SELECT pid FROM loan GROUP BY pid HAVING SUM(CASE WHEN days > 9 THEN 1 END) > 0""",
    "persons of a city or above an age": """
        filter: SELECT name FROM person WHERE age > 9 OR city = 'x'
        set_operation: SELECT name FROM person WHERE age > 9 UNION SELECT name FROM person WHERE city = 'x'
        case: SELECT name FROM person WHERE CASE WHEN age > 9 THEN 1 ELSE city = 'x' END
        case: SELECT name FROM person WHERE IIF(age > 9, 1, city = 'x')""",
    "plainer ones": """
        filter: SELECT name FROM person
        filter: SELECT name FROM person WHERE age IN (1, 2) ORDER BY age
        filter: SELECT name FROM person LIMIT 3
        aggregate: SELECT MAX(age) FROM person
        aggregate: SELECT city FROM person GROUP BY city
        join: SELECT title FROM book JOIN loan USING (bid) GROUP BY title
        join: SELECT title FROM book, loan WHERE book.bid = loan.bid
        join: SELECT title FROM (book JOIN loan USING (bid))
        order_limit: SELECT title FROM book JOIN loan USING (bid) ORDER BY days DESC LIMIT 1
        scalar_subquery: SELECT name, (SELECT COUNT(*) FROM loan) FROM person
        scalar_subquery: SELECT name FROM person WHERE city = (SELECT MAX(city) FROM person WHERE name = "x")""",
}

CASES = [
    (sql, label) for family in FAMILIES.values() for label, sql in re.findall(r"^\s*(\w+): (.*)$", family, re.MULTILINE)
]


@pytest.mark.parametrize(("sql", "label"), CASES, ids=[sql[:90] for sql, _ in CASES])
def test_labels_by_hand(sql, label):
    assert label_approach(sql, TABLES) == label
    assert label_approach(sql.lower().replace(" ", "\n"), TABLES) == label


def test_every_approach_is_reached_and_the_list_is_closed():
    assert len(CASES) == 41
    assert {label for _, label in CASES} == set(APPROACHES)
    assert len(set(APPROACHES)) == len(APPROACHES) == 16
    assert OTHER not in APPROACHES


PLAIN = "joins=0 sub=none set=0 agg=none order=none case=0 window=0 distinct=0"

STRUCTURES = {
    "SELECT name FROM person": {},
    "SELECT name FROM person s, loan l": {"joins": 1},
    "SELECT 1 FROM person a, person b, person c": {"joins": 2},
    "SELECT 1 FROM person a, person b, person c, person d": {"joins": 3},
    "SELECT 1 FROM person a, person b, person c, person d, loan": {"joins": 3},
    "SELECT 1 FROM person WHERE age > (SELECT AVG(age) FROM person)": {"sub": "scalar", "agg": "agg"},
    "SELECT 1 FROM person WHERE id IN (SELECT pid FROM loan)": {"sub": "in"},
    "SELECT 1 FROM person WHERE EXISTS (SELECT 1 FROM loan)": {"sub": "in"},
    "SELECT 1 FROM person WHERE id IN (1, 2)": {},
    "SELECT 1 FROM (SELECT 1 FROM person WHERE id IN (SELECT pid FROM loan))": {"sub": "from"},
    "WITH c AS (SELECT 1 FROM (SELECT 2)) SELECT 1 FROM c": {"sub": "cte"},
    "SELECT 1 UNION ALL SELECT 2": {"set": 1},
    "SELECT COUNT(*) FROM person": {"agg": "agg"},
    "SELECT city FROM person GROUP BY city": {"agg": "group"},
    "SELECT city, COUNT(*) FROM person GROUP BY city HAVING COUNT(*) > 1": {"agg": "having"},
    "SELECT name FROM person ORDER BY age": {"order": "order"},
    "SELECT name FROM person ORDER BY age LIMIT 1": {"order": "limit"},
    "SELECT IIF(age > 1, 2, 3) FROM person": {"case": 1},
    "SELECT CASE age WHEN 1 THEN 2 END FROM person": {"case": 1},
    "SELECT SUM(age) OVER (ORDER BY id) FROM person": {"window": 1},
    "SELECT DISTINCT name FROM person": {"distinct": 1},
    "SELECT COUNT(DISTINCT name) FROM person": {"distinct": 1, "agg": "agg"},
}


@pytest.mark.parametrize(("sql", "features"), STRUCTURES.items(), ids=STRUCTURES)
def test_structures_by_hand(sql, features):
    expected = dict(part.split("=") for part in PLAIN.split()) | {name: str(value) for name, value in features.items()}
    assert structure_of(sql) == " ".join(f"{name}={value}" for name, value in expected.items())


@pytest.mark.parametrize(
    "sql", ["SELECT 1 FROM", "SELECT " + "(" * 500 + "1" + ")" * 500, "", "DROP TABLE t", "\ud800"]
)
def test_what_cannot_be_parsed_has_a_cell_of_its_own(sql):
    assert (label_approach(sql, TABLES), structure_of(sql)) == (OTHER, UNPARSED)


@pytest.mark.skipif(not SPIDER.is_dir(), reason="the Spider files beside the repository (../shared/data) are absent")
def test_spiders_gold_queries_all_have_cells():
    examples = sorted({(item["db_id"], item["query"]) for item in json.loads((SPIDER / "dev.json").read_text())})
    executor, seen = Executor(), set()
    for database, query in random.Random(1).sample(examples, 200):
        tables = executor.columns(SPIDER / "database" / database / f"{database}.sqlite")
        approach, structure = label_approach(query, tables), structure_of(query)
        assert approach in APPROACHES
        assert structure != UNPARSED
        seen.add((approach, structure))
    assert len(seen) > 20
