"""Run folders made by the package's own writers, so small that every figure can be counted by hand."""

import json
from pathlib import Path

import yaml

from elite_lightning.archive import Outcome
from elite_lightning.archive_file import write_archive
from elite_lightning.evaluation import write_samples
from elite_lightning.loggers import JsonlLogger
from elite_lightning.search.attempt import Attempt
from elite_lightning.search.journal import SearchJournal
from elite_lightning.types import Cell, Elite

HOSTILE = '</script><script>alert("x")</script><!-- \u2028 &amp; \' $x$'

# By problem the strategies of eight samples; a dot is wrong. Word problems of `toy.LetterSource`.
BASE = {"test-0": "xxyz....", "test-1": "xyzw....", "test-2": "........"}
GRPO = {"test-0": "xxxxxxx.", "test-1": "xxxxyyyy", "test-2": "........"}
ELITE = {"test-0": "xxxxyyz.", "test-1": "xxyyzzww", "test-2": "x......."}


def samples(table, texts=lambda problem, number, strategy: strategy * (number + 1)):
    """Records of an evaluation."""
    return [
        {
            "index": index,
            "problem_id": problem,
            "sample": number,
            "response": f"I say {texts(problem, number, strategy)}",
            "solution": texts(problem, number, strategy),
            "correct": strategy != ".",
            "reward": float(strategy != "."),
            "reason": None if strategy != "." else "wrong_result",
            "strategy": strategy if strategy != "." else None,
            "tokens": 3,
        }
        for index, (problem, strategies) in enumerate(table.items())
        for number, strategy in enumerate(strategies)
    ]


def attempt(number, problem, cell=None, rank_id=None):
    outcome = Outcome.INSERTED if cell else Outcome.WRONG_RESULT
    identity = {"id": number, "round": 0, "batch": 0, "problem_id": problem, "asked": None, "parents": ()}
    answered = {"response": "r", "solution": "s", "outcome": outcome, "reward": float(bool(cell))}
    return Attempt(**identity, **answered, cell=Cell(*cell) if cell else None)


ATTEMPTS = [
    attempt(0, "train-0", ("alone", "1")),
    attempt(1, "train-1"),
    attempt(2, "train-0", ("alone", "1")),
    attempt(3, "train-0", ("first", "2")),
    attempt(4, "train-1", ("alone", "1")),
]


def run_folder(path: Path, trained, base=BASE, steps=4, scale=1.0, searched=False, source="toy.LetterSource") -> Path:
    """A finished run."""
    path.mkdir(parents=True)
    config = {
        "run_dir": str(path),
        "data": {"source": {"class_path": source}, "root": None},
        "evaluation": {"ks": [1, 2, 8]},
    }
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    write_samples(path / "eval" / "step=0.jsonl", samples(base))
    write_samples(path / f"eval/step={steps}.jsonl", samples(trained))
    write_samples(path / "eval" / "validation_step=9.jsonl", samples(GRPO))
    logger = JsonlLogger(path / "metrics.jsonl")
    for step in range(steps):
        more = {"train/entropy": 1.0, "train/gradient_norm": scale, "train/loss_replay": scale} if searched else {}
        spent = {"train/generations": 8.0, "train/seconds/train": 30 * scale / steps, "train/loss": 0.0}
        logger.log_metrics({"train/correct": scale * step, **more, **spent, "train/loss_policy": 0.0}, step)
    seconds = {"train": 30 * scale, "rollout": 10, "verify": 1, "update": 19, "evaluate": 7}
    (path / "summary.json").write_text(json.dumps({"seconds": seconds}))
    if searched:
        search(path)
    return path


def search(path: Path) -> None:
    """A journal, its report and its archive."""
    path.mkdir(parents=True, exist_ok=True)
    with SearchJournal(path / "search.sqlite", {"method": "toy"}) as journal:
        journal.append(ATTEMPTS)
    (path / "search.json").write_text(json.dumps({"attempts": 5, "seconds": 2.5}))
    elites = [
        Elite("train-0", Cell("alone", "1"), "a", "a", (1,)),
        Elite("train-0", Cell("first", "2"), "ab", HOSTILE, (1, 2)),
        Elite("train-1", Cell("alone", "1"), "b", "b", (1,)),
    ]
    write_archive(path / "archive.jsonl", elites, 2, 5, {"domain": "another"})
