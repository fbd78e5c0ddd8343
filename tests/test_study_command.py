"""`train.py study` as a user types it: one search for all, a stop in between, nothing done twice, failures told."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, run_process

from elite_lightning.code_version import code_version
from elite_lightning.evaluation import figures_of, read_counts

GRPO = {"model": {"mu": 0.0}, "data": {"replay_per_step": 0}, "search": None}
SMALL = {"trainer": {"max_steps": 2}, "evaluation": {"samples": 4, "ks": [1, 4]}}


@pytest.fixture
def study(toy_config, tmp_path):
    """The file of a small study: base, GRPO and EliteReplay on the letters, two seeds."""
    config = str(toy_config)
    plan = {
        "study_dir": str(tmp_path / "study"),
        "seeds": [2, 1],
        "parallel": 2,
        "reference": "grpo",
        "overrides": SMALL,
        "searches": {"shared": {"config": config}},
        "arms": {
            "base": {"config": config, "trained": False},
            "grpo": {"config": config, "label": "GRPO", "overrides": GRPO},
            "elite": {"config": config, "label": "EliteReplay", "search": "shared"},
        },
    }
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(plan, sort_keys=False))
    return path


def edit(path, **changes):
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}, sort_keys=False))


def running_in(folder):
    """Command lines of the processes that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            lines.append(path.read_bytes())
    return [line for line in lines if str(folder).encode() in line]


def stop_in_the_middle(study, folder):
    """Start the study and ask it to end once a run trains; returns its exit code."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), "study", "--config", str(study)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(folder.glob("*/seed=*/log.txt")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert running_in(folder)  # or the check below could not fail
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode


def test_a_study_from_its_search_to_its_page_with_a_stop_in_between(study, tmp_path):
    folder = tmp_path / "study"
    assert stop_in_the_middle(study, folder) == 128 + signal.SIGTERM
    assert not (folder / "results.json").exists()
    assert running_in(folder) == []  # no run outlives the study

    code, out, err = run_process("study", "--config", study, timeout_s=240)
    assert code == 0, err
    assert "search shared" not in out  # it was made before the stop

    # All seeds of the arm replay what the one search found, and sample nothing to know it.
    archive = (folder / "searches" / "shared" / "archive.jsonl").read_bytes()
    for seed in (1, 2):
        assert (folder / "elite" / f"seed={seed}" / "archive.jsonl").read_bytes() == archive
        assert (folder / "elite" / f"seed={seed}" / "code.txt").read_text() == f"{code_version()}\n"
    assert not (folder / "grpo" / "seed=1" / "archive.jsonl").exists()

    results = json.loads((folder / "results.json").read_text())
    assert list(results["arms"]) == ["base", "grpo", "elite"]
    by_hand = [
        figures_of(read_counts(folder / "elite" / f"seed={seed}" / "eval" / "step=2.jsonl"), [4])["pass@4"].mean
        for seed in (1, 2)
    ]
    figure = results["arms"]["elite"]["figures"]["pass@4"]
    assert figure["by_seed"] == pytest.approx(by_hand)
    assert figure["mean"] == pytest.approx(sum(by_hand) / 2)
    budget = results["arms"]["elite"]["budget"]
    assert budget["search"]["generations"] == 8 * 16  # problems times attempts, of the one search
    assert budget["train"]["generations"] == 2 * 4 * 4  # steps, problems, responses
    assert results["arms"]["grpo"]["budget"]["search"]["generations"] == 0
    assert results["arms"]["base"]["budget"]["train"]["generations"] == 0
    with (folder / "counts.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3 * 2 * 5  # arms, seeds, problems
    page = (folder / "report.html").read_text()
    tables = (folder / "tables.md").read_text()
    for text in (page, tables, out):
        assert "EliteReplay" in text
    assert "In training, a run of every arm samples 32 responses." in tables
    assert "In all, its search included, runs do not sample equally many responses: GRPO 32; EliteReplay 160." in tables
    assert "All seeds of EliteReplay start from one search (seed 0); no interval covers another search." in tables
    assert "With so few seeds, intervals are too short" in tables
    assert results["settings"]["code"] == [code_version()]

    # Again: nothing is run, and the same comes out.
    before = (folder / "results.json").read_bytes()
    code, again, _ = run_process("study", "--config", study, timeout_s=120)
    assert code == 0
    assert "begun" not in again
    assert (folder / "results.json").read_bytes() == before

    # Another search in the place of the one that runs have started from is refused.
    (folder / "searches" / "shared" / "archive.jsonl").write_bytes(archive + b"more")
    code, _, err = run_process("study", "--config", study, timeout_s=120)
    assert code == 2
    assert "started from another search than" in err


def test_an_arm_that_fails_is_told_and_keeps_no_other_from_running(study, tmp_path):
    plan = yaml.safe_load(study.read_text())
    arms = {"broken": {"config": plan["arms"]["grpo"]["config"], "overrides": {"model": {"mu": "lots"}}}}
    edit(study, arms={**arms, "base": plan["arms"]["base"]}, reference="base", seeds=[1], parallel=1)
    code, out, err = run_process("study", "--config", study, timeout_s=120)
    assert code == 2
    assert "base seed=1: finished" in out
    assert err.count("\n") == 1
    assert "1 of 2 failed; the same command tries again. First: broken seed=1" in err
    assert "lots" in err
    assert "log.txt" in err
    assert not (tmp_path / "study" / "results.json").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reference": "nobody"}, "reference='nobody' is no arm"),
        ({"seeds": "many"}, "seeds"),
        ({"arms": {"a": {"config": "nowhere.yaml"}}, "reference": "a"}, "config=nowhere.yaml cannot be read"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_study_that_cannot_be_is_one_line_and_leaves_nothing(study, tmp_path, change, said, capsys):
    from elite_lightning.study.command import main

    edit(study, **change)
    assert main(["--config", str(study)], ROOT / "train.py") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err
    assert not list((tmp_path / "study").glob("*/seed=*"))
