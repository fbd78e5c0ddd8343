"""The toy domain with problems that can be understood in two ways: a word that holds one letter, or another."""

from __future__ import annotations

from toy import LETTERS, LetterDomain, LetterSource

from elite_lightning.types import Problem, Reason, Verdict


class AmbiguousLetterDomain(LetterDomain):
    """Every second problem has a second letter; right is a word that holds either of them."""

    def _letters(self, problem: Problem) -> tuple[str, ...]:
        letter = problem.data["letter"]
        other = LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)]
        return (letter, other) if letter in "ac" else (letter,)

    def verify(self, problem: Problem, solution: str) -> Verdict:
        if set(solution) - set(LETTERS) or not set(solution) & set(self._letters(problem)):
            return Verdict(False, 0.0, Reason.WRONG_RESULT)
        return Verdict(True, 1.0)

    def interpretation_count(self, problem: Problem) -> int:
        return 2 if len(self._letters(problem)) == 2 else 0

    def interpretations(self, problem: Problem, solution: str) -> tuple[bool, ...]:
        if set(solution) - set(LETTERS):
            return (False, False)
        return tuple(letter in solution for letter in self._letters(problem))


class AmbiguousLetterSource(LetterSource):
    """Letter problems, some with two readings."""

    @property
    def domain(self) -> AmbiguousLetterDomain:
        return AmbiguousLetterDomain()
