"""How likely the policy finds what it replays: against plain forward passes, and what the run's file says of it."""

import json
import re
from dataclasses import replace

import pytest
import torch
from test_module import GROUP, logprobs_of, module_of, step_once
from test_resume import training_rows
from toy import LetterDomain, letter_problems
from transformers import AutoModelForCausalLM, AutoTokenizer

from elite_lightning.errors import UsageError
from elite_lightning.loggers import JsonlLogger
from elite_lightning.replay_records import (
    NllOfCell,
    ReplayRecord,
    approach_metrics,
    metric_name,
    nll_by_cell,
    nll_by_elite,
    read_replayed,
)
from elite_lightning.types import Cell

RECORDS = [
    ReplayRecord(0, "p", "in", "flat", 3, 1.0),
    ReplayRecord(0, "q", "in", "flat", 4, 3.0),
    ReplayRecord(0, "p", "in", "deep", 5, 2.5),
    ReplayRecord(0, "q", "join", "deep", 5, 0.25),
    ReplayRecord(1, "p", "in", "flat", 3, 0.5),
]


def test_each_replayed_response_is_there_with_its_likelihood(cli, tmp_path, tiny_policy):
    """The first step's, from the policy as it was before training; small passes and prompts in common included."""
    run = tmp_path / "run"
    assert cli("fit", "--data.replay_per_step", "24", "--model.micro_batch_tokens", "60")[0] == 0
    records = read_replayed(run / "replay.jsonl")
    assert [r.step for r in records] == [step for step in range(8) for _ in range(24)]
    elites = {
        (elite["problem_id"], elite["approach"], elite["structure"]): elite["response"]
        for elite in map(json.loads, (run / "archive.jsonl").read_text().splitlines())
    }
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    problems = {p.id: p for p in letter_problems("train", 8)}
    first = records[:24]
    for record in first:
        prompt = [1, *tokenizer.encode(LetterDomain().prompt(problems[record.problem_id]))]
        response = [*tokenizer.encode(elites[record.problem_id, record.approach, record.structure]), 0]
        assert record.tokens == len(response)
        assert record.nll == pytest.approx(-logprobs_of(policy, prompt, response).mean().item(), abs=1e-4)
    assert len({r.problem_id for r in first}) < len({(r.problem_id, *r.cell) for r in first})  # prompts in common
    assert training_rows(run)[0]["train/loss_replay"] == pytest.approx(sum(r.nll for r in first) / 24, abs=1e-5)


def test_each_step_has_the_means_of_the_approaches_that_it_replayed_and_no_others(cli, tmp_path):
    run = tmp_path / "run"
    assert cli("fit")[0] == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = {row["step"]: row for row in rows if any("replay_nll" in name for name in row)}
    expected = {}
    for record in read_replayed(run / "replay.jsonl"):
        expected.setdefault(record.step, {}).setdefault(f"train/replay_nll/{record.approach}", []).append(record.nll)
    assert logged.keys() == expected.keys() == set(range(8))
    assert len({tuple(sorted(of_step)) for of_step in expected.values()}) > 1  # they are not the same in all steps
    for step, of_step in expected.items():
        means = {name: pytest.approx(sum(values) / len(values)) for name, values in of_step.items()}
        assert logged[step] == {"step": step, **means}


def test_without_replay_of_elites_there_is_nothing(cli, tmp_path):
    options = ("--evaluation.baseline", "false", "--trainer.max_steps", "1")
    no_replay = ("--model.mu", "0", "--data.replay_per_step", "0")
    demonstrations = ("--data.demonstrations", "toy.LetterDemonstrations", "--search", "null")
    for name, changed in {"grpo": no_replay, "demonstrations": demonstrations}.items():
        run = tmp_path / name
        assert cli("fit", "--run_dir", str(run), *options, *changed)[0] == 0
        assert not (run / "replay.jsonl").exists()
        assert "replay_nll" not in (run / "metrics.jsonl").read_text()


def test_the_tables_by_cell_and_by_elite():
    flat, deep, join = Cell("in", "flat"), Cell("in", "deep"), Cell("join", "deep")
    assert list(nll_by_cell(RECORDS).items()) == [
        (deep, NllOfCell(2.5, 1, 1)),
        (flat, NllOfCell(1.5, 3, 2)),
        (join, NllOfCell(0.25, 1, 1)),
    ]
    assert nll_by_elite(RECORDS)["p", flat] == [(0, 1.0), (1, 0.5)]
    assert nll_by_elite(RECORDS)["q", join] == [(0, 0.25)]
    assert approach_metrics(RECORDS) == {"replay_nll/in": 1.75, "replay_nll/join": 0.25}


def test_names_of_approaches_are_safe_and_different():
    odd = ["window / rank", "window_/_rank", "window_rank", "", " ", "größer als", "a" * 80, "a" * 81, "x\ny", "%s"]
    names = [metric_name(text) for text in odd]
    assert len(set(names)) == len(odd)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", name) for name in names)
    assert metric_name("window_rank") == "window_rank"
    pair = [replace(RECORDS[0], approach="a b", nll=1.0), replace(RECORDS[0], approach="a_b", nll=2.0)]
    assert sorted(approach_metrics(pair).values()) == [1.0, 2.0]


def test_the_file_forgets_what_comes_after_a_checkpoint(tmp_path):
    path = tmp_path / "replay.jsonl"
    logger = JsonlLogger(tmp_path / "metrics.jsonl", path)
    logger.log_replayed(record.to_dict() for record in RECORDS)
    with path.open("a") as file:
        file.write('{"step": 0, "nl')  # the kill
    with pytest.raises(UsageError, match=r"replay.jsonl, line 6"):
        read_replayed(path)
    logger.rewind(1)
    assert read_replayed(path) == RECORDS[:4]


def test_the_trainers_and_the_samplers_logprobs_are_compared_over_all_scored_tokens(tiny_policy):
    module = module_of(tiny_policy, micro_batch_tokens=40)
    _, logged, engine = step_once(module)
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    problems = {tuple(module.codec.encode_prompt(module.domain.prompt(p))): p for p in letter_problems("train", 8)}
    groups, gaps = {}, []
    for prompt, completion in engine.given:
        groups.setdefault(prompt, []).append(completion)
    for prompt, completions in groups.items():
        right = [
            c.finish_reason == "stop" and LetterDomain().verify(problems[prompt], c.text).correct for c in completions
        ]
        if 0 < sum(right) < GROUP:
            for c in completions:
                gap = logprobs_of(policy, prompt, c.token_ids).detach() - torch.tensor(c.logprobs)
                gaps += gap.abs().tolist()
    assert logged["train/scored_tokens"] == len(gaps)
    assert logged["train/log_ratio_gap"] == pytest.approx(sum(gaps) / len(gaps), rel=1e-4)
