"""One whole GRPO step beside TRL's GRPOTrainer: same model, prompts, samples and reward; sampling, reward, update.

    pip install -e .[bench] -c constraints.txt -c constraints-bench.txt
    python benchmarks/step_trl.py --prompts 16 --samples 8 --prompt-length 256 --new-tokens 64 --threads 2

A random Llama of a million parameters; `--prompt-length 64 256 512` shows how the ratio grows. The reward is trivial:
every other response of a group gets it, so that every response has an advantage and none is left out of the update.
(On our side the objective sees to that: nearly all responses hit the limit, and to us such a response is wrong.) Both
sides are used as their users use them, through `train.py`'s command line and `GRPOTrainer.train`, without logging to
the outside, evaluation and checkpoints. TRL is run with the whole batch in one pass, which is fastest where memory
allows it, and in passes of 16 rows.

Each side runs in a process of its own, and the sides take turns, so that a busy machine slows all of them. Seconds are
medians over steps, the first of every process left out. Memory is the highest resident memory of the process above that
at the beginning of training, when the model is loaded (Linux).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from lightning.pytorch import Callback
from memory import PeakMemory
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from datamodules.sources import ProblemSource
from elite_lightning.copy_heads import new_tiny_llama
from elite_lightning.objectives import Grpo
from elite_lightning.types import Cell, Problem, Verdict

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = 1024


class EveryOther(Grpo):
    """GRPO with a reward for every other response."""

    def advantages(self, rewards: Tensor, counted: Tensor, **given: Any) -> Tensor:
        return super().advantages(torch.arange(rewards.shape[1]).expand_as(rewards) % 2 * 1.0, counted, **given)


class AnyWords:
    """The trivial domain: every response is right."""

    name = "any words"
    approaches = ("any",)

    def fingerprint(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()

    def prompt(self, problem: Problem, target: str | None = None, parent: str | None = None) -> str:  # noqa: ARG002
        return problem.question

    def extract(self, response: str) -> str | None:
        return response or None

    def verify(self, problem: Problem, solution: str) -> Verdict:  # noqa: ARG002
        return Verdict(True, 1.0)

    def cell(self, problem: Problem, solution: str) -> Cell:  # noqa: ARG002
        return Cell("any", "")

    def strategy(self, problem: Problem, solution: str) -> str:  # noqa: ARG002
        return solution


class RandomPrompts(ProblemSource):
    """Prompts of random words, for both sides.

    Args:
        count: How many.
        length: Words of each, which are tokens.
    """

    def __init__(self, count: int, length: int) -> None:
        self._count, self._length = count, length

    @property
    def domain(self) -> AnyWords:
        return AnyWords()

    def train(self) -> Sequence[Problem]:
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(3, VOCABULARY, (self._count, self._length), generator=generator).tolist()
        return [Problem(f"p{i}", " ".join(f"w{word}" for word in row), {}) for i, row in enumerate(words)]


class Clock(Callback):
    """Seconds of every step, and the peak of memory since the first one began."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def begin(self) -> None:
        self._memory, self._last = PeakMemory(), time.perf_counter()

    def step(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now

    def report(self) -> None:
        print(json.dumps({"seconds": self.seconds[1:], "bytes": self._memory.bytes()}), flush=True)

    def on_train_start(self, *_: Any) -> None:
        self.begin()

    def on_train_batch_end(self, *_: Any) -> None:
        self.step()

    def on_train_end(self, *_: Any) -> None:
        self.report()


def make_policy(folder: Path) -> None:
    vocabulary = {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **ends).save_pretrained(folder)
    new_tiny_llama(VOCABULARY, bos_id=1, eos_id=2, pad_id=0).save_pretrained(folder)


def run_ours(given: argparse.Namespace, folder: str) -> None:
    from elite_lightning.cli import main

    source = {"count": given.prompts, "length": given.prompt_length[0]}
    config = {
        "run_dir": tempfile.mkdtemp(dir=folder),
        "torch_threads": given.threads,
        "checkpoint_every": 10**6,
        "trainer": {"max_steps": given.steps + 1, "accelerator": "cpu", "devices": 1, "enable_progress_bar": False}
        | {"callbacks": [{"class_path": "step_trl.Clock"}]},
        "model": {
            "path": folder,
            "mu": 0,
            "objective": {"class_path": "step_trl.EveryOther"},
            "responses_per_problem": given.samples,
            "verification": {"workers": 0},
        }
        | {"sampling": {"max_new_tokens": given.new_tokens}, "micro_batch_tokens": given.micro_batch_tokens},
        "data": {"source": {"class_path": "step_trl.RandomPrompts", "init_args": source}, "replay_per_step": 0}
        | {"problems_per_step": given.prompts, "problems_per_rollout": given.prompts},
        "evaluation": {"baseline": False, "samples": 1, "ks": [1]},
    }
    path = Path(config["run_dir"]) / "step.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    sys.exit(main(["fit", "--config", str(path)]))


def run_trl(given: argparse.Namespace, folder: str) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(given.threads)
    clock = Clock()

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            clock.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.step()

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(index % 2) for index in range(len(completions))]

    rows = given.prompts * given.samples
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(dir=folder),
        per_device_train_batch_size=min(given.rows or rows, rows),
        gradient_accumulation_steps=max(1, rows // (given.rows or rows)),
        num_generations=given.samples,
        max_completion_length=given.new_tokens,
        max_steps=given.steps + 1,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        beta=0.0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    data = Dataset.from_list(
        [{"prompt": p.question} for p in RandomPrompts(given.prompts, given.prompt_length[0]).train()]
    )
    GRPOTrainer(model=folder, reward_funcs=reward, args=config, train_dataset=data, callbacks=[Steps()]).train()
    clock.report()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8, help="of each prompt")
    parser.add_argument("--prompt-length", type=int, nargs="+", default=[256], help="one table each")
    parser.add_argument("--new-tokens", type=int, default=64, help="longest response")
    parser.add_argument("--micro-batch-tokens", type=int, default=2048, help="of our side")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of every process")
    parser.add_argument("--repeats", type=int, default=3, help="processes per side")
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(given: argparse.Namespace, folder: str, length: int, side: Sequence[str]) -> dict[str, Any]:
    names = ("prompts", "samples", "new_tokens", "micro_batch_tokens", "threads", "steps")
    options = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    command = [sys.executable, __file__, *options, "--prompt-length", str(length), "--folder", folder, *side]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        sys.exit(f"{' '.join(side)} failed: {last} (peers come with: pip install -e .[bench])")
    return dict(json.loads(lines[-1]))


def main() -> None:
    given = arguments()
    if given.side:
        (run_ours if given.side == "ours" else run_trl)(given, given.folder)
        return
    rows = given.prompts * given.samples
    sides = {"elite_lightning": ["--side", "ours"], f"TRL, {rows} rows a pass": ["--side", "trl"]}
    if rows > 16:
        sides["TRL, 16 rows a pass"] = ["--side", "trl", "--rows", "16"]
    with tempfile.TemporaryDirectory() as folder:
        make_policy(Path(folder))
        for length in given.prompt_length:
            show(given, length, {name: [] for name in sides}, sides, folder)


def show(
    given: argparse.Namespace, length: int, runs: dict[str, list[Any]], sides: dict[str, list[str]], folder: str
) -> None:
    for _ in range(given.repeats):
        for name, side in sides.items():
            runs[name].append(measure(given, folder, length, side))
    seconds = {name: median(x for run in done for x in run["seconds"]) for name, done in runs.items()}
    memory = {name: median(run["bytes"] for run in done) / 2**20 for name, done in runs.items()}
    ours = next(iter(sides))
    print(f"\n{given.prompts} x {given.samples}, {length} + {given.new_tokens} tokens, {given.threads} threads")
    print(f"{'':24}{'s a step':>10}{'x ours':>8}{'peak MiB':>10}{'x ours':>8}")
    for name in sides:
        ratios = seconds[name] / seconds[ours], memory[name] / memory[ours]
        print(f"{name:24}{seconds[name]:10.2f}{ratios[0]:8.2f}{memory[name]:10.0f}{ratios[1]:8.2f}", flush=True)


if __name__ == "__main__":
    main()
