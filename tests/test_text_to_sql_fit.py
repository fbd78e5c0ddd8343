"""`fit` on BIRD and Spider with the bundled model: search, replay, a kill, resume and evaluation on real schemas."""

import json
import sys

import pytest
from benchmark_files import DATA, VISITS, real_bird, real_spider, write_bird, write_database, write_spider
from conftest import ROOT, run_process

SHORT = {
    "model.path": ROOT / "elite_lightning" / "assets" / "pocketsql_base",
    "trainer.accelerator": "cpu",
    "trainer.max_steps": 3,
    "trainer.enable_progress_bar": "false",
    "trainer.callbacks": '[{"class_path": "probes.KillAt"}]',
    "checkpoint_every": 1,
    "torch_threads": 1,
    "model.sampling.max_new_tokens": 32,
    "model.responses_per_problem": 4,
    "model.verification.workers": 0,
    "data.problems_per_step": 4,
    "data.replay_per_step": 4,
    "data.source.prompts": "elite_lightning.domains.sql.CompactPrompt",
    "data.source.test_problems": 4,
    "search.settings.attempts_per_problem": 16,
    "search.settings.sampling": '{"temperature": 0.7, "max_new_tokens": 32}',
    "evaluation.samples": 2,
    "evaluation.ks": "[1, 2]",
}
NO_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="the data beside the repository (../shared/data) are absent")


def options_of(settings):
    return [word for name, value in settings.items() for word in (f"--{name}", str(value))]


def fit_here(config, root, run, monkeypatch, capsys, **settings):
    """Runs `fit` in this process; gives exit code, stdout and stderr."""
    from elite_lightning.cli import main

    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = options_of(SHORT | {"run_dir": run, "data.root": root} | settings)
    code = main(["fit", "--config", str(ROOT / "configs" / f"{config}.yaml"), *options])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("config", "write"),
    [
        ("bird", write_bird),
        ("spider", write_spider),
        pytest.param("bird", real_bird, marks=NO_DATA),
        pytest.param("spider", real_spider, marks=NO_DATA),
    ],
)
def test_a_killed_fit_goes_through(config, write, tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    root, run = write(tmp_path / "data"), tmp_path / "run"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    command = ["fit", "--config", ROOT / "configs" / f"{config}.yaml"]
    options = options_of(SHORT | {"run_dir": run, "data.root": root})
    code, _, err = run_process(*command, *options, TOY_KILL_AT="2")
    assert code == -9, err
    archive = (run / "archive.jsonl").read_bytes()

    code, _, err = fit_here(config, root, run, monkeypatch, capsys)

    assert code == 0, err
    assert (run / "archive.jsonl").read_bytes() == archive
    summary = json.loads((run / "summary.json").read_text())
    assert summary["archive"]["elites"] > 0
    assert 0 <= summary["trained"]["pass@1"] <= summary["trained"]["pass@2"] <= 1
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "train/loss_replay" in row]
    assert [row["step"] for row in steps] == [0, 1, 2]
    assert all(row["train/loss_replay"] > 0 for row in steps)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_long_schemas_are_cut_to_the_budget_and_the_user_is_told(tmp_path, monkeypatch, capsys):
    settings = {"model.mu": 0, "data.replay_per_step": 0, "search": "null", "trainer.max_steps": 1}
    prompts = {"data.source.prompts": "DdlPrompt", "data.source.prompts.max_tokens": 200}
    root = write_bird(tmp_path)
    code, out, err = fit_here("bird", root, tmp_path / "run", monkeypatch, capsys, **settings, **prompts)
    assert code == 0, err
    assert "were longer than prompts.max_tokens=200 and were cut: sample values in" in out
    assert "left out, because a gold query cannot run: bird-dev-2 (error, no such column: missing)" in out


def test_a_search_that_finds_nothing_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    settings = {"search.settings.sampling": '{"max_new_tokens": 1}', "search.settings.attempts_per_problem": 8}
    root = write_spider(tmp_path)
    code, _, err = fit_here("spider", root, tmp_path / "run", monkeypatch, capsys, **settings)
    assert code == 2
    assert [line for line in err.splitlines() if line.startswith("error: ")] == [
        "error: the archive is empty: the search found no verified solution to replay; take a stronger model, easier "
        "problems or more search.settings.attempts_per_problem, in another --run_dir"
    ]
    assert json.loads((tmp_path / "run" / "search.json").read_text())["outcomes"]


def complaint(code, err):
    assert code == 2, err
    (line,) = [line for line in err.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize("config", ["bird", "spider", "ambiqt", "ambrosia"])
def test_a_folder_that_is_not_the_data_set_is_one_line(config, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    settings = {"data.source.prompts": "DdlPrompt", "data.source.databases": "null"}
    code, _, err = fit_here(config, tmp_path / "no", run, monkeypatch, capsys, **settings)
    assert f"no folder at {tmp_path / 'no'}: data.root must be the folder of" in complaint(code, err)
    code, _, err = fit_here(config, "null", run, monkeypatch, capsys, **settings)
    assert "--data.root DIR" in complaint(code, err)
    (tmp_path / "empty").mkdir()
    code, _, err = fit_here(config, tmp_path / "empty", run, monkeypatch, capsys, **settings)
    assert str(tmp_path / "empty") in complaint(code, err)
    assert not run.exists()


def test_the_folder_can_also_be_named_at_the_source(tmp_path, monkeypatch, capsys):
    (tmp_path / "data").mkdir()
    root = write_spider(tmp_path / "data")
    at_source = {"data.root": "null", "data.source.root": root, "data.source.databases": "[visits]"}
    code, _, err = fit_here("spider", root, tmp_path / "run", monkeypatch, capsys, **at_source)
    assert "no training problems" in complaint(code, err)  # it has been read: `visits` is in dev.json alone
    twice = at_source | {"data.root": tmp_path}
    code, _, err = fit_here("spider", root, tmp_path / "run", monkeypatch, capsys, **twice)
    assert "set only one of them" in complaint(code, err)


def test_questions_and_databases_of_ones_own(tmp_path, monkeypatch, capsys):
    """The guide's form of a problem file, through the command line, with a gold that has a closing semicolon."""
    write_database(tmp_path / "databases", "museums", VISITS)
    data = {"database": "museums", "gold": "SELECT name FROM visitors;", "ordered": False, "evidence": "guests"}
    (tmp_path / "train.jsonl").write_text(json.dumps({"id": "q1", "question": "Who came?", "data": data}) + "\n")
    settings = {
        "data.source": "datamodules.sources.JsonlSource",
        "data.source.domain": "elite_lightning.domains.sql.SqlDomain",
        "data.source.domain.databases": tmp_path / "databases",
        "data.source.domain.prompts": "elite_lightning.domains.sql.DdlPrompt",
        "data.source.domain.prompts.max_tokens": 150,
        "data.source.train_file": tmp_path / "train.jsonl",
        "model.mu": 0,
        "data.replay_per_step": 0,
        "search": "null",
        "trainer.max_steps": 1,
        "trainer.val_check_interval": "null",
    }
    short = {name: value for name, value in SHORT.items() if not name.startswith("data.source")}
    monkeypatch.setattr(sys, "argv", ["train.py"])
    from elite_lightning.cli import main

    options = options_of(short | {"run_dir": tmp_path / "run"} | settings)
    assert main(["fit", "--config", str(ROOT / "configs" / "arithmetic.yaml"), *options]) == 0
    assert "1 of 1 prompts were longer than prompts.max_tokens=150" in capsys.readouterr().out
