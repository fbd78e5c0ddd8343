"""Problems with several interpretations: verdicts, hits, AMBROSIA's golds, and the figures of an evaluation."""

import json
import pickle
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.domains.sql import SqlDomain
from elite_lightning.errors import UsageError
from elite_lightning.evaluation import (
    figures_of,
    interpretation_count,
    per_problem,
    read_counts,
    sample_records,
    write_samples,
)
from elite_lightning.metrics import both_at_k
from elite_lightning.rollouts import Group
from elite_lightning.types import AmbiguousDomain, Completion, FinishReason, Problem, Reason
from elite_lightning.verify import VerificationPool, Want, judge

AMBROSIA = Path(__file__).resolve().parents[2] / "shared" / "data" / "other" / "ambrosia" / "data"
GOLDS = ["SELECT name FROM emp WHERE sal > 3", "SELECT name FROM emp WHERE sal >= 3", "SELECT count(*) FROM emp"]


def write_database(path: Path, *statements: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(";".join(statements))


@pytest.fixture
def domain(tmp_path) -> SqlDomain:
    table = "CREATE TABLE emp(id INTEGER PRIMARY KEY, name TEXT, sal REAL)"
    write_database(tmp_path / "firm" / "firm.sqlite", table, "INSERT INTO emp VALUES (1, 'Ann', 9), (2, 'Bob', 3)")
    # On the copy alone, `>` and `>=` could not be told apart; on the first they can.
    write_database(tmp_path / "firm" / "copy.sqlite", table, "INSERT INTO emp VALUES (1, 'Ann', 9), (2, 'Bob', 2)")
    return SqlDomain(tmp_path)


def problem(golds=GOLDS, **more) -> Problem:
    return Problem("p", "who earns 3?", {"database": "firm", "gold": golds[0], "golds": golds, **more})


@pytest.mark.parametrize(
    ("solution", "hits"),
    [
        ("SELECT name FROM emp WHERE NOT sal <= 3", (True, False, False)),
        ("SELECT name FROM emp WHERE sal = 3 OR sal > 3", (False, True, False)),
        ("SELECT 2", (False, False, True)),
        ("SELECT 'Ann'", (True, False, False)),
        ("SELECT 'Bob'", (False, False, False)),
        ("SELECT nothing FROM emp", (False, False, False)),
    ],
)
def test_a_solution_is_right_by_any_gold_and_hits_those_that_it_is_right_by(domain, solution, hits):
    assert domain.interpretations(problem(), solution) == hits
    assert domain.verify(problem(), solution).correct == any(hits)


def test_a_wrong_solution_has_the_first_golds_reason(domain):
    assert domain.verify(problem(), "SELECT nothing FROM emp").reason is Reason.ERROR
    assert domain.verify(problem(), "SELECT 'Bob'").reason is Reason.WRONG_RESULT


def test_one_gold_is_no_ambiguity(domain):
    for asked in (problem(GOLDS[:1]), Problem("p", "", {"database": "firm", "gold": GOLDS[0]})):
        assert domain.interpretation_count(asked) == 0
        assert domain.interpretations(asked, GOLDS[0]) == ()
        assert domain.verify(asked, GOLDS[0]).correct
    assert domain.interpretation_count(problem()) == 3
    assert domain.interpretation_count(Problem("p", "", {"database": "firm", "golds": GOLDS[:2]})) == 2
    assert isinstance(domain, AmbiguousDomain)
    assert not isinstance(ArithmeticDomain(), AmbiguousDomain)
    with pytest.raises(UsageError, match="has no data\\['gold'\\]"):
        domain.verify(Problem("p", "", {"database": "firm"}), GOLDS[0])


def test_a_gold_that_cannot_run_is_never_taken_for_a_hit(domain):
    broken = problem([GOLDS[0], "SELECT missing FROM emp"])
    assert domain.verify(broken, GOLDS[0]).correct
    with pytest.raises(UsageError, match="gold query"):
        domain.verify(broken, "SELECT 'Bob'")
    with pytest.raises(UsageError, match="gold query"):
        domain.interpretations(broken, GOLDS[0])


def test_hits_are_found_out_when_wanted_also_of_what_is_wrong_but_ran(domain):
    with VerificationPool(domain, workers=0) as pool:
        responses = [GOLDS[1], "SELECT 'Bob'", "SELECT nothing FROM emp", ""]
        items = [(problem(), response) for response in responses]
        assert [j.hits for j in pool.judge_many(items)] == [None] * 4
        nothing = (False, False, False)
        expected = [(False, True, False), nothing, None, None]
        assert [j.hits for j in pool.judge_many(items, Want(strategy=True, hits=True))] == expected
        assert [j.hits for j in pool.judge_many(items, Want(strategy=True))] == [None] * 4
        assert pool.failures == 0
        easy = Problem("easy", "", {"database": "firm", "gold": GOLDS[0]})
        assert pool.judge_many([(easy, GOLDS[0])], Want(hits=True))[0].hits == ()
    plain = make_problems(1)[0]
    assert judge(ArithmeticDomain(), plain, plain.data["expression"], Want(hits=True)).hits == ()


def test_worker_processes_find_the_same_hits(domain):
    items = [(problem(), response) for response in [*GOLDS, "SELECT 'Bob'"]]
    want = Want(strategy=True, hits=True)
    with VerificationPool(domain, workers=1) as pool:
        theirs = [pool.judge_many(items), pool.judge_many(items, want)][1]
    assert theirs == [judge(domain, asked, response, want) for asked, response in items]


def group_of(domain, asked, responses, index):
    judgements = tuple(judge(domain, asked, response, Want(strategy=True, hits=True)) for response in responses)
    completions = tuple(Completion((0,), (0.0,), FinishReason.STOP, response) for response in responses)
    return Group(index, asked, (), completions, judgements)


def test_an_evaluation_reports_coverage_of_the_ambiguous_problems_only(domain, tmp_path):
    plain = Problem("plain", "", {"database": "firm", "gold": GOLDS[0]})
    two = Problem("two", "", {"database": "firm", "gold": GOLDS[0], "golds": GOLDS[:2]})
    unsolved = Problem("unsolved", "", {**two.data})
    groups = [
        group_of(domain, plain, [GOLDS[0]] * 4, 0),
        group_of(domain, two, [GOLDS[0], GOLDS[1], "SELECT 'Bob'", "no query at all"], 1),
        group_of(domain, unsolved, ["SELECT 'Bob'", "", "SELECT nope", "SELECT 1, 2"], 2),
    ]
    path = tmp_path / "samples.jsonl"
    records = [r for g in groups for r in sample_records(g, interpretation_count(domain, g.problem))]
    write_samples(path, records)
    assert "interpretations" not in json.loads(path.read_text().splitlines()[0])
    counts = read_counts(path)
    figures = per_problem(counts, (1, 2, 4))
    # two: of the pairs of 4 samples, 1 of 6 holds both right ones, and 1 of 6 neither.
    assert figures["either@2"].tolist()[1:] == pytest.approx([5 / 6, 0])
    assert figures["both@2"].tolist()[1:] == pytest.approx([1 / 6, 0])
    assert figures["either@2"][0] != figures["either@2"][0]  # no figure
    means = {name: figure.mean for name, figure in figures_of(counts, (1, 2, 4, 8)).items()}
    assert (means["pass@2"], means["either@2"], means["both@2"]) == pytest.approx((11 / 18, 5 / 12, 1 / 12))
    assert (means["both@4"], means["either@4"], means["both@1"]) == (0.5, 0.5, 0)
    assert "both@8" not in means
    write_samples(path, records[:4])
    assert {name.split("@")[0] for name in per_problem(read_counts(path), (1,))} == {"pass", "strategies"}


def test_what_the_verifier_could_not_judge_does_not_count_in_coverage(tmp_path):
    path = tmp_path / "samples.jsonl"
    common = {"index": 0, "problem_id": "p", "strategy": "s"}
    write_samples(
        path,
        [
            {**common, "sample": 0, "correct": True, "reason": None, "interpretations": [True, False]},
            {**common, "sample": 1, "correct": False, "reason": "verifier_failure", "interpretations": [False, False]},
        ],
    )
    assert figures_of(read_counts(path), (1, 2)).keys() == {"pass@1", "strategies@1", "either@1", "both@1"}
    assert figures_of(read_counts(path), (1,))["either@1"].mean == 1


# AmbiQT within the domain: the rule of the rewriting, on the original database.


@pytest.fixture
def ambiqt(tmp_path):
    table = "CREATE TABLE {}(id INTEGER, {}, name TEXT)"
    rows = "INSERT INTO singer VALUES (1, {}, 'a'), (2, {}, 'b')"
    write_database(tmp_path / "old" / "c" / "c.sqlite", table.format("singer", "age INTEGER"), rows.format(5, 6))
    changed = table.format("singer", "years INTEGER, born INTEGER")
    write_database(tmp_path / "new" / "c-1" / "c-1.sqlite", changed, rows.format("5, 5", "6, 6"))
    data = {
        "database": "c-1",
        "kind": "col-synonyms",
        "gold": "select max(years) from singer",
        "golds": ["select max(years) from singer", "select max(born) from singer"],
        "original": {"database": "c", "gold": "select max(age) from singer"},
        "ambiguity": {"extra_map": {"singer": {"age": ["years", "born"]}}},
    }
    return SqlDomain(tmp_path / "new", originals=tmp_path / "old"), Problem("q", "how old?", data)


def test_rows_cannot_tell_synonyms_apart_and_ambiqts_rule_can(ambiqt):
    domain, asked = ambiqt
    for sql, hits in (
        ("SELECT MAX( years ) FROM singer", (True, False)),
        ("select max(born) from singer", (False, True)),
        ("select years from singer order by born desc limit 1", (False, False)),
        ("select 6", (True, True)),
        ("select min(born) from singer", (False, False)),
    ):
        assert domain.interpretations(asked, sql) == hits
        assert pickle.loads(pickle.dumps(domain)).interpretations(asked, sql) == hits
    # By execution alone it is right, though it mixes the synonyms up.
    assert domain.verify(asked, "select years from singer order by born desc limit 1").correct


def test_ambiqts_rule_needs_the_original_databases(ambiqt, tmp_path):
    _, asked = ambiqt
    with pytest.raises(UsageError, match="`originals`"):
        SqlDomain(tmp_path / "new").interpretations(asked, "select 6")
    broken = Problem("q", "", {**asked.data, "original": {"database": "c", "gold": "select nothing from singer"}})
    with pytest.raises(UsageError, match="original query of problem 'q' cannot run"):
        SqlDomain(tmp_path / "new", originals=tmp_path / "old").interpretations(broken, "select 6")


# AMBROSIA.


def ambrosia_problems():
    for file in sorted(AMBROSIA.glob("*/*/*/examples.json")):
        for number, record in enumerate(json.loads(file.read_text())):
            golds = [record[f"sql_query{i}"] for i in (1, 2, 3) if record.get(f"sql_query{i}")]
            # As multisets, which is how the reference counts of the benchmark's questions were made.
            data = {"database": file.parent.name, "gold": golds[0], "golds": golds, "ordered": False}
            yield file.parent.parent, Problem(f"{file.parent.name}-{number}", record["question"], data)


@pytest.mark.skipif(not AMBROSIA.is_dir(), reason=f"no AMBROSIA at {AMBROSIA}")
def test_ambrosias_golds_cover_all_interpretations_by_execution():
    found, domains = Counter(), {}
    for folder, asked in ambrosia_problems():
        domain = domains.setdefault(folder, SqlDomain(folder))
        table = [domain.interpretations(asked, gold) for gold in asked.data["golds"]]
        assert all(row[index] for index, row in enumerate(table)), asked.id
        assert both_at_k(table, len(table)) == 1
        assert domain.verify(asked, asked.data["golds"][-1]).correct
        found["all", len(table)] += 1
        # Where rows differ, an answer fits one interpretation, and no single answer covers all.
        found["apart", len(table)] += all(sum(row) == 1 for row in table)
    total, apart = (sum(n for (kind, _), n in found.items() if kind == name) for name in ("all", "apart"))
    assert (total, apart) == (1277, 1272)
    assert {m for _, m in found} == {2, 3}
