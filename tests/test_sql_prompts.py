"""Reading a SQLite schema and writing the compact prompt."""

import sqlite3
from contextlib import closing

import pytest

from elite_lightning.domains.sql.prompts import ForeignKey, Schema, TableSchema, compact_prompt, schema_of


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "a shop? #1.sqlite"  # characters that mean something in an address
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('CREATE TABLE clients (id INTEGER PRIMARY KEY, "full name" TEXT)')
        connection.execute(
            "CREATE TABLE orders (client INTEGER, item INTEGER, qty INTEGER, "
            "FOREIGN KEY (client) REFERENCES clients (id), FOREIGN KEY (item) REFERENCES items (id))"
        )
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, label TEXT)")
    return path


def test_schema_has_tables_columns_and_keys_in_order_of_creation(database):
    keys = (ForeignKey("client", "clients"), ForeignKey("item", "items"))
    assert schema_of(database) == Schema(
        (
            TableSchema("clients", ("id", "full name")),
            TableSchema("orders", ("client", "item", "qty"), keys),
            TableSchema("items", ("id", "label")),
        )
    )


def test_plain_prompt_ends_where_the_sql_begins(database):
    assert compact_prompt(schema_of(database), "how many?") == (
        "table clients : id full name\n"
        "table orders : client -> clients item -> items qty\n"
        "table items : id label\n"
        "question : how many?\n"
        "sql :"
    )


def test_target_and_parent_come_between_question_and_sql(database):
    prompt = compact_prompt(schema_of(database), "how many?", target="window", parent="SELECT 1")
    assert prompt.splitlines()[-4:] == ["question : how many?", "approach : window", "parent : SELECT 1", "sql :"]
    assert compact_prompt(schema_of(database), "how many?", target="window").count("\n") == prompt.count("\n") - 1


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no database file at"):
        schema_of(tmp_path / "none.sqlite")


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "text.sqlite"
    path.write_text("this is no database, but it is long enough to be read as a header of one " * 5)
    with pytest.raises(sqlite3.DatabaseError):
        schema_of(path)
