"""What a run has spent, from its files alone: samples, tokens, verdicts and seconds of its three parts.

Methods are compared fairly only if this is beside their figures. `docs/metrics.md` says what each number counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elite_lightning.errors import UsageError
from elite_lightning.run_folder import RunFolder


@dataclass(frozen=True)
class Spent:
    """What one part of a run took, over all ranks.

    None is what was not counted: by an earlier release, or because `trainer.log_every_n_steps` left steps out.

    Args:
        generations: Responses that were sampled.
        generated_tokens: Their tokens, end-of-sequence included.
        judged_responses: Responses of whose solution a verdict was asked: they ended by themselves and held one.
        verifier_calls: Distinct solutions among them: of a problem in the search and in one evaluation, of a group in
            training.
        seconds: Wall-clock seconds. Those of a search that was stopped are of its last process.
    """

    generations: int | None = 0
    generated_tokens: int | None = 0
    judged_responses: int | None = 0
    verifier_calls: int | None = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingSpent(Spent):
    """What training took, over all ranks; validation in between is evaluation, and is not in these seconds.

    Args:
        generations: See `Spent`, also for the others.
        generated_tokens: Tokens of sampled responses.
        judged_responses: Responses of whose solution a verdict was asked.
        verifier_calls: Distinct solutions of each group.
        seconds: Wall-clock seconds of the steps.
        optimizer_steps: Steps.
        scored_tokens: Response tokens that went forward and backward in the policy term.
        replayed_responses: Responses that went forward and backward in the replay term.
        replayed_tokens: Their tokens, end-of-sequence included.
    """

    optimizer_steps: int = 0
    scored_tokens: int | None = 0
    replayed_responses: int | None = 0
    replayed_tokens: int | None = 0


@dataclass(frozen=True)
class Budget:
    """What a run has spent.

    Args:
        search: Before training.
        train: Training.
        evaluate: All evaluations, of test and validation problems; the seconds are those of `fit`'s test evaluations.
    """

    search: Spent = field(default_factory=Spent)
    train: TrainingSpent = field(default_factory=TrainingSpent)
    evaluate: Spent = field(default_factory=Spent)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The budget as JSON-serialisable data."""
        return asdict(self)


def budget_of(run_folder: RunFolder) -> Budget:
    """Add up what a run has spent so far.

    Args:
        run_folder: The run, finished or not. A file that is not there counts as nothing spent.

    Raises:
        UsageError: If a file is broken; names it.
    """
    evaluations = [samples_spent(path) for path in run_folder.evaluations]
    seconds = _read_object(run_folder.summary).get("seconds", {}).get("evaluate", 0.0)
    names = ("generations", "generated_tokens", "judged_responses", "verifier_calls")
    totals: dict[str, int] = {name: sum(getattr(spent, name) for spent in evaluations) for name in names}
    return Budget(
        _search_spent(_read_object(run_folder.search_report)),
        _training_spent(_read_lines(run_folder.metrics)),
        Spent(**totals, seconds=float(seconds)),
    )


def mean_budget(runs: Sequence[Path]) -> dict[str, dict[str, float | None]]:
    """What a run of an arm has spent, as a mean over its seeds.

    Args:
        runs: Run folders, at least one.

    Returns:
        Part to what was spent, by the names of `Budget`; None where one of the runs did not count it.

    Raises:
        UsageError: If a file is broken; names it.
    """
    budgets = [budget_of(RunFolder(run)).to_dict() for run in runs]
    return {part: _mean([budget[part] for budget in budgets]) for part in budgets[0]}


def _mean(parts: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    return {
        key: None if any(part[key] is None for part in parts) else sum(part[key] for part in parts) / len(parts)
        for key in parts[0]
    }


def samples_spent(path: Path) -> Spent:
    """What one evaluation took, without seconds.

    Args:
        path: Its file of samples.

    Raises:
        UsageError: If a line is broken; names the file.
    """
    try:
        records = [(r["tokens"], r["problem_id"], r["solution"]) for r in _read_lines(path)]
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path}: a line is not a sample ({error}); evaluate again") from error
    judged = [(problem_id, solution) for _, problem_id, solution in records if solution is not None]
    return Spent(len(records), sum(tokens for tokens, _, _ in records), len(judged), len(set(judged)))


def _search_spent(report: Mapping[str, Any]) -> Spent:
    if not report:
        return Spent()
    later = {name: report.get(name) for name in ("generated_tokens", "judged_responses", "verifier_calls")}
    return Spent(report["attempts"], **later, seconds=report["seconds"])


def _training_spent(rows: Sequence[Mapping[str, Any]]) -> TrainingSpent:
    steps = [row for row in rows if "train/loss" in row]
    sampled = ("generations", "generated_tokens", "judged_responses", "verifier_calls", "scored_tokens")
    counted = {name: _total(steps, name, "train/loss_policy") for name in sampled}
    counted |= {name: _total(steps, name, "train/loss_replay") for name in ("replayed_responses", "replayed_tokens")}
    seconds = sum(row["train/seconds/train"] for row in steps)
    return TrainingSpent(**counted, seconds=seconds, optimizer_steps=steps[-1]["step"] + 1 if steps else 0)  # type: ignore[arg-type]


def _total(steps: Sequence[Mapping[str, Any]], name: str, term: str) -> int | None:
    """Sum over the steps that had the term; None if one of them was not counted, or not logged."""
    if steps and [row["step"] for row in steps] != list(range(len(steps))):
        return None
    values = [row.get(f"train/{name}") for row in steps if term in row]
    return None if None in values else round(sum(value for value in values if value is not None))


def _read_object(path: Path) -> dict[str, Any]:
    rows = _read_lines(path, whole=True)
    return rows[0] if rows else {}


def _read_lines(path: Path, whole: bool = False) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file, or the `whole` file as one; none if it is not there."""
    if not path.is_file():
        return []
    text = path.read_text()
    try:
        return [json.loads(part) for part in ([text] if whole else text.splitlines())]
    except ValueError as error:
        raise UsageError(f"{path} is broken ({error}): let the run finish first, or take another run folder") from error
