"""Score a file of predictions on a benchmark's questions, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datamodules.sources import PredictionScores
from elite_lightning.domains.sql.prediction_files import GoldItem, read_predictions
from elite_lightning.domains.sql.scoring import score_predictions
from elite_lightning.types import Problem


def score_file(
    predictions: Path,
    questions: Sequence[Problem],
    databases: Path,
    copies: Path | None,
    rules: Sequence[str],
    workers: int,
) -> PredictionScores:
    """Judge each prediction under each rule.

    Args:
        predictions: BIRD's JSON, or Spider's text with a query a line; one for each question, in their order.
        questions: The questions of the benchmark's file.
        databases: What `Problem.data["database"]` is relative to.
        copies: Folder of further copies of the databases, if any.
        rules: Names of comparison rules.
        workers: Number of worker processes.

    Raises:
        UsageError: If the file does not fit the questions, or a database is missing or broken.
    """
    golds = [_gold(problem) for problem in questions]
    names = [GoldItem(gold.id, gold.sql, Path(gold.database).name, gold.difficulty) for gold in golds]
    sql, warnings = read_predictions(predictions, names)
    scores = score_predictions(golds, sql, databases, rules, copies, workers=workers)
    items = [
        {"problem_id": gold.id, "prediction": text}
        | {rule: {"score": v.reward, "correct": v.correct, "reason": v.reason} for rule, v in judged.items()}
        for gold, text, judged in (
            (gold, text, {rule: scores.verdicts[rule][index] for rule in rules})
            for index, (gold, text) in enumerate(zip(golds, sql, strict=True))
        )
    ]
    return PredictionScores(scores.summary(), items, warnings)


def _gold(problem: Problem) -> GoldItem:
    return GoldItem(problem.id, problem.data["gold"], str(problem.data["database"]), problem.data.get("difficulty"))
