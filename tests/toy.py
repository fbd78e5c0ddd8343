"""A domain that an almost untrained policy solves now and then: words over four letters that hold a given one.

It travels to worker processes, so it lives in a module of its own and knows no torch.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Sequence

from datamodules.sources import Demonstration, DemonstrationSource, ProblemSource
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Cell, Problem, Reason, Verdict

LETTERS = "abcd"


class LetterDomain:
    """Right is a word of at most four letters out of a, b, c, d that holds the problem's letter."""

    name = "letters"
    approaches = ("alone", "first", "last", "inside")

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.verified = 0

    def fingerprint(self) -> str:
        return hashlib.sha256(f"letters {self.version}".encode()).hexdigest()

    def prompt(self, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        return f"{problem.question} {target or '-'} {parent or '-'}:"

    def extract(self, response: str) -> str | None:
        return response.strip() or None

    def verify(self, problem: Problem, solution: str) -> Verdict:
        self._die_if_due()
        if len(solution) > 4 or set(solution) - set(LETTERS):
            return Verdict(False, 0.0, Reason.NOT_ALLOWED, "another word")
        if problem.data["letter"] not in solution:
            return Verdict(False, 0.0, Reason.WRONG_RESULT, "another letter")
        return Verdict(True, 1.0)

    def _die_if_due(self) -> None:
        """Kill the process, hard, at the verification that TOY_KILL_AT_VERIFICATION names."""
        self.verified += 1
        if os.environ.get("TOY_KILL_AT_VERIFICATION") == str(self.verified):
            os.kill(os.getpid(), signal.SIGKILL)

    def cell(self, problem: Problem, solution: str) -> Cell:
        letter = problem.data["letter"]
        if solution == letter:
            form = "alone"
        elif solution.startswith(letter):
            form = "first"
        else:
            form = "last" if solution.endswith(letter) else "inside"
        return Cell(form, f"length={len(solution)}")

    def strategy(self, problem: Problem, solution: str) -> str:
        return "".join(sorted(solution))


def letter_problems(split: str, count: int) -> list[Problem]:
    return [
        Problem(f"{split}-{i}", f"{split[:2]}{i}{LETTERS[i % 4]}", {"letter": LETTERS[i % 4]}) for i in range(count)
    ]


class LetterSource(ProblemSource):
    """Letter problems.

    Args:
        train_problems: How many to train on.
        test_problems: How many to validate on, and to test on.
        domain_version: Of the domain's rules.
    """

    def __init__(self, train_problems: int = 8, test_problems: int = 5, domain_version: int = 1) -> None:
        self._train, self._test = letter_problems("train", train_problems), test_problems
        self._domain = LetterDomain(domain_version)

    @property
    def domain(self) -> LetterDomain:
        return self._domain

    def train(self) -> Sequence[Problem]:
        return self._train

    def validation(self) -> Sequence[Problem]:
        return letter_problems("validation", self._test)

    def test(self) -> Sequence[Problem]:
        return letter_problems("test", self._test)


class LetterDemonstrations(DemonstrationSource):
    """Right words, with and without a target."""

    def demonstration(self, index: int, seed: int) -> Demonstration:
        draws = random.Random(derive_seed(seed, "letters", index))
        problem = letter_problems("train", 8)[draws.randrange(8)]
        word = "".join(draws.choice(LETTERS) for _ in range(draws.randint(1, 3)))
        return Demonstration(LetterDomain().prompt(problem), word, 1.0 + draws.randrange(2))
