"""A labeler switched on in the YAML: the search command, a kill, and what a user is told."""

import json
import re
import socket

import pytest
import yaml
from chat_server import ChatServer
from conftest import run_process


def label_letters(prompt):
    """Where the problem's letter stands, said in many ways."""
    if "Merge synonyms" in prompt:
        merges = {"at the front": ["front"], "elsewhere": ["rear"]}
        return json.dumps([{"name": name, "definition": "d", "merges": some} for name, some in merges.items()])
    if "Problem:" not in prompt:
        return "OK"
    letter = re.search(r"Problem: \w+(\w)\n", prompt)[1]
    solution = re.search(r"Solution:\n(\w+)\n", prompt)[1]
    return "Front: it stands first" if solution.startswith(letter) else "`REAR`"


@pytest.fixture
def server():
    with ChatServer(label_letters) as running:
        yield running


@pytest.fixture
def labelled(toy_config, server):
    """The toy configuration with a labeler, in a YAML as a user writes it."""
    config = yaml.safe_load(toy_config.read_text())
    config["search"]["init_args"]["labeler"] = {
        "class_path": "elite_lightning.search.LlmLabeler",
        "init_args": {"endpoint": {"model": "m", "base_url": server.url, "retries": 0}, "max_approaches": 4},
    }
    toy_config.write_text(yaml.safe_dump(config))
    return toy_config


def test_a_labelled_search_that_was_killed_ends_with_the_same_archive(cli, labelled, tmp_path):
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    small = ("--search.init_args.settings.batch_problems", "2")
    assert cli("search", "--run_dir", str(undisturbed), *small) == (0, "")
    code, _, err = run_process("search", "--config", labelled, *small, TOY_KILL_AT_VERIFICATION="60")
    assert code == -9, err
    assert (run / "vocabulary.json").exists()
    assert not (run / "archive.jsonl").exists()
    assert cli("search", *small) == (0, "")
    for name in ("archive.jsonl", "archive.manifest.json", "vocabulary.json"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes()
    elites = [json.loads(line) for line in (run / "archive.jsonl").read_text().splitlines()]
    for elite in elites:
        letter = "abcd"[int(elite["problem_id"].split("-")[1]) % 4]
        assert elite["approach"] == ("at_the_front" if elite["solution"].startswith(letter) else "elsewhere")
    assert {elite["approach"] for elite in elites} == {"at_the_front", "elsewhere"}
    report = json.loads((run / "search.json").read_text())
    assert set(report["asked_and_realised"]) <= {"plain", "at_the_front", "elsewhere"}
    # The server may move; the model may not change.
    address, model = ("--search.init_args.labeler.init_args.endpoint." + name for name in ("base_url", "model"))
    assert cli("search", *small, address, "http://elsewhere/v1") == (0, "")
    code, err = cli("search", *small, model, "another")
    assert code == 2
    assert "endpoint.model ('m' there, 'another' here)" in err


def test_a_server_that_is_down_is_one_line_before_anything_is_generated(cli, labelled, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    code, err = cli("search", "--search.init_args.labeler.init_args.endpoint.base_url", address)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith(f"error: the labeler's endpoint {address}/chat/completions gave no answer")
    assert "refused" in err
    assert not (tmp_path / "run" / "archive.jsonl").exists()
