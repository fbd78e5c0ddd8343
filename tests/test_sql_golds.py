"""Laws of cells and strategy keys over the benchmarks' gold queries.

A sample by default; all of the 13,000 with ELITE_FULL_SWEEP=1 (some minutes).
"""

import os
import random
from collections import defaultdict

import pytest
import sql_golds
import sqlglot

from elite_lightning.domains.sql.executor import Executor
from elite_lightning.domains.sql.labeler import APPROACHES, label_approach
from elite_lightning.domains.sql.strategy import canonical_text, strategy_key
from elite_lightning.domains.sql.structure import UNPARSED, structure_of

FULL_SWEEP = os.environ.get("ELITE_FULL_SWEEP") == "1"
SAMPLE = 700

pytestmark = pytest.mark.skipif(
    not sql_golds.DATA.is_dir(), reason="the benchmarks beside the repository (../shared/data) are absent"
)


@pytest.fixture(scope="module")
def golds():
    """(gold, columns by table) of every query that SQLite accepts, and of those whose database is not at hand."""
    everything = sql_golds.read_golds()
    chosen = everything if FULL_SWEEP else random.Random(3).sample(everything, SAMPLE)
    executor, found = Executor(), []
    for gold in chosen:
        if gold.path is None:
            found.append((gold, None))
        elif sql_golds.columns_read(gold.path, gold.sql) is not None:
            found.append((gold, executor.columns(gold.path)))
    return found


def names_of(tables):
    return {name for table, columns in (tables or {}).items() for name in (table, *columns)}


def test_there_are_enough(golds):
    assert len(golds) > (14_000 if FULL_SWEEP else SAMPLE * 0.95)
    assert len({gold.benchmark for gold, _ in golds}) >= 10


def test_every_query_that_runs_has_a_cell_and_a_key_of_its_syntax_tree(golds):
    for gold, tables in golds:
        if gold.path is not None:
            assert label_approach(gold.sql, tables) in APPROACHES, gold
            assert structure_of(gold.sql) != UNPARSED, gold
            assert not strategy_key(gold.sql, tables).startswith("RAW:"), gold


@pytest.mark.parametrize("way", ["rewritten", "other literals", "other aliases"])
def test_ways_of_writing_keep_cell_and_key(golds, way):
    rng, changed = random.Random(way), 0
    for gold, tables in golds:
        names = names_of(tables)
        if way == "rewritten":
            variant = sql_golds.rewritten(gold.sql, names, rng)
        elif way == "other literals":
            variant = sql_golds.with_other_literals(gold.sql, rng)
        else:
            variant = sql_golds.with_other_aliases(gold.sql, names, rng)
        if gold.path is None and canonical_text(gold.sql) is None:
            continue  # eight queries of AmbiQT are no SQL: a table called check-in
        changed += variant != gold.sql
        assert canonical_text(variant, tables) == canonical_text(gold.sql, tables), (gold, variant)
        assert label_approach(variant, tables) == label_approach(gold.sql, tables), (gold, variant)
        assert structure_of(variant) == structure_of(gold.sql), (gold, variant)
    assert changed > len(golds) / 4


def test_what_sqlglot_prints_has_the_same_key(golds):
    for gold, tables in golds:
        key = canonical_text(gold.sql, tables)
        if key is not None and "cast(" not in key:  # sqlglot turns CAST(x AS DATE) into DATE(x), which is another way
            tree = sqlglot.parse_one(gold.sql, read="sqlite")
            for printed in (tree.sql("sqlite"), tree.sql("sqlite", pretty=True)):
                assert canonical_text(printed, tables) == key, (gold, printed)


def test_queries_of_one_key_read_the_same_tables_and_columns(golds):
    """SQLite itself says which; so no two base tables or columns are ever confused."""
    reads = defaultdict(set)
    for gold, tables in golds:
        if gold.path is not None:
            key = gold.path, strategy_key(gold.sql, tables)
            reads[key].add(sql_golds.columns_read(gold.path, gold.sql))
    assert all(len(different) == 1 for different in reads.values())
    assert len(reads) > len(golds) / 2


def test_another_base_table_is_another_key(golds):
    """The query as it would be on a database where one of its tables has another name."""
    rng, checked = random.Random(9), 0
    for gold, tables in golds:
        words = {text.lower() for kind, text in sql_golds.tokens(gold.sql) if kind == "word"}
        words -= {word.lower() for word in sql_golds.KEYWORDS}
        words -= {text[1:-1].lower() for kind, text in sql_golds.tokens(gold.sql) if kind == "quoted"}
        candidates = sorted(table for table in tables or () if table in words)
        others = {name for table, columns in (tables or {}).items() for name in columns}
        candidates = [table for table in candidates if table not in others and table.isidentifier()]
        if not candidates:
            continue
        table = rng.choice(candidates)
        variant = "".join(
            "another_table" if kind == "word" and text.lower() == table else text
            for kind, text in sql_golds.tokens(gold.sql)
        )
        renamed = {"another_table" if name == table else name: columns for name, columns in tables.items()}
        assert strategy_key(variant, renamed) != strategy_key(gold.sql, tables), (gold, variant)
        assert label_approach(variant, renamed) == label_approach(gold.sql, tables), (gold, variant)
        checked += 1
    assert checked > len(golds) / 2
