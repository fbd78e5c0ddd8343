"""Small benchmarks of our own in the official layouts, with every trap of the official files, for tests."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

VISITS = """
CREATE TABLE visitors (id INTEGER PRIMARY KEY, name TEXT, town TEXT, age INTEGER);
CREATE TABLE museums (id INTEGER PRIMARY KEY, name TEXT, staff INTEGER);
CREATE TABLE visits (id INTEGER PRIMARY KEY, visitor_id INTEGER REFERENCES visitors (id),
    museum_id INTEGER REFERENCES museums, spent INTEGER);
INSERT INTO visitors VALUES (1, 'Gonzalo', 'Ulm', 35), (2, 'Joaquin', 'Bern', 28), (3, 'Javier', 'Ulm', 26),
    (4, 'Rudolf', 'Bern', 56);
INSERT INTO museums VALUES (1, 'Plaza', 62), (2, 'Capital', 25), (3, 'Jefferson', 18);
INSERT INTO visits VALUES (1, 1, 1, 20), (2, 1, 2, 10), (3, 3, 2, 320), (4, 4, 3, 5);
"""
SCHOOLS = """
CREATE TABLE frpm (CDSCode TEXT PRIMARY KEY, "School Name" TEXT, "Percent (%) Eligible Free (K-12)" REAL, "order" INT);
INSERT INTO frpm VALUES ('01', 'Envision', 0.5, 2), ('02', 'O''Hara', 0.25, 1);
"""


def write_database(folder: Path, name: str, script: str) -> None:
    (folder / name).mkdir(parents=True)
    with closing(sqlite3.connect(folder / name / f"{name}.sqlite")) as connection:
        connection.executescript(script)


def bird_entry(number, database, question, sql, **more):
    return {
        "question_id": number, "db_id": database, "question": question, "evidence": "", "SQL": sql,
        "difficulty": "simple", **more,
    }  # fmt: skip


def write_bird(root: Path) -> Path:
    """BIRD's layout: four databases; a gold that cannot run; a `.sql` file of another state; odd CSV files."""
    databases = root / "dev_databases"
    for name, script in {"museums": VISITS, "trips": VISITS, "schools": SCHOOLS, "Tours": VISITS}.items():
        write_database(databases, name, script)
    percent = "SELECT `School Name` FROM frpm WHERE `Percent (%) Eligible Free (K-12)` > 0.3"
    entries = [
        bird_entry(0, "schools", "Which schools have many free meals?", percent, evidence="many means > 0.3"),
        bird_entry(1, "schools", "What is first?", 'SELECT "School Name" FROM  frpm WHERE `order` = 1;'),
        bird_entry(2, "schools", "What cannot be told?", "SELECT missing FROM frpm"),
        *(bird_entry(n, "museums", *easy(n)) for n in range(3, 7)),
        *(bird_entry(n, "trips", *easy(n)) for n in range(7, 9)),
        *(bird_entry(n, "Tours", *easy(n)) for n in range(9, 13)),
    ]
    write_json(root / "dev.json", entries)
    (root / "dev.sql").write_text("".join(f"SELECT 'of another release'\t{entry['db_id']}\n" for entry in entries))
    write_json(root / "mini_dev_sqlite.json", [entries[0], entries[3], entries[0], entries[10]])
    descriptions = databases / "schools" / "database_description"
    descriptions.mkdir()
    (descriptions / "frpm.csv").write_bytes(
        "\ufefforiginal_column_name,column_name,column_description,data_format,value_description\r\n"
        'CDSCode,,CDSCode,text,\r\n"School Name ",,the name,text,"of the school,\r\nin full"\r\n'.encode()
    )
    museum = databases / "museums" / "database_description"
    museum.mkdir()
    (museum / "visits.csv").write_bytes(
        b"original_column_name,column_name,column_description,data_format,value_description,\r\n"
        b"spent,,money,real,\x95 in dollars \x96 roughly,\r\n"
    )
    return root


def easy(number):
    """A question on the visits that the bundled model can answer, in one of four forms, and its gold."""
    column = ("id", "name")[number // 2 % 2]
    word, aggregate = (("highest", "MAX"), ("lowest", "MIN"))[number % 2]
    question = f"find the {column} of visitors that have the {word} age of all"
    return question, f"SELECT {column} FROM visitors WHERE age = (SELECT {aggregate}(age) FROM visitors)"


def write_spider(root: Path) -> Path:
    """Spider's layout: training and evaluation on other databases; one empty; a gold that cannot run."""
    empty = "CREATE TABLE song (id INTEGER, title TEXT);"
    scripts = {"museums": VISITS, "cre_Tours": VISITS, "music_2": empty, "visits": VISITS}
    for name, script in scripts.items():
        write_database(root / "database", name, script)
    (root / "database" / "visits" / "visits.sql").write_text("CRloserEATE TABLE")
    train = [{"db_id": "cre_Tours", "question": q, "query": sql} for q, sql in map(easy, range(6))]
    train += [
        {"db_id": "music_2", "question": "Which songs?", "query": "SELECT title FROM song"},
        {"db_id": "museums", "question": "Which town?", "query": 'SELECT  town FROM visitors WHERE name = "Javier" ;'},
        {"db_id": "museums", "question": "What types?", "query": "SELECT * FROM Ref_Company_Types"},
    ]
    write_json(root / "train_spider.json", train)
    write_json(root / "dev.json", [{"db_id": "visits", "question": q, "query": sql} for q, sql in map(easy, range(4))])
    return root


def write_ambiqt(root: Path) -> Path:
    """AmbiQT's layout: one question of each kind on one database, and one whose second reading cannot run."""
    write_database(root / "db-content" / "database", "museums", VISITS)
    entry = {"db_id": "museums", "question": "How old are they?", "orig_query": "select age from visitors"}
    files = {
        "col-synonyms": {
            "query1": "select years from visitors", "query2": "select born from visitors",
            "extra_map": {"visitors": {"age": ["years", "born"]}},
        },
        "tbl-synonyms": {
            "query1": "select age from guest", "query2": "select age from caller",
            "extra_table_map": {"visitors": ["guest", "caller"]},
        },
        "tbl-split": {
            "query1": "select age from visitors",
            "query2": "select t2.age from visitors as t1 join visitors_age as t2 on t1.id = t2.id",
            "split_map": {"visitors": "age"}, "primary_key": {"visitors": "id"},
        },
        "tbl-agg": {
            "orig_query": "select avg(t1.spent), t2.name from visits as t1 join museums as t2 on t1.museum_id = t2.id "
            "group by t2.name",
            "query1": "select avg(t1.spent), t2.name from visits as t1 join museums as t2 on t1.museum_id = t2.id "
            "group by t2.name",
            "query2": "select avg_spent, name from visits_museums_spent",
            "new_table_name": "visits_museums_spent", "all_raw_cols": ["name", "number", "spent"],
            "all_cols": ["name", "number", "sum_spent", "avg_spent", "min_spent", "max_spent"],
            "tables_with_pkeys": [["visits", None], ["museums", "id"]],
        },
    }  # fmt: skip
    for kind, more in files.items():
        (root / "benchmark" / kind).mkdir(parents=True)
        unreadable = [entry | more | {"query2": "select index from visitors"}] if kind == "tbl-split" else []
        write_json(root / "benchmark" / kind / "validation.json", [entry | more, *unreadable])
    return root


def write_ambrosia(root: Path) -> Path:
    """AMBROSIA's layout: the same database name in two domains, two and three interpretations."""
    queries = ["SELECT name FROM visitors", "SELECT name FROM museums", "SELECT staff FROM museums"]
    places = [("scope", "Travel", 2), ("attachment", "Travel", 2), ("vague", "Travel", 3), ("vague", "Art", 2)]
    for kind, domain, count in places:
        folder = root / "data" / kind / domain
        write_database(folder, "museums", VISITS)
        entry = {"question": "Which names?", "sql_query_general": "SELECT missing"}
        for number, query in enumerate(queries[:count], start=1):
            entry |= {f"sql_query{number}": query, f"interpretation{number}": f"reading {number}"}
        write_json(folder / "museums" / "examples.json", [entry])
    return root


def write_json(path: Path, content) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def real_bird(root: Path) -> Path:
    """BIRD's superhero with its own questions and with some that the bundled model can answer."""
    (root / "dev_databases").mkdir()
    (root / "dev_databases" / "superhero").symlink_to(DATA / "bird" / "dev_databases" / "superhero")
    entries = json.loads((DATA / "bird" / "dev.json").read_text())
    own = [entry for entry in entries if entry["db_id"] == "superhero"][:6]
    last = "find {0} of {0} having the highest {0}"
    easy = [
        bird_entry(9000 + n, "superhero", f"{last.format('gender')}{' ' * n}", "SELECT MAX(gender) FROM gender")
        for n in range(6)
    ]
    write_json(root / "dev.json", own + easy)
    return root


def real_spider(root: Path) -> Path:
    """Two of Spider's training databases and one of its dev databases, likewise."""
    source = DATA / "spider"
    (root / "database").symlink_to(source / "database")
    train = json.loads((source / "train_spider.json").read_text())
    chosen = [e for name in ("department_management", "ship_1") for e in train if e["db_id"] == name]
    easy = {
        "db_id": "department_management", "question": "find name of head having the highest age",
        "query": "SELECT name FROM head ORDER BY age DESC LIMIT 1",
    }  # fmt: skip
    write_json(root / "train_spider.json", chosen[:4] + chosen[-4:] + [easy] * 4)
    dev = json.loads((source / "dev.json").read_text())
    write_json(root / "dev.json", [e for e in dev if e["db_id"] == "museum_visit"][:4])
    return root
