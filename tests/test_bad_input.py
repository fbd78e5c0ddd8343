"""Whatever a user gets wrong: one line that says what, a non-zero exit, and nothing lost."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from conftest import run_process

from elite_lightning.run_folder import RunFolder

JSONL = ("--data.source", "datamodules.sources.JsonlSource")
LETTERS = ("--data.source.domain", "toy.LetterDomain")
SQL = ("--data.source.domain", "elite_lightning.domains.sql.SqlDomain")


def complaint(result):
    """The one line that a refused command says."""
    code, err = result
    assert code == 2, err
    lines = [line for line in err.splitlines() if line.strip()]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    return lines[0]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model.mew", "3"], ["model.mew"]),
        (["--search.settings.attempts", "3"], ["attempts"]),
        (["--model.mu", "lots"], ["model.mu", "lots"]),
        (["--trainer.max_steps", "1.5"], ["max_steps", "1.5"]),
        (["--model.mu", "1.5"], ["mu", "1.5"]),
        (["--model.mu", "-0.1"], ["mu", "-0.1"]),
        (["--model.path", "/no/such/policy"], ["/no/such/policy"]),
        (["--evaluation.samples", "7"], ["samples=7", "8"]),
        (["--search", "null"], ["search"]),
        (["--data.replay_per_step", "0"], ["model.mu=0.2", "data.replay_per_step"]),
        (["--data.problems_per_step", "0"], ["model.mu=0.2", "data.problems_per_step"]),
        (["--trainer.gradient_clip_val", "1.0"], ["model.optimizer.gradient_clip_norm"]),
        (["--trainer.val_check_interval", "50"], ["trainer.val_check_interval=50", "trainer.max_steps"]),
        (["--ckpt_path", "/no/such.ckpt"], ["/no/such.ckpt"]),
        (["--seed_everything", "true"], ["seed_everything"]),
        ([*JSONL, *LETTERS, "--data.source.train_file", "/no/such.jsonl"], ["/no/such.jsonl"]),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(cli, tmp_path, options, words):
    said = complaint(cli("fit", *options))
    assert all(word in said for word in words), said
    assert not (tmp_path / "run").exists()


def test_a_typo_in_the_file_ends_the_real_process_with_one_line(toy_config, tmp_path):
    toy_config.write_text(toy_config.read_text().replace("replay_per_step", "replay_pre_step"))
    code, _, err = run_process("fit", "--config", toy_config)
    assert "replay_pre_step" in complaint((code, err))
    assert not (tmp_path / "run").exists()


def test_responses_longer_than_the_model_has_room_for_are_refused(cli):
    assert "max_position_embeddings" in complaint(cli("fit", "--model.sampling.max_new_tokens", "100000"))


def test_a_gold_that_cannot_run_is_named_before_anything_is_searched(cli, tmp_path):
    (tmp_path / "firm").mkdir()
    with closing(sqlite3.connect(tmp_path / "firm" / "firm.sqlite")) as connection:
        connection.executescript("CREATE TABLE emp (id INTEGER); INSERT INTO emp VALUES (1)")
    golds = ["SELECT id FROM emp", "SELECT nope FROM nowhere"]
    lines = [{"id": f"p{i}", "question": "q", "data": {"database": "firm", "gold": g}} for i, g in enumerate(golds)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = (*JSONL, *SQL, "--data.source.domain.databases", str(tmp_path))
    said = complaint(cli("fit", *options, "--data.source.train_file", str(tmp_path / "train.jsonl")))
    assert "'p1'" in said
    assert "SELECT nope FROM nowhere" in said
    assert not (tmp_path / "run").exists()


def test_a_folder_in_use_is_refused(cli, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.lock()
    try:
        assert "another process" in complaint(cli("fit"))
    finally:
        folder.release()


def test_a_run_folder_that_cannot_be_is_refused_before_any_work(cli, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert "is not a folder" in complaint(cli("fit", "--run_dir", str(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_file_that_is_no_checkpoint_is_refused(cli, tmp_path):
    (tmp_path / "notes.md").write_text("mine")
    for command in ("fit", "test"):
        assert "is not a checkpoint" in complaint(cli(command, "--ckpt_path", str(tmp_path / "notes.md")))


def test_training_without_an_end_is_refused(cli):
    assert "trainer.max_steps" in complaint(cli("fit", "--trainer.max_steps", "-1"))


def test_a_missing_configuration_file_is_named(cli):
    assert "/no/such.yaml" in complaint(cli("fit", "--config", "/no/such.yaml"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"id": "b", "quest', "line 2: not valid JSON"),
        ('{"id": "b"}', 'line 2: the key "question"'),
        ('{"id": 5, "question": "q"}', 'line 2: the key "id"'),
        ('{"id": "a", "question": "q"}', "line 2: the id 'a' is there twice"),
        ('{"id": "b", "question": "q", "gold": "x"}', "line 2: unknown key 'gold'"),
        ('["b"]', "line 2: a problem is a JSON object"),
        ('{"id": "b", "question": "q", "data": [1]}', 'line 2: the key "data"'),
    ],
)
def test_a_broken_line_of_a_problem_file_is_named(cli, tmp_path, line, words):
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "a", "question": "q", "data": {"letter": "a"}}\n' + line + "\n")
    said = complaint(cli("fit", *JSONL, *LETTERS, "--data.source.train_file", str(problems)))
    assert f"{problems}, {words}" in said


@pytest.mark.parametrize("content", [None, b"hello, I am not a database"])
def test_a_missing_or_broken_database_is_named(cli, tmp_path, content):
    problems = tmp_path / "problems.jsonl"
    data = {"database": "shop", "gold": "SELECT 1"}
    problems.write_text(json.dumps({"id": "a", "question": "q", "data": data}) + "\n")
    (tmp_path / "shop").mkdir()
    if content is not None:
        (tmp_path / "shop" / "shop.sqlite").write_bytes(content)
    databases = ("--data.source.domain.databases", str(tmp_path))
    said = complaint(cli("fit", *JSONL, *SQL, *databases, "--data.source.train_file", str(problems)))
    assert "shop.sqlite" in said


def test_a_problem_without_what_its_domain_needs_is_named(cli, tmp_path):
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "lacking", "question": "q"}\n')
    options = ("--data.source.domain", "elite_lightning.domains.arithmetic.ArithmeticDomain")
    assert "lacking" in complaint(cli("fit", *JSONL, *options, "--data.source.train_file", str(problems)))


@pytest.fixture
def searched(cli, tmp_path):
    """A run folder whose search is done."""
    assert cli("search")[0] == 0
    return tmp_path / "run"


def test_the_run_folder_of_another_configuration_is_left_alone(searched, cli):
    before = contents(searched)
    said = complaint(cli("fit", "--model.mu", "0.4", "--data.replay_per_step", "2"))
    assert "model.mu (0.2 there, 0.4 here)" in said
    assert "data.replay_per_step (4 there, 2 here)" in said
    assert contents(searched) == before


def edit_line(run):
    archive = run / "archive.jsonl"
    archive.write_text(archive.read_text().replace('"weight": 1.0', '"weight": 9.0', 1))
    return "line 1"


def cut_off(run):
    archive = run / "archive.jsonl"
    archive.write_bytes(archive.read_bytes()[:-20])
    return f"line {len(archive.read_bytes().splitlines())}"


def drop_line(run):
    archive = run / "archive.jsonl"
    archive.write_text("".join(archive.read_text().splitlines(keepends=True)[1:]))
    return "was changed"


def edit_manifest(*path, value):
    def edit(run):
        manifest = run / "archive.manifest.json"
        content = json.loads(manifest.read_text())
        *parents, last = path
        place = content
        for name in parents:
            place = place[name]
        place[last] = value
        manifest.write_text(json.dumps(content))
        return last

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        edit_line,
        cut_off,
        drop_line,
        edit_manifest("version", value=99),
        edit_manifest("fingerprints", "tokenizer", value="another"),
        edit_manifest("fingerprints", "domain", value="another"),
        edit_manifest("fingerprints", "base_model", value="another"),
    ],
)
def test_an_archive_that_does_not_fit_is_refused_and_kept(searched, cli, damage):
    word = damage(searched)
    before = contents(searched)
    said = complaint(cli("fit", "--evaluation.baseline", "true"))
    assert "archive" in said
    assert word in said
    after = contents(searched)
    assert {path: after[path] for path in before if "tensorboard" not in str(path)} == {
        path: content for path, content in before.items() if "tensorboard" not in str(path)
    }


def test_another_policy_does_not_get_the_archive(searched, cli, tiny_policy, tmp_path):
    """The same settings and the same path, but other weights behind it."""
    from conftest import tiny_model

    kept = tmp_path / "kept"
    shutil.copytree(tiny_policy, kept)
    try:
        tiny_model(seed=5).save_pretrained(tiny_policy)
        assert "base_model" in complaint(cli("fit"))
    finally:
        shutil.copytree(kept, tiny_policy, dirs_exist_ok=True)
