"""Score predicted SQL without a model, under any of the comparison rules, in worker processes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elite_lightning.domains.sql.domain import SqlDomain
from elite_lightning.domains.sql.executor import Limits
from elite_lightning.domains.sql.prediction_files import GoldItem
from elite_lightning.domains.sql.rules import rule_named
from elite_lightning.domains.sql.verifier import EMPTY, GoldError, require_gold, verify_sql
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem, Reason, Verdict
from elite_lightning.verify import VerificationPool

SCORING_LIMITS = Limits(
    steps=3_000_000_000, seconds=30.0, rows=2_000_000, result_bytes=256_000_000, value_bytes=16_000_000
)
"""Wide, because a benchmark's own evaluator knows no limit but 30 seconds."""

DEFAULT_RULES = ("default", "bird_ex", "soft_f1", "spider_exec", "test_suite")


class ScoringDomain(SqlDomain):
    """Judges predictions as they are written, without extraction, under the rule that the problem names.

    Gold is run first, and a gold query that fails is a verdict, `Reason.GOLD_FAILED`, instead of an error.
    """

    def extract(self, response: str) -> str:
        """The prediction itself."""
        return response

    def verify(self, problem: Problem, solution: str) -> Verdict:
        """The verdict of the rule `problem.data["rule"]`.

        Raises:
            UsageError: If a database is missing or broken.
        """
        rule, gold = rule_named(problem.data["rule"]), problem.data["gold"]
        paths = self._paths(problem.data["database"])
        try:
            require_gold(self._executor, rule, paths, gold)
            return verify_sql(self._executor, rule, paths, gold, solution)
        except GoldError as error:
            return Verdict(False, 0.0, Reason.GOLD_FAILED, str(error))


@dataclass(frozen=True, slots=True)
class Share:
    """How many of some predictions are right.

    Args:
        items: Predictions that were judged; those whose gold fails are among them, as wrong ones.
        correct: Predictions that are right; under `soft_f1` those with the full score.
        score: Mean score. A share for most rules; `r_ves` reaches 1.118.
    """

    items: int
    correct: int
    score: float


@dataclass(frozen=True, slots=True)
class RuleScore:
    """The result of all predictions under one rule.

    Args:
        all: Over all predictions.
        by_difficulty: Over the predictions of each difficulty, in order of first appearance.
        errors: Number of predictions that are not right by reason.
        empty: Predictions that are right only because they return no rows where gold returns none.
        gold_failed: Ids of the questions whose gold cannot be run.
        unjudged: Ids of the questions that our own machinery could not judge; they count nowhere else.
    """

    all: Share
    by_difficulty: dict[str, Share]
    errors: dict[str, int]
    empty: int
    gold_failed: list[str]
    unjudged: list[str]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores by rule, and each prediction's verdict by rule in the order of the questions."""

    rules: dict[str, RuleScore]
    verdicts: dict[str, list[Verdict]]

    def summary(self) -> dict[str, Any]:
        """The scores as plain data for JSON, without the single verdicts."""
        return {name: asdict(score) for name, score in self.rules.items()}


def score_predictions(
    golds: Sequence[GoldItem],
    predictions: Sequence[str],
    databases: str | Path,
    rules: Sequence[str] = DEFAULT_RULES,
    copies: str | Path | None = None,
    limits: Limits = SCORING_LIMITS,
    workers: int = 1,
    timeout_s: float = 150.0,
) -> Scores:
    """Judge one prediction for each question.

    Args:
        golds: The questions.
        predictions: SQL in the order of `golds`.
        databases: Folder of databases, as `SqlDomain`'s.
        rules: Names of the rules to judge by.
        copies: Folder of further copies, as `SqlDomain`'s.
        limits: What one query may use on one database.
        workers: Number of worker processes, as `VerificationPool`'s.
        timeout_s: Seconds that a worker may take for one prediction, gold included. A rule that runs queries many
            times gets `limits.seconds` more for each further time, as BIRD's `evaluation_ves.py` gives.

    Raises:
        UsageError: If the numbers differ, a rule is unknown, or a database is missing or broken.
    """
    if len(golds) != len(predictions):
        raise UsageError(f"{len(predictions)} predictions for {len(golds)} questions: give one for each question")
    by_repeats: dict[int, list[str]] = defaultdict(list)
    for name in rules:
        by_repeats[rule_named(name).repeats].append(name)
    domain = ScoringDomain(databases, limits, copies=copies)
    verdicts: dict[str, list[Verdict]] = {name: [] for name in rules}
    for repeats, alike in by_repeats.items():
        with VerificationPool(domain, workers, timeout_s + (repeats - 1) * limits.seconds) as pool:
            verdicts |= _verdicts(pool, golds, predictions, alike)
    return Scores({rule: _rule_score(golds, found) for rule, found in verdicts.items()}, verdicts)


def _verdicts(
    pool: VerificationPool, golds: Sequence[GoldItem], predictions: Sequence[str], rules: Sequence[str]
) -> dict[str, list[Verdict]]:
    """Verdicts by rule. The rules of one question go together: the worker that takes them runs its queries once."""
    items = [
        (_problem(index, gold, rule), prediction)
        for index, (gold, prediction) in enumerate(zip(golds, predictions, strict=True))
        for rule in rules
    ]
    judged = [judgement.verdict for judgement in pool.judge_many(items)]
    return {rule: judged[place :: len(rules)] for place, rule in enumerate(rules)}


def _problem(index: int, gold: GoldItem, rule: str) -> Problem:
    return Problem(f"{index} {rule}", "", {"database": gold.database, "gold": gold.sql, "rule": rule})


def _rule_score(golds: Sequence[GoldItem], verdicts: Sequence[Verdict]) -> RuleScore:
    known = [(gold, verdict) for gold, verdict in zip(golds, verdicts, strict=True) if verdict.counted]
    levels = dict.fromkeys(gold.difficulty for gold, _ in known if gold.difficulty is not None)
    return RuleScore(
        all=_share(verdict for _, verdict in known),
        by_difficulty={level: _share(v for gold, v in known if gold.difficulty == level) for level in levels},
        errors=dict(Counter(str(verdict.reason) for _, verdict in known if verdict.reason is not None)),
        empty=sum(verdict.detail == EMPTY for _, verdict in known),
        gold_failed=[gold.id for gold, verdict in known if verdict.reason is Reason.GOLD_FAILED],
        unjudged=[gold.id for gold, verdict in zip(golds, verdicts, strict=True) if not verdict.counted],
    )


def _share(verdicts: Iterable[Verdict]) -> Share:
    found = list(verdicts)
    correct = sum(verdict.correct for verdict in found)
    return Share(len(found), correct, sum(verdict.reward for verdict in found) / len(found) if found else 0.0)
