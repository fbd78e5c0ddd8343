"""From a file of samples to figures, and the run folder's small pieces."""

import json
import math
from argparse import Namespace

import pytest
import torch
from lightning.pytorch import LightningModule

from callbacks import PassAtKEvaluation
from elite_lightning.errors import UsageError
from elite_lightning.evaluation import figures_of, per_problem, read_counts, write_samples
from elite_lightning.loggers import JsonlLogger
from elite_lightning.report import coverage_line
from elite_lightning.run_folder import RunFolder, flatten


def sample(problem, number, strategy=None, reason="wrong_result"):
    correct = strategy is not None
    reason = None if correct else reason
    identity = {"index": int(problem[1:]), "problem_id": problem, "sample": number}
    return {**identity, "correct": correct, "strategy": strategy, "reason": reason}


@pytest.fixture
def path(tmp_path):
    """Problem p0: 3 of 4 right, by two strategies. Problem p1: one right, one wrong, two not judged."""
    records = [
        sample("p1", 0, "z"),
        sample("p0", 3, "y"),
        sample("p0", 0, "x"),
        sample("p0", 1, "x"),
        sample("p0", 2),
        sample("p1", 1),
        sample("p1", 2, reason="verifier_failure"),
        sample("p1", 3, reason="verifier_failure"),
    ]
    path = tmp_path / "eval" / "step=0.jsonl"
    write_samples(path, records)
    return path


def test_samples_are_written_in_the_order_of_problems(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["problem_id"], row["sample"]) for row in rows] == [(f"p{i}", j) for i in range(2) for j in range(4)]


def test_what_the_verifier_could_not_judge_is_no_sample(path):
    counts = read_counts(path)
    assert (counts["p0"].samples, counts["p0"].correct, counts["p0"].strategies) == (4, 3, (2, 1))
    assert (counts["p1"].samples, counts["p1"].correct, counts["p1"].strategies) == (2, 1, (1,))


def test_figures_are_means_over_the_problems_that_have_enough_samples(path):
    by_problem = per_problem(read_counts(path), (1, 2, 4))
    assert by_problem["pass@1"].tolist() == pytest.approx([3 / 4, 1 / 2])
    assert by_problem["pass@2"].tolist() == pytest.approx([1.0, 1.0])
    # p0, two of four: pairs xx, xy, xy, xw, xw, yw hold 1, 2, 2, 1, 1, 1 strategies.
    assert by_problem["strategies@2"].tolist() == pytest.approx([8 / 6, 1.0])
    assert by_problem["strategies@4"][0] == 2
    assert math.isnan(by_problem["pass@4"][1])
    figures = figures_of(read_counts(path), (1, 4, 8))
    assert figures["pass@1"].mean == pytest.approx(5 / 8)
    assert figures["pass@4"].mean == 1.0
    assert "pass@8" not in figures


def test_a_broken_sample_is_named(path):
    path.write_text(path.read_text() + '{"problem_id": "p2"}\n')
    with pytest.raises(UsageError, match="line 9"):
        read_counts(path)


@pytest.mark.parametrize(
    "settings", [{"samples": 100}, {"ks": [0, 1]}, {"ks": []}, {"samples": 8, "ks": [8], "validation_samples": 0}]
)
def test_an_evaluation_that_cannot_be_is_refused(settings):
    with pytest.raises(ValueError, match="evaluation"):
        PassAtKEvaluation(**settings)


def test_an_evaluation_that_expects_other_samples_than_are_drawn_is_refused():
    module = LightningModule()
    module.evaluation_samples = {"test": 16, "validation": 16}
    PassAtKEvaluation(samples=16, ks=[16]).setup(None, module, "test")
    with pytest.raises(UsageError, match="16"):
        PassAtKEvaluation(samples=32, ks=[16]).setup(None, module, "test")


def test_the_log_forgets_what_comes_after_a_checkpoint(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log_metrics({"test/pass@1": 0.5}, step=0)
    for step in range(5):
        logger.log_metrics({"train/loss": float(step), "epoch": 0}, step=step)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "train/lo')  # the kill
    logger.rewind(3)
    logger.log_metrics({"train/loss": torch.tensor(9.0)}, step=3)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 0, 1, 2, 3]
    assert rows[-1] == {"step": 3, "train/loss": 9.0}
    assert "epoch" not in rows[1]


def test_the_log_stays_json_whatever_the_numbers_are(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl")
    logger.log_hyperparams(Namespace())
    logger.log_metrics({"train/loss": math.nan, "train/reward": math.inf}, step=0)
    logger.log_metrics({"epoch": 3}, step=1)
    logger.rewind(1)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"step": 0, "train/loss": None, "train/reward": None}


def test_the_newest_whole_checkpoint_is_found(tmp_path):
    import os

    folder = RunFolder(tmp_path)
    assert folder.newest_checkpoint() is None
    folder.checkpoints.mkdir()
    for age, name in enumerate(["step=4.ckpt", "step=8.ckpt"]):
        torch.save({"global_step": age}, folder.checkpoints / name)
        os.utime(folder.checkpoints / name, (1000 + age, 1000 + age))
    (folder.checkpoints / "last.ckpt").symlink_to("step=8.ckpt")
    assert folder.newest_checkpoint().resolve() == (folder.checkpoints / "step=8.ckpt").resolve()
    broken = (folder.checkpoints / "step=8.ckpt").read_bytes()[:-50]
    (folder.checkpoints / "step=8.ckpt").write_bytes(broken)
    assert folder.newest_checkpoint().name == "step=4.ckpt"


def test_configurations_are_compared_key_by_key(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.claim({"run_dir": "a", "model": {"mu": 0.1, "path": "p"}, "search": None})
    folder.check({"run_dir": "b", "model": {"mu": 0.1, "path": "p"}, "search": None, "ckpt_path": "c"})
    with pytest.raises(UsageError, match=r"model\.mu \(0\.1 there, 0\.2 here\)"):
        folder.check({"model": {"mu": 0.2, "path": "p"}, "search": None})
    with pytest.raises(UsageError, match=r"search\.class_path"):
        folder.check({"model": {"mu": 0.1, "path": "p"}, "search": {"class_path": "x"}})
    assert flatten({"a": {"b": 1, "c": {}}}) == {"a.b": 1, "a.c": {}}


def test_a_run_without_search_says_so():
    assert coverage_line(None) == "Archive: none"
