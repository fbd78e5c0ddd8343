"""Whole runs with dynamic sampling: killed ones go on with the same bytes, and two ranks do what one does."""

import pytest
import torch
from conftest import ROOT, run_process
from test_ddp import RECORDING, TWO_RANKS
from test_resume import parameters, training_rows

# Three responses to a problem: about half of the groups have a signal, so that steps need one round or several.
ALONE = ("--model.mu", "0", "--data.replay_per_step", "0", "--search", "null", "--evaluation.baseline", "false")
DYNAMIC = (*ALONE, "--model.dynamic_sampling.max_rounds", "4", "--model.responses_per_problem", "3")
SHORT = ("--trainer.max_steps", "5", "--checkpoint_every", "2")
KILLABLE = (*DYNAMIC, *SHORT, "--trainer.callbacks", '[{"class_path": "probes.KillAt"}]')


def test_a_killed_training_resumes_bit_for_bit(cli, toy_config, tmp_path):
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert cli("fit", "--run_dir", str(straight), *KILLABLE) == (0, "")
    options = ("--run_dir", str(killed), *KILLABLE)
    code, _, _ = run_process("fit", "--config", toy_config, *options, TOY_KILL_AT="3")
    assert code == -9
    assert cli("fit", *options) == (0, "")

    rows = training_rows(straight)
    assert training_rows(killed) == rows
    resumed, undisturbed = parameters(killed), parameters(straight)
    assert all(torch.equal(resumed[name], undisturbed[name]) for name in undisturbed)

    # Else the comparison would show little: before and after the checkpoint, steps took different numbers of rounds.
    assert len({row["train/rounds"] for row in rows[:2]}) > 1
    assert len({row["train/rounds"] for row in rows[2:]}) > 1
    assert all(row["train/generations"] == row["train/rounds"] * 4 * 3 for row in rows)
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for row in rows for name in row if name != "step" and f"`{name}`" not in page] == []


def test_two_ranks_compute_what_one_computes(cli, toy_config, tmp_path, monkeypatch):
    gradients = {}
    for name in ("one", "two"):
        gradients[name] = tmp_path / f"gradients-{name}"
        gradients[name].mkdir()
    options = ("--config", toy_config, "--run_dir", tmp_path / "two", *TWO_RANKS, *RECORDING, *DYNAMIC, *SHORT)
    code, _, err = run_process("fit", *options, timeout_s=180, TOY_GRADIENTS=str(gradients["two"]))
    assert code == 0, err
    monkeypatch.setenv("TOY_GRADIENTS", str(gradients["one"]))
    assert cli("fit", "--run_dir", str(tmp_path / "one"), *RECORDING, *DYNAMIC, *SHORT) == (0, "")

    for step in range(5):
        ours, theirs = torch.load(gradients["two"] / f"{step}.pt"), torch.load(gradients["one"] / f"{step}.pt")
        assert ours.norm() > 0.01
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for ours, theirs in zip(training_rows(tmp_path / "two"), training_rows(tmp_path / "one"), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)
