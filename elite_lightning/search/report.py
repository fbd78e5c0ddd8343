"""What a search did, as numbers: counts of attempts by outcome and approach, and coverage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elite_lightning.archive import Outcome
from elite_lightning.search.attempt import Attempt
from elite_lightning.types import Cell, Cells

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is on this rank; for a progress bar.

    Args:
        round: Round that is going on, from 0.
        attempts: Attempts so far, those of an earlier process included.
        budget: Attempts at the end.
        problems: Problems of this rank.
        covered_problems: Problems with at least one elite.
        elites: Elites, which is the number of occupied cells.
    """

    round: int
    attempts: int
    budget: int
    problems: int
    covered_problems: int
    elites: int


@dataclass(frozen=True)
class SearchReport:
    """Summary of all attempts.

    Args:
        problems: Problems that were searched.
        covered_problems: Problems with at least one correct attempt.
        elites: Occupied cells over all problems.
        attempts: All attempts.
        outcomes: Attempts by outcome.
        realised: Attempts by (approach asked for or `plain`, approach of the correct solution or the outcome's name).
        judged_responses: Attempts of whose solution a verdict was asked: they ended by themselves and held one.
        verifier_calls: Distinct pairs of problem and solution among them, which is how often the verifier ran.
        generated_tokens: Sampled tokens, end-of-sequence included; None if some attempts were written down by a
            release that did not count them.
    """

    problems: int
    covered_problems: int
    elites: int
    attempts: int
    outcomes: Mapping[Outcome, int]
    realised: Mapping[tuple[str, str], int]
    judged_responses: int
    verifier_calls: int
    generated_tokens: int | None

    @classmethod
    def of(cls, attempts: Iterable[Attempt], problems: int, tell_apart_by: Cells = "both") -> SearchReport:
        """Count.

        Args:
            attempts: Of one journal or of several.
            problems: Problems that were searched, those without an attempt included.
            tell_apart_by: What told the cells of the search apart.
        """
        outcomes: Counter[Outcome] = Counter()
        realised: Counter[tuple[str, str]] = Counter()
        cells: defaultdict[str, set[Cell]] = defaultdict(set)
        judged: Counter[tuple[str, str]] = Counter()
        tokens: int | None = 0
        for attempt in attempts:
            outcomes[attempt.outcome] += 1
            realised[attempt.asked or PLAIN, attempt.cell.approach if attempt.cell else attempt.outcome.value] += 1
            if attempt.cell is not None:
                cells[attempt.problem_id].add(attempt.cell.projected(tell_apart_by))
            if attempt.solution is not None:
                judged[attempt.problem_id, attempt.solution] += 1
            tokens = None if tokens is None or attempt.tokens is None else tokens + attempt.tokens
        elites, spent = sum(map(len, cells.values())), (judged.total(), len(judged), tokens)
        return cls(problems, len(cells), elites, outcomes.total(), outcomes, realised, *spent)

    @property
    def cells_per_problem(self) -> float:
        """Occupied cells per problem, those without any included."""
        return self.elites / self.problems if self.problems else 0.0

    @property
    def correct_share(self) -> float:
        """Share of correct attempts; failures of our own verifier do not count."""
        counted = self.attempts - self.outcomes.get(Outcome.VERIFIER_FAILURE, 0)
        correct = sum(count for outcome, count in self.outcomes.items() if outcome.correct)
        return correct / counted if counted else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-serialisable data, keys sorted."""
        realised: dict[str, dict[str, int]] = {}
        for (asked, came), count in sorted(self.realised.items()):
            realised.setdefault(asked, {})[came] = count
        return {
            "problems": self.problems,
            "covered_problems": self.covered_problems,
            "elites": self.elites,
            "cells_per_problem": self.cells_per_problem,
            "attempts": self.attempts,
            "judged_responses": self.judged_responses,
            "verifier_calls": self.verifier_calls,
            "generated_tokens": self.generated_tokens,
            "correct_share": self.correct_share,
            "outcomes": {outcome.value: count for outcome, count in sorted(self.outcomes.items())},
            "asked_and_realised": realised,
        }


def side_by_side(reports: Mapping[str, SearchReport]) -> str:
    """Coverage of several searches as a small table of text, a column each.

    Args:
        reports: Name to report, such as `{"MAP-Elites": ..., "IID": ...}`.
    """
    rows: list[tuple[str, list[str]]] = [
        ("", list(reports)),
        ("attempts", [str(r.attempts) for r in reports.values()]),
        ("correct attempts", [f"{r.correct_share:.1%}" for r in reports.values()]),
        ("cells per problem", [f"{r.cells_per_problem:.2f}" for r in reports.values()]),
        ("problems without any", [f"{r.problems - r.covered_problems} of {r.problems}" for r in reports.values()]),
    ]
    widths = [max(len(row[1][column]) for row in rows) for column in range(len(reports))]
    return "\n".join(
        f"{label:<21}" + "  ".join(f"{value:>{width}}" for value, width in zip(values, widths, strict=True))
        for label, values in rows
    )
