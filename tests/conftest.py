"""Shared fixtures: a tiny policy with a byte tokenizer, made in a second and loaded through the real path."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

# A slow machine is no fault of the code: nothing here is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and an end-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<eos>": 0, "<bos>": 1, **{symbol: i for i, symbol in enumerate(alphabet, start=2)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", bos_token="<bos>", pad_token="<eos>")


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Some 30 thousand random parameters."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def teach_letters(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int = 60) -> None:
    """Teach it to answer with words of a few letters, whatever is asked; plain torch, nothing of the project."""
    draws = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        words = ["".join(draws.choice("abcd") for _ in range(draws.randint(1, 3))) for _ in range(16)]
        rows = [[1, *tokenizer.encode("tr0a - -:")[:9], *tokenizer.encode(word), 0] for word in words]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        labels = torch.tensor([[-100] * 10 + row[10:] + [-100] * (width - len(row)) for row in rows])
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def one_thread():
    """Models this small are slower on more threads, and much slower beside other processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory):
    """Folder of a tiny policy, with its tokenizer, that answers with words of a few letters."""
    folder = tmp_path_factory.mktemp("policy")
    model, tokenizer = tiny_model(), byte_tokenizer()
    teach_letters(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


ROOT = Path(__file__).parent.parent


@pytest.fixture
def toy_config(tiny_policy, tmp_path):
    """A complete small experiment on the letters domain, as a YAML file."""
    config = {
        "seed_everything": 1,
        "run_dir": str(tmp_path / "run"),
        "checkpoint_every": 4,
        "torch_threads": 1,
        "trainer": {"max_steps": 8, "accelerator": "cpu", "devices": 1, "enable_progress_bar": False},
        "model": {
            "path": str(tiny_policy),
            "mu": 0.2,
            "responses_per_problem": 4,
            "sampling": {"max_new_tokens": 6},
            "optimizer": {"lr": 3e-3},
            "verification": {"workers": 0},
        },
        "data": {
            "source": {"class_path": "toy.LetterSource"},
            "problems_per_step": 4,
            "replay_per_step": 4,
            "problems_per_rollout": 2,
        },
        "search": {
            "class_path": "callbacks.MapElitesPreSearch",
            "init_args": {
                "settings": {"attempts_per_problem": 16, "seed_samples": 4, "sampling": {"max_new_tokens": 6}}
            },
        },
        "evaluation": {"samples": 8, "ks": [1, 8]},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
def cli(toy_config, monkeypatch, capsys):
    """Runs a command here: `cli("fit", "--model.mu", "0")` gives exit code and stderr; stdout is `cli.out`."""
    from elite_lightning.cli import main

    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(command, *options):
        capsys.readouterr()
        code = main([command, "--config", str(toy_config), *options])
        run.out, err = capsys.readouterr()
        return code, err

    return run


def run_process(*arguments, timeout_s=120, **environment):
    """Runs `python train.py ...` as a user does; killed hard when it takes too long, since a hung rank ignores less."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err
