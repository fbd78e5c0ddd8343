"""Two ranks do what one does: the whole way through, and number by number on the same global batch."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from conftest import run_process
from test_resume import training_rows

from elite_lightning.replay_records import read_replayed

TWO_RANKS = ("--trainer.devices", "2", "--trainer.strategy", "ddp")
# So few tokens a pass that the ranks need different numbers of passes.
CUT_SMALL = ("--model.micro_batch_tokens", "40", "--model.gradient_norms_every", "3")
PROBES = '[{"class_path": "probes.RecordGradients"}, {"class_path": "probes.KillAt"}]'
RECORDING = ("--trainer.callbacks", PROBES)


@pytest.fixture
def two_ranks(toy_config, tmp_path):
    """Run folder and gradients of a whole fit on two processes that were killed once and started again."""
    run, gradients = tmp_path / "two", tmp_path / "gradients-two"
    gradients.mkdir()
    arguments = ("fit", "--config", toy_config, "--run_dir", run, *TWO_RANKS, *RECORDING, *CUT_SMALL)
    code, _, _ = run_process(*arguments, timeout_s=180, TOY_GRADIENTS=str(gradients), TOY_KILL_AT="6")
    assert code == -9
    code, _, err = run_process(*arguments, timeout_s=180, TOY_GRADIENTS=str(gradients))
    assert code == 0, err
    return run, gradients


def test_two_ranks_go_all_the_way_and_compute_what_one_computes(two_ranks, cli, tmp_path, monkeypatch):
    run, gradients = two_ranks
    assert_complete(run)

    # One rank on the archive that the two have searched, so that the global batches are the same.
    alone, expected = tmp_path / "one", tmp_path / "gradients-one"
    alone.mkdir()
    expected.mkdir()
    for name in ("archive.jsonl", "archive.manifest.json", "search.json"):
        shutil.copy(run / name, alone / name)
    monkeypatch.setenv("TOY_GRADIENTS", str(expected))
    assert cli("fit", "--run_dir", str(alone), *RECORDING, *CUT_SMALL) == (0, "")

    assert (run / "eval" / "step=0.jsonl").read_bytes() == (alone / "eval" / "step=0.jsonl").read_bytes()
    for step in range(8):
        ours, theirs = torch.load(gradients / f"{step}.pt"), torch.load(expected / f"{step}.pt")
        assert ours.norm() > 0.01
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for ours, theirs in zip(training_rows(run), training_rows(alone), strict=True):
        assert ours.keys() == theirs.keys()
        assert ours == pytest.approx(theirs, abs=1e-6)
    for ours, theirs in zip(rows_of(run, "gradient_cosine"), rows_of(alone, "gradient_cosine"), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    assert [row["step"] for row in rows_of(run, "gradient_cosine")] == [0, 3, 6]
    for ours, theirs in zip(rows_of(run, "replay_nll"), rows_of(alone, "replay_nll"), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)
    for ours, theirs in zip(*map(read_replayed, (run / "replay.jsonl", alone / "replay.jsonl")), strict=True):
        assert replace(ours, nll=0.0) == replace(theirs, nll=0.0)
        assert ours.nll == pytest.approx(theirs.nll, abs=1e-5)


def rows_of(run, part):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if any(part in name for name in row)]


def assert_complete(run):
    """Searched in shards, trained, and evaluated each problem once."""
    assert {path.name for path in run.glob("search*.sqlite")} == {"search.rank0.sqlite", "search.rank1.sqlite"}
    summary = json.loads((run / "summary.json").read_text())
    assert summary["archive"]["attempts"] == 8 * 16
    assert summary["steps"] == 8
    lines = [json.loads(line) for line in (run / "eval" / "step=8.jsonl").read_text().splitlines()]
    assert [(line["problem_id"], line["sample"]) for line in lines] == [
        (f"test-{i}", j) for i in range(5) for j in range(8)
    ]


def test_an_error_on_one_rank_ends_both(toy_config, tmp_path):
    """The archive is broken; whoever reads it first must not leave the other waiting."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "archive.jsonl").write_text("{}\n")
    (run / "archive.manifest.json").write_text("{}")
    options = ("--evaluation.baseline", "false", *TWO_RANKS)
    code, _, err = run_process("fit", "--config", toy_config, *options, timeout_s=90)
    assert code == 2
    (complaint,) = [line for line in err.splitlines() if line.startswith("error")]
    assert "archive.manifest.json" in complaint
    assert "Traceback" not in err
