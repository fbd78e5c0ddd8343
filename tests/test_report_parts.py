"""The report's pieces one by one: curves, what is shown of many samples, words from intervals, and the command."""

import json
import sqlite3
import sys
from itertools import pairwise

import numpy as np
import pytest
from report_runs import ATTEMPTS, BASE, ELITE, GRPO, attempt, run_folder, samples, search
from test_report_page import Page

import train
from elite_lightning.errors import UsageError
from elite_lightning.evaluation import ProblemCounts, write_samples
from elite_lightning.html.arms import Arm, arms_of, newest_evaluation
from elite_lightning.html.command import arms_by_name, main
from elite_lightning.html.curves import coverage, curve_of, journals_of, read_metrics
from elite_lightning.html.estimates import Estimate, Estimates, estimates_of, mean_over_runs
from elite_lightning.html.pictures import COLOURS, style_of
from elite_lightning.html.problems import ProblemTexts
from elite_lightning.html.reading import reading
from elite_lightning.html.samples import Browsable, browser_data, embedded, read_answers
from elite_lightning.html.tables import all_names, main_names
from elite_lightning.search.journal import SearchJournal


def test_curves_are_means_with_the_range_over_seeds():
    curve = curve_of([{0: 1.0, 1: 2.0, 2: 9.0}, {0: 3.0, 1: 2.0}])
    assert (curve.at.tolist(), curve.mean.tolist()) == ([0, 1], [2, 2])
    assert (curve.low.tolist(), curve.high.tolist()) == ([1, 2], [3, 2])
    assert curve_of([{0: 1.0}, {1: 1.0}]) is None
    assert curve_of([]) is None
    smooth = curve_of([dict(enumerate([3.0, 6.0, 9.0, 0.0]))], window=3)
    assert smooth.mean.tolist() == pytest.approx([4.5, 6, 5, 4.5])
    many = curve_of([{step: float(step) for step in range(1000)}])
    assert many.at[0] == 0
    assert many.at[-1] == 999
    assert len(many.at) <= 160
    assert np.array_equal(many.at, many.mean)


def test_metrics_survive_a_line_that_a_kill_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        '{"step": 0, "train/loss": 1.5, "test/pass@1": 1}',
        '{"step": 1, "train/loss": null}',
        "[1]",
        '{"step": 2, "tra',
    ]
    path.write_text("\n".join(lines))
    assert read_metrics(path) == {"train/loss": {0: 1.5}}


def test_coverage_counts_cells_and_problems_and_leaves_the_folder_alone(tmp_path):
    search(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    covered = coverage(journals_of(tmp_path)["search"])
    assert list(covered["cells"].items()) == [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 3)]
    assert list(covered["problems"].values()) == [0, 1, 1, 1, 1, 2]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_coverage_takes_the_ranks_attempts_in_turns(tmp_path):
    for rank, found in enumerate((ATTEMPTS, [attempt(0, "train-9", ("alone", "1"))])):
        with SearchJournal(tmp_path / f"iid.rank{rank}.sqlite", {"rank": rank}) as journal:
            journal.append(found)
    journals = journals_of(tmp_path)
    assert list(journals) == ["iid"]
    assert list(coverage(journals["iid"])["problems"].values()) == [0, 1, 2, 2, 2, 2, 3]


def test_a_journal_in_use_is_read_up_to_its_last_batch(tmp_path):
    with SearchJournal(tmp_path / "search.sqlite", {"method": "toy"}) as journal:
        journal.append(ATTEMPTS)
        assert (tmp_path / "search.sqlite-wal").is_file()
        assert coverage([tmp_path / "search.sqlite"])["cells"][5] == 3


def test_a_file_that_is_no_journal_is_named(tmp_path):
    (tmp_path / "search.sqlite").write_text("no")
    with pytest.raises(UsageError, match=r"search\.sqlite is not a search's journal"):
        coverage([tmp_path / "search.sqlite"])
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(UsageError, match="no such table"):
        coverage([tmp_path / "other.sqlite"])


def browsable(tmp_path, table, texts):
    path = tmp_path / "eval" / "step=1.jsonl"
    write_samples(path, samples(table, texts))
    arm = Arm("a", "A", (tmp_path,), (path,))
    return Browsable([arm], [read_answers([path])], {}, ProblemTexts({}, None))


def test_every_correct_strategy_is_shown_and_what_is_left_out_is_counted(tmp_path):
    table = {"p": "x" * 40 + "y" * 3 + "z" + "." * 60}
    found = browsable(tmp_path, table, lambda _, number, strategy: strategy + (str(number) if strategy == "x" else ""))
    answers = browser_data(found, [["f"]], 10**6)["problems"][0]["answers"][0]
    rows = answers["rows"]
    assert {row[4] for row in rows if row[2]} == {0, 1, 2}
    assert answers["left_out"] == 43 - len(rows)
    assert answers["left_out_samples"] + sum(row[1] for row in rows) == answers["samples"] == 104
    wrong = [row for row in rows if not row[2]]
    assert [row[:4] for row in wrong] == [[".", 60, 0, "wrong_result"]]
    assert all(a[2] >= b[2] for a, b in pairwise(rows))  # right ones first


def test_the_data_is_cut_until_it_fits(tmp_path):
    table = {f"p{i}": "." * 30 for i in range(10)}
    found = browsable(tmp_path, table, lambda problem, number, strategy: f"{number} " + "y" * 900)
    whole, small = (browser_data(found, [["f"]], budget) for budget in (10**6, 20_000))
    assert whole["limits"]["answers"] == 10
    assert len(json.dumps(small)) <= 20_000
    answers = small["problems"][0]["answers"][0]
    assert answers["left_out"] == 30 - small["limits"]["answers"]
    assert answers["rows"][0][0].endswith("characters more)")


def test_embedded_json_has_no_markup_and_comes_back():
    data = {"a": "</script><!-- <b> & \u2028\u2029 \ud800 \0 'q' \"q\""}
    text = embedded(data)
    assert not set("<>&\u2028\0") & set(text)
    assert json.loads(text) == data


def estimates(**differences):
    one = Estimate(1.0, 0.5, 1.5)
    against = {name: {"strategies@8": difference} for name, difference in differences.items()}
    return Estimates({"r": {"strategies@8": one}}, against, {}, "r", 0.95, 9)


def test_words_follow_from_the_widest_interval():
    found = estimates(
        up=Estimate(0.5, 0.1, 0.9),
        down=Estimate(-0.5, -0.9, -0.001),
        even=Estimate(0.5, 0.0, 1.0),
        wide=Estimate(0.5, 0.4, 0.6, with_seeds=(-0.2, 1.2)),
    )
    labels = {"r": "R", "up": "U", "down": "D", "even": "E", "wide": "W"}
    assert str(reading("strategies@8", found, labels)) == (
        "Distinct correct strategies in 8 samples: R has 1.00 [0.50, 1.50]; more: U (+0.50 [+0.10, +0.90]); "
        "less: D (-0.500 [-0.900, -0.001]); not told apart: E (+0.50 [+0.00, +1.00]), W (+0.50 [-0.20, +1.20])."
    )
    assert reading("pass@1", found, labels) is None
    assert reading("strategies@8", Estimates(found.figures, {}, {}, None, 0.95, 9), labels) is None


def test_a_problem_counts_with_the_runs_that_have_its_figure():
    """As a study's results do: a seed whose samples could not be judged takes no problem away."""
    full, failed = ProblemCounts(4, 2, (2,)), ProblemCounts(2, 1, (1,))
    tables = ({"p": full, "q": full}, {"p": failed, "q": failed}, {"p": ProblemCounts(4, 4, (4,)), "q": failed})
    arm = Arm("a", "A", (), (), tables)
    assert mean_over_runs(arm, [1, 4])["pass@4"].tolist() == [1.0, 1.0]
    assert mean_over_runs(arm, [1, 4])["strategies@1"].tolist() == pytest.approx([2 / 3, 0.5])
    found = estimates_of([arm], [4, 8], None, None).figures["a"]
    assert found["pass@4"].by_seed == (1.0, None, 1.0)
    assert list(found) == ["pass@4", "strategies@4"]


def test_the_first_tables_have_few_columns_and_the_others_all():
    names = [f"{kind}@{2**n}" for kind in ("pass", "strategies", "strategies_among_correct") for n in range(8)]
    found = Estimates({"r": dict.fromkeys([*names, "gini_simpson"], Estimate(1.0, 0.5, 1.5))}, {}, {}, None, 0.95, 9)
    assert main_names(found) == [f"pass@{k}" for k in (1, 8, 32, 128)] + [f"strategies@{k}" for k in (8, 32, 128)]
    assert all_names(found) == [name for name in [*names, "gini_simpson"] if name != "strategies@1"]


def test_arms_keep_their_colours_apart():
    assert len({style_of(n) for n in range(len(COLOURS))}) == len(COLOURS)
    assert style_of(len(COLOURS)) == style_of(1)  # never the base policy's


def test_the_newest_test_samples_are_taken(tmp_path):
    for name in ("step=0", "step=9", "step=100", "validation_step=200", "step=x"):
        (tmp_path / "eval").mkdir(exist_ok=True)
        (tmp_path / "eval" / f"{name}.jsonl").touch()
    assert newest_evaluation(tmp_path).name == "step=100.jsonl"


def test_equal_measurements_of_the_base_policy_count_once(tmp_path):
    runs = [run_folder(tmp_path / f"r{n}", GRPO, base=base) for n, base in enumerate((BASE, BASE, ELITE))]
    base, arm = arms_of({"arm": runs}, None)
    assert [path.parent.parent.name for path in base.evaluations] == ["r0", "r2"]
    assert base.is_base
    assert not arm.is_base
    assert len(arm.counts) == 3


def test_runs_that_differ_in_the_seed_alone_are_one_arm(tmp_path):
    names = ["grpo-seed0", "grpo-seed1", "elite/seed=0", "elite/seed=1", "other"]
    arms = arms_by_name([tmp_path / name for name in names])
    assert {name: [p.relative_to(tmp_path).as_posix() for p in of] for name, of in arms.items()} == {
        "grpo": names[:2],
        "elite": names[2:4],
        "other": names[4:],
    }
    with pytest.raises(UsageError, match="named twice"):
        arms_by_name([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_the_command_reports_on_several_runs_and_on_a_study(tmp_path, capsys, monkeypatch):
    run = run_folder(tmp_path / "study" / "grpo" / "seed=0", GRPO)
    run_folder(tmp_path / "study" / "elite" / "seed=0", ELITE)
    search(tmp_path / "study" / "searches" / "shared")
    out, other = tmp_path / "several.html", tmp_path / "study" / "elite" / "seed=0"
    monkeypatch.setattr(
        sys, "argv", ["train.py", "report", *map(str, (run, other, "--reference", "grpo", "--out", out))]
    )
    assert train.main() == 0
    assert capsys.readouterr().out == f"Report: {out}\n"
    assert list(Page(out).table("differences")) == ["base policy", "elite"]
    arms = {name: {"label": name.upper(), "runs": [f"{name}/seed=0"], "figures": {}} for name in ("grpo", "elite")}
    (tmp_path / "study/results.json").write_text(json.dumps({"reference": "grpo", "arms": arms}))
    assert main([str(tmp_path / "study")]) == 0
    page = Page(tmp_path / "study/report.html")
    assert list(page.table("differences")) == ["base policy", "ELITE"]
    assert page.data["archives"] == ["search shared: searches/shared/archive.jsonl"]
    assert "search shared" in page.text.split('id="coverage_cells"')[1].split("</svg>")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: FOLDER"),
        (["nowhere"], "no folder at nowhere"),
        (["."], "neither a run's folder"),
        (["run", "--out", "run"], "no name of a page"),
        (["run", "run"], "named twice"),
        (["study"], "is not a study's results"),
        (["study", "run"], "leave out the other folders"),
        (["run", "--colour", "red"], "unrecognized arguments"),
        (["broken"], "line 1: not a sample"),
        (["empty", "run"], "empty is not a run folder"),
    ],
)
def test_a_user_s_error_is_one_line_and_exit_code_2(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if "." not in arguments:
        run_folder(tmp_path / "run", GRPO)
        (run_folder(tmp_path / "broken", GRPO) / "eval" / "step=4.jsonl").write_text("{}\n")
        (tmp_path / "study").mkdir()
        (tmp_path / "study" / "results.json").write_text('{"arms": {"x": {}}}')
        (tmp_path / "empty").mkdir()
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("error: ")
    assert words in error


def test_the_samples_of_a_seed_are_its_own_in_whatever_order_runs_are_named(tmp_path):
    folders = [run_folder(tmp_path / "grpo" / f"seed={seed}", table) for seed, table in ((0, GRPO), (1, ELITE))]
    files = [f"grpo/seed={seed}/eval/step=4.jsonl" for seed in (0, 1)]
    results = {"arms": {"grpo": {"label": "GRPO", "evaluations": files}}}
    for given in (folders, folders[::-1]):
        (arm,) = [arm for arm in arms_of({"grpo": given}, results) if not arm.is_base]
        assert arm.runs == tuple(folders)
        assert arm.evaluations == tuple(tmp_path / file for file in files)
