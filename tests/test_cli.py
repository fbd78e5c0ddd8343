"""The commands, as a user gives them, and what they leave in the run folder."""

import itertools
import json
import math
import re
import shutil
import sys

import pytest
import torch
import yaml
from conftest import ROOT, byte_tokenizer, run_process, tiny_model
from test_resume import parameters, training_rows
from transformers import AutoModelForCausalLM, AutoTokenizer

from elite_lightning.run_folder import flatten

SUPERVISED = (
    "--model.mu",
    "1",
    "--data.problems_per_step",
    "0",
    "--search",
    "null",
    "--data.demonstrations",
    "toy.LetterDemonstrations",
)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_fit_leaves_the_files_of_the_design(cli, run, capsys):
    assert cli("fit") == (0, "")
    names = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {
        "config.yaml",
        "search.sqlite",
        "archive.jsonl",
        "archive.manifest.json",
        "checkpoints/last.ckpt",
        "eval/step=0.jsonl",
        "eval/step=8.jsonl",
        "metrics.jsonl",
        "summary.json",
        "over_k.png",
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
    } <= names
    assert any(name.startswith("tensorboard/events") for name in names)
    rows = read(run / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(8))


def test_the_summary_follows_from_the_samples(cli, run):
    """pass@k and strategies@k by enumerating all draws of k out of the 8 samples."""
    assert cli("fit", "--evaluation.ks", "[1, 2, 8]") == (0, "")
    summary = json.loads((run / "summary.json").read_text())
    for arm, step in {"base": 0, "trained": 8}.items():
        samples = read(run / "eval" / f"step={step}.jsonl")
        assert len(samples) == 5 * 8
        problems = [[s for s in samples if s["problem_id"] == f"test-{i}"] for i in range(5)]
        for k in (1, 2, 8):
            drawn = [list(itertools.combinations(problem, k)) for problem in problems]
            solved = [sum(any(s["correct"] for s in draw) for draw in draws) / len(draws) for draws in drawn]
            kinds = [sum(len({s["strategy"] for s in d if s["correct"]}) for d in ds) / len(ds) for ds in drawn]
            assert summary[arm][f"pass@{k}"] == pytest.approx(sum(solved) / 5)
            assert summary[arm][f"strategies@{k}"] == pytest.approx(sum(kinds) / 5)
            low, high = summary["intervals"][arm][f"pass@{k}"]
            assert low <= summary[arm][f"pass@{k}"] <= high
    change = summary["change"]["pass@2"]
    assert change[0] == pytest.approx(summary["trained"]["pass@2"] - summary["base"]["pass@2"])
    assert change[1] <= change[0] <= change[2]
    elites = read(run / "archive.jsonl")
    assert summary["archive"]["elites"] == len(elites)
    assert summary["archive"]["covered_problems"] == len({elite["problem_id"] for elite in elites})
    assert summary["archive"]["attempts"] == 8 * 16
    assert set(summary["seconds"]) == {"search", "train", "rollout", "verify", "update", "evaluate"}
    parts = [summary["seconds"][name] for name in ("rollout", "verify", "update")]
    assert 0 < sum(parts) <= summary["seconds"]["train"]


def test_every_sample_says_what_it_is(cli, run):
    assert cli("fit")[0] == 0
    for sample in read(run / "eval" / "step=8.jsonl"):
        letter = "abcd"[int(sample["problem_id"].split("-")[1]) % 4]
        solution = sample["solution"]
        if sample["correct"]:
            assert letter in solution
            assert sample["strategy"] == "".join(sorted(solution))
            assert sample["reason"] is None
        else:
            assert sample["strategy"] is None
            assert sample["reason"] in {"wrong_result", "not_allowed", "no_solution", "truncated"}


def test_the_table_shows_base_beside_trained(cli, run):
    assert cli("fit")[0] == 0
    table = cli.out
    summary = json.loads((run / "summary.json").read_text())
    (row,) = [line.split() for line in table.splitlines() if "pass@8" in line]
    assert row[1] == f"{summary['base']['pass@8']:.3f}"
    assert row[4] == f"{summary['trained']['pass@8']:.3f}"
    assert "strategies@8" in table
    assert "strategies@1 " not in table
    assert f"Archive: {summary['archive']['elites']} elites" in table
    assert str(run) in table
    assert cli("fit")[0] == 0
    assert "finished" in cli.out
    assert cli.out.endswith(table[table.index("Held-out") :])


def test_the_exported_policy_is_the_trained_one(cli, run):
    assert cli("fit")[0] == 0
    exported = AutoModelForCausalLM.from_pretrained(run / "model").state_dict()
    trained = {name.removeprefix("policy."): value for name, value in parameters(run).items()}
    assert all(torch.equal(exported[name], trained[name]) for name in exported)
    assert AutoTokenizer.from_pretrained(run / "model").decode([4, 5]) != ""


def test_search_alone_fills_the_archive_that_fit_then_uses(cli, run, tmp_path):
    assert cli("search") == (0, "")
    assert not (run / "eval").exists()
    assert not (run / "checkpoints").exists()
    archive = (run / "archive.jsonl").read_bytes()
    journal = (run / "search.sqlite").read_bytes()
    assert cli("fit") == (0, "")
    assert (run / "archive.jsonl").read_bytes() == archive
    assert (run / "search.sqlite").read_bytes() == journal  # nothing was searched again
    both = tmp_path / "both"
    assert cli("fit", "--run_dir", str(both)) == (0, "")
    assert (both / "archive.jsonl").read_bytes() == archive
    assert training_rows(both) == training_rows(run)


def test_equal_seeds_give_equal_runs_and_others_do_not(cli, tmp_path):
    runs = [tmp_path / name for name in ("first", "second", "other")]
    for folder, seed in zip(runs, (1, 1, 2), strict=True):
        assert cli("fit", "--run_dir", str(folder), "--seed_everything", str(seed)) == (0, "")
    rows = [training_rows(folder) for folder in runs]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]
    assert (runs[0] / "eval" / "step=8.jsonl").read_bytes() == (runs[1] / "eval" / "step=8.jsonl").read_bytes()


def test_the_saved_configuration_can_be_run_again(cli, run, toy_config, tmp_path, monkeypatch):
    from elite_lightning.cli import main

    assert cli("fit")[0] == 0
    again = tmp_path / "again"
    assert main(["fit", "--config", str(run / "config.yaml"), "--run_dir", str(again)]) == 0
    assert training_rows(again) == training_rows(run)
    first, second = (yaml.safe_load((folder / "config.yaml").read_text()) for folder in (run, again))
    assert first.pop("run_dir") != second.pop("run_dir")
    assert first == second
    assert main(["search", "--config", str(run / "config.yaml")]) == 0


def test_a_run_that_lacks_only_its_last_measurement_gets_it(cli, run):
    assert cli("fit")[0] == 0
    summary = json.loads((run / "summary.json").read_text())
    samples = (run / "eval" / "step=8.jsonl").read_bytes()
    (run / "summary.json").unlink()
    (run / "eval" / "step=8.jsonl").unlink()
    assert cli("fit")[0] == 0
    assert (run / "eval" / "step=8.jsonl").read_bytes() == samples
    again = json.loads((run / "summary.json").read_text())
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in summary.items() if k != "seconds"}


def test_test_and_validate_measure_the_newest_checkpoint(cli, run):
    assert cli("validate")[0] == 0
    assert len(read(run / "eval" / "validation_step=0.jsonl")) == 5 * 8
    assert cli("fit")[0] == 0
    measured = (run / "eval" / "step=8.jsonl").read_bytes()
    (run / "eval" / "step=8.jsonl").unlink()
    assert cli("test")[0] == 0
    assert (run / "eval" / "step=8.jsonl").read_bytes() == measured
    assert cli("validate")[0] == 0
    assert (run / "eval" / "validation_step=8.jsonl").is_file()


def test_a_given_checkpoint_is_measured_as_what_it_is(cli, run):
    assert cli("fit")[0] == 0
    checkpoint = run / "checkpoints" / "step=8.ckpt"
    kept = run.parent / "kept.ckpt"
    shutil.copy(checkpoint, kept)
    other = run.parent / "other"
    assert cli("test", "--run_dir", str(other), "--ckpt_path", str(kept))[0] == 0
    assert (other / "eval" / "step=8.jsonl").read_bytes() == (run / "eval" / "step=8.jsonl").read_bytes()


def test_a_checkpoint_of_another_run_does_not_pass_for_this_runs(cli, run, capsys):
    assert cli("fit")[0] == 0
    samples = (run / "eval" / "step=8.jsonl").read_bytes()
    stranger = run.parent / "stranger.ckpt"
    shutil.copy(run / "checkpoints" / "step=8.ckpt", stranger)
    code, error = cli("test", "--ckpt_path", str(stranger))
    assert code == 2
    assert "is not a checkpoint of the run" in error
    assert (run / "eval" / "step=8.jsonl").read_bytes() == samples


def test_an_evaluation_is_logged_at_the_step_of_its_policy(cli, run):
    assert cli("fit")[0] == 0
    assert [row["step"] for row in read(run / "metrics.jsonl") if "test/pass@1" in row] == [0, 8]


def test_validation_during_training_is_asked_for_by_its_interval(cli, run):
    options = ("--trainer.val_check_interval", "4", "--evaluation.validation_samples", "4")
    assert cli("fit", *options)[0] == 0
    assert len(read(run / "eval" / "validation_step=4.jsonl")) == 5 * 4
    logged = [row for row in read(run / "metrics.jsonl") if "validation/pass@1" in row]
    assert len(logged) == 2
    assert "validation/pass@8" not in logged[0]  # four samples cannot tell


def test_supervised_fine_tuning_learns_without_search_or_rollouts(cli, run, tmp_path):
    untaught = tmp_path / "untaught"
    tiny_model().save_pretrained(untaught)
    byte_tokenizer().save_pretrained(untaught)
    options = (
        *SUPERVISED,
        "--model.path",
        str(untaught),
        "--trainer.max_steps",
        "30",
        "--evaluation.baseline",
        "false",
    )
    assert cli("fit", *options) == (0, "")
    rows = training_rows(run)
    assert not any("reward" in name or "policy" in name for name in rows[0])
    losses = [row["train/loss"] for row in rows]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert not (run / "archive.jsonl").exists()
    assert not (run / "eval" / "step=0.jsonl").exists()
    assert "base" not in json.loads((run / "summary.json").read_text())


def test_grpo_alone_needs_no_search(cli, run):
    assert cli("fit", "--model.mu", "0", "--data.replay_per_step", "0", "--search", "null") == (0, "")
    assert not any("replay" in name for name in training_rows(run)[0])
    assert not (run / "archive.jsonl").exists()


def test_an_adapter_alone_is_trained_and_saved_and_resumed(cli, run):
    options = ("--model.peft", '{"r": 2, "target_modules": "all-linear"}')
    assert cli("fit", *options) == (0, "")
    assert parameters(run)
    assert all("lora_" in name for name in parameters(run))
    assert (run / "model" / "adapter_config.json").is_file()
    (run / "summary.json").unlink()
    measured = (run / "eval" / "step=8.jsonl").read_bytes()
    (run / "eval" / "step=8.jsonl").unlink()
    assert cli("fit", *options)[0] == 0
    assert (run / "eval" / "step=8.jsonl").read_bytes() == measured


def test_checkpoints_hold_plain_types_only(cli, run):
    assert cli("fit")[0] == 0
    for path in (run / "checkpoints").glob("*.ckpt"):
        assert torch.load(path, weights_only=True)["global_step"] == 8


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_shipped_configuration_is_understood(config, monkeypatch, capsys):
    from elite_lightning.cli import main

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as ended:
        main(["fit", "--config", str(config), "--print_config"])
    assert ended.value.code == 0
    written, understood = yaml.safe_load(config.read_text()), yaml.safe_load(capsys.readouterr().out)
    assert flatten(written).items() <= flatten(understood).items()


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_key_of_a_shipped_configuration_carries_a_comment(config):
    values = [line for line in config.read_text().splitlines() if re.match(r" *\w+: *[^ #]", line)]
    assert values
    assert [line for line in values if "#" not in line and "class_path:" not in line] == []


def test_the_help_of_a_command_explains_its_options():
    code, out, _ = run_process("fit", "--help")
    assert code == 0
    for option in ("--run_dir", "--model.mu", "--search", "--evaluation.ks", "--data.problems_per_step"):
        assert option in out
    assert re.search(r"Share of the replay term", out)


def test_every_logged_metric_is_finite_and_explained(cli, run):
    options = ("--model.objective", "elite_lightning.objectives.Grpo", "--model.objective.kl_coefficient", "0.01")
    assert cli("fit", *options, "--model.gradient_norms_every", "1") == (0, "")
    rows = read(run / "metrics.jsonl")
    assert all(math.isfinite(value) for row in rows for value in row.values())
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = {re.sub(r"^test/|\d+", lambda m: "k" if m[0].isdigit() else "", name) for row in rows for name in row}
    names = {re.sub("replay_nll/.*", "replay_nll/<approach>", name) for name in names}
    assert {name for name in names - {"step"} if f"`{name}`" not in page} == set()
