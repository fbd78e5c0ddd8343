"""The search before training: frozen policy, own archive, and what happens after a kill."""

import json
import sqlite3
from contextlib import closing

import pytest
import torch
from conftest import run_process
from transformers import AutoModelForCausalLM

from elite_lightning.policy import model_fingerprint


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_a_search_that_was_killed_ends_with_the_same_archive(cli, run, toy_config, tmp_path):
    undisturbed = tmp_path / "undisturbed"
    small = ("--search.settings.batch_problems", "2")  # several batches, so that some are done and some are not
    assert cli("search", "--run_dir", str(undisturbed), *small)[0] == 0
    arguments = ("search", "--config", toy_config, *small)
    code, _, err = run_process(*arguments, TOY_KILL_AT_VERIFICATION="30")
    assert code == -9, err
    assert (run / "search.sqlite").exists()
    assert not (run / "archive.jsonl").exists()
    assert cli("search", *small) == (0, "")
    assert (run / "archive.jsonl").read_bytes() == (undisturbed / "archive.jsonl").read_bytes()
    assert (run / "archive.manifest.json").read_bytes() == (undisturbed / "archive.manifest.json").read_bytes()


def test_an_archive_without_its_manifest_is_finished_from_the_journal(cli, run):
    """The process may die between writing the one and the other."""
    assert cli("search")[0] == 0
    manifest = (run / "archive.manifest.json").read_bytes()
    (run / "archive.manifest.json").unlink()
    assert cli("search")[0] == 0
    assert (run / "archive.manifest.json").read_bytes() == manifest


def test_the_search_uses_the_base_policy_and_leaves_it_as_it_is(cli, run, tiny_policy):
    before = {path: path.read_bytes() for path in tiny_policy.iterdir()}
    assert cli("search")[0] == 0
    assert {path: path.read_bytes() for path in tiny_policy.iterdir()} == before
    manifest = json.loads((run / "archive.manifest.json").read_text())
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy)
    assert manifest["fingerprints"]["base_model"] == model_fingerprint(policy)


def test_a_search_that_changes_weights_is_found_out(cli, run, monkeypatch):
    from elite_lightning.rollout.in_process import InProcessEngine

    honest = InProcessEngine.generate

    def careless(self, *arguments):
        with torch.no_grad():
            next(self.model.parameters()).add_(1e-3)
        return honest(self, *arguments)

    monkeypatch.setattr(InProcessEngine, "generate", careless)
    with pytest.raises(RuntimeError, match="frozen"):
        cli("search")
    assert not (run / "archive.jsonl").exists()


def test_every_elite_of_the_archive_is_right_and_where_it_belongs(cli, run):
    from toy import LetterDomain, letter_problems

    assert cli("search")[0] == 0
    domain, problems = LetterDomain(), {p.id: p for p in letter_problems("train", 8)}
    elites = [json.loads(line) for line in (run / "archive.jsonl").read_text().splitlines()]
    assert len(elites) > 8
    for elite in elites:
        problem = problems[elite["problem_id"]]
        assert domain.verify(problem, elite["solution"]).correct
        assert domain.cell(problem, elite["solution"]) == (elite["approach"], elite["structure"])


def test_the_coverage_is_said_at_the_end(cli, run):
    assert cli("search")[0] == 0
    report = json.loads((run / "search.json").read_text())
    assert f"Archive: {report['elites']} elites" in cli.out
    assert sum(report["outcomes"].values()) == report["attempts"] == 128
    assert report["seconds"] > 0


def test_a_search_without_a_way_of_searching_is_refused(cli):
    code, err = cli("search", "--search", "null", "--model.mu", "0", "--data.replay_per_step", "0")
    assert code == 2
    assert "callbacks.MapElitesPreSearch" in err


def test_another_seed_of_the_run_is_another_search(cli, tmp_path):
    def attempts(name, *options):
        assert cli("search", "--run_dir", str(tmp_path / name), *options)[0] == 0
        with closing(sqlite3.connect(tmp_path / name / "search.sqlite")) as connection:
            return connection.execute("SELECT response FROM attempts ORDER BY id").fetchall()

    first = attempts("first")
    assert attempts("second", "--seed_everything", "5") != first
    fixed = ("--search.settings.seed", "3")
    assert attempts("third", *fixed) == attempts("fourth", *fixed, "--seed_everything", "5")
