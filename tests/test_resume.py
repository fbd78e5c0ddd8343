"""Killed runs go on where they stopped, with the same draws and the same result."""

import json

import pytest
import torch
import yaml
from conftest import run_process

OPTIONS = ("--trainer.callbacks", '[{"class_path": "probes.KillAt"}]', "--model.verification.workers", "1")


def training_rows(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    training = [row for row in rows if "train/loss" in row]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in training]


def samples(run, step):
    return (run / "eval" / f"step={step}.jsonl").read_bytes()


def parameters(run):
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.fixture
def straight(cli, tmp_path):
    """The run folder of a run that nobody disturbed."""
    run = tmp_path / "straight"
    assert cli("fit", "--run_dir", str(run), *OPTIONS)[0] == 0
    return run


def test_a_killed_training_resumes_bit_for_bit(straight, cli, toy_config, tmp_path):
    run = tmp_path / "killed"
    options = ("--run_dir", str(run), *OPTIONS)
    code, _, _ = run_process("fit", "--config", toy_config, *options, TOY_KILL_AT="6")
    assert code == -9
    assert not (run / "summary.json").exists()
    assert {row["step"] for row in training_rows(run)} == set(range(6))  # two steps more than the checkpoint knows of

    assert cli("fit", *options) == (0, "")

    assert (run / "archive.jsonl").read_bytes() == (straight / "archive.jsonl").read_bytes()
    assert training_rows(run) == training_rows(straight)
    assert (run / "replay.jsonl").read_bytes() == (straight / "replay.jsonl").read_bytes()
    assert samples(run, 0) == samples(straight, 0)
    assert samples(run, 8) == samples(straight, 8)
    resumed, undisturbed = parameters(run), parameters(straight)
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in undisturbed)


def test_a_run_that_is_asked_to_end_does_not_pass_for_a_finished_one(toy_config, tmp_path):
    options = ("--config", toy_config, "--run_dir", str(tmp_path / "run"), *OPTIONS)
    code, out, _ = run_process("fit", *options, TOY_KILL_AT="6", TOY_SIGNAL="SIGTERM")
    assert code == 128 + 15
    assert "Stopped" in out
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_finished_run_shows_its_table_and_changes_nothing(straight, cli, capsys):
    before = {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()}
    assert cli("fit", "--run_dir", str(straight), *OPTIONS)[0] == 0
    assert {path: path.read_bytes() for path in straight.rglob("*") if path.is_file()} == before


def test_a_run_of_an_earlier_release_goes_on_with_the_defaults_of_later_options(straight, cli):
    """Options that came later stand for what was done before there was a choice."""
    written = yaml.safe_load((straight / "config.yaml").read_text())
    del written["data"]["balancing"], written["model"]["policy_weight"], written["model"]["replay"]
    del written["search"]["init_args"]["settings"]["cells"]
    (straight / "config.yaml").write_text(yaml.safe_dump(written))
    (straight / "summary.json").unlink()
    before = samples(straight, 8)
    assert cli("fit", "--run_dir", str(straight), *OPTIONS) == (0, "")
    assert samples(straight, 8) == before
    code, err = cli("fit", "--run_dir", str(straight), *OPTIONS, "--data.balancing", "none")
    assert code == 2
    assert "data.balancing ('problem_and_cell' there, 'none' here)" in err


def test_an_option_that_is_none_any_more_is_named(straight, cli):
    written = yaml.safe_load((straight / "config.yaml").read_text())
    written["model"]["of_old"] = 3
    (straight / "config.yaml").write_text(yaml.safe_dump(written))
    code, err = cli("fit", "--run_dir", str(straight), *OPTIONS)
    assert code == 2
    assert "model.of_old (3 there, None here)" in err
