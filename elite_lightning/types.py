"""The words of the package as frozen dataclasses and protocols.

What is asked is a `Problem`; the text that the policy wrote is a response; what is extracted from it is a
solution; what the verifier says is a `Verdict`. Nothing here imports torch, Lightning or SQL, so that every
room can use these words without knowing the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable


class Reason(StrEnum):
    """Why a response is not correct. A closed list: reports and tests may enumerate it."""

    NO_SOLUTION = "no_solution"  # nothing could be extracted from the response
    TRUNCATED = "truncated"  # the response hit the length limit before it ended
    NOT_ALLOWED = "not_allowed"  # the solution does something that a solution may not do
    ERROR = "error"  # the solution could not be run
    TOO_LONG = "too_long"  # the solution's own text passed the limit on its length
    TOO_MANY_STEPS = "too_many_steps"  # the solution used up its budget of steps, which are the same on every machine
    TIMEOUT = "timeout"  # the solution used up its time
    TOO_MANY_ROWS = "too_many_rows"  # the solution's result has more rows than allowed
    TOO_LARGE = "too_large"  # the solution's result, or a value on the way to it, passed the limit on its size
    OUT_OF_MEMORY = "out_of_memory"  # the solution needed more memory than allowed
    WRONG_RESULT = "wrong_result"  # it ran, and the result is not the right one
    GOLD_FAILED = "gold_failed"  # the reference solution cannot be run: says nothing about this one
    VERIFIER_FAILURE = "verifier_failure"  # our own fault: excluded from statistics, never a wrong answer


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is asked.

    Args:
        id: Unique within a data set and stable over runs; archives and journals refer to it.
        question: What is asked, in words.
        data: What the domain needs besides (for SQL: database, gold, whether order counts). JSON-serialisable.
    """

    id: str
    question: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier says about a solution.

    Args:
        correct: Whether the solution is right.
        reward: Real-valued reward, 0 or 1 where a domain only knows right and wrong.
        reason: Why it is not correct; None exactly when it is.
        detail: One line for people, such as the database's error message.

    Raises:
        ValueError: If `correct` and `reason` contradict each other.
    """

    correct: bool
    reward: float
    reason: Reason | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuse a verdict that says both right and why wrong, or neither."""
        if self.correct == (self.reason is not None):
            raise ValueError(f"a verdict needs a reason exactly when it is not correct, got {self!r}")

    @property
    def counted(self) -> bool:
        """False when our own machinery failed: such a response enters no statistic."""
        return self.reason is not Reason.VERIFIER_FAILURE


Cells = Literal["both", "approach", "structure"]
"""What tells the cells of an archive apart: approach and structure, or one of them alone."""


class Cell(NamedTuple):
    """Where a solution is filed: how it solves the problem, and the binned shape of its syntax tree."""

    approach: str
    structure: str

    def projected(self, cells: Cells) -> Cell:
        """The cell with only what tells cells apart; the rest is left empty."""
        if cells == "both":
            return self
        return Cell(self.approach, "") if cells == "approach" else Cell("", self.structure)


@dataclass(frozen=True, slots=True)
class Judgement:
    """All that is known about one response: its solution, verdict and, where asked for, cell, strategy and hits.

    `cell` and `strategy` are computed for correct solutions only, and only when the caller asked for them. `hits` says
    which of an ambiguous problem's interpretations a solution answers; it is None where that was not asked or found
    out, and empty where the problem is not ambiguous.
    """

    solution: str | None
    verdict: Verdict
    cell: Cell | None = None
    strategy: str | None = None
    hits: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class Elite:
    """The shortest verified response of one cell of one problem.

    Args:
        problem_id: The problem that it solves.
        cell: The cell that it realises, whatever approach was asked for; approach and structure, even where the
            archive tells cells apart by one of them alone.
        response: The text that is replayed.
        solution: What was extracted from it.
        token_ids: The response as the tokenizer writes it, end-of-sequence included: exactly what is replayed.
        weight: Relative weight in replay; 1 for MAP-Elites.
    """

    problem_id: str
    cell: Cell
    response: str
    solution: str
    token_ids: tuple[int, ...]
    weight: float = 1.0


class FinishReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"  # end-of-sequence was sampled
    LENGTH = "length"  # the limit on new tokens was reached


@dataclass(frozen=True)  # no slots: the command line reads a default's values from its __dict__
class Sampling:
    """How tokens are drawn.

    There is no top-p or top-k on purpose: a truncated sampler renormalises, the trainer does not, and the
    importance ratio is biased.

    Args:
        temperature: Softmax temperature; 0 is greedy.
        max_new_tokens: Longest response, in tokens, end-of-sequence included.

    Raises:
        ValueError: If a value is out of range.
    """

    temperature: float = 1.0
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.temperature < 0:
            raise ValueError(f"sampling.temperature must be at least 0, got {self.temperature}")
        if self.max_new_tokens < 1:
            raise ValueError(f"sampling.max_new_tokens must be at least 1, got {self.max_new_tokens}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One generated response.

    Args:
        token_ids: Sampled tokens, end-of-sequence included when it was sampled.
        logprobs: Natural log-probability of each token under the distribution that it was drawn from.
        finish_reason: Whether the response ended by itself.
        text: Decoded response without special tokens.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str


@runtime_checkable
class RolloutEngine(Protocol):
    """Something that samples responses: this process, or another one on another machine."""

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        """Draw `n` responses to each prompt (token ids). Same seed, same machine: same tokens."""
        ...


class Codec(Protocol):
    """Text to token ids and back, in one place, so that search, training and replay cannot disagree."""

    @property
    def fingerprint(self) -> str:
        """Hash of the vocabulary and of the special tokens."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt, with whatever the model expects in front."""
        ...

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, end-of-sequence included."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response without special tokens."""
        ...


@runtime_checkable
class Domain(Protocol):
    """A verifiable domain: how to ask, what counts as right, and in which ways answers differ.

    A domain is picklable (it travels to worker processes) and knows neither torch nor Lightning.
    """

    @property
    def name(self) -> str:
        """Short name, such as `sql`."""
        ...

    @property
    def approaches(self) -> tuple[str, ...]:
        """The closed vocabulary of approaches that the search may ask for."""
        ...

    def fingerprint(self) -> str:
        """Hash of all that decides verdicts, cells and prompts; archives of another fingerprint are refused."""
        ...

    def prompt(self, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """The prompt: plain, with a target approach, or with a target and a parent solution."""
        ...

    def extract(self, response: str) -> str | None:
        """The solution within a response, or None."""
        ...

    def verify(self, problem: Problem, solution: str) -> Verdict:
        """Whether the solution is right."""
        ...

    def cell(self, problem: Problem, solution: str) -> Cell:
        """The cell that a correct solution realises."""
        ...

    def strategy(self, problem: Problem, solution: str) -> str:
        """The evaluation's own key, kept apart from the cell so that nothing is trained on the metric."""
        ...


@runtime_checkable
class CheckingDomain(Protocol):
    """What a domain offers besides if a problem can be broken in ways that its prompt does not show."""

    def check(self, problem: Problem) -> None:
        """Raise a `UsageError` unless answers to the problem can be judged."""
        ...


@runtime_checkable
class AmbiguousDomain(Protocol):
    """What a domain offers besides if its problems can have several interpretations, each with its own right answers.

    `verify` then accepts an answer to any of them.
    """

    def interpretation_count(self, problem: Problem) -> int:
        """How many interpretations a problem has; 0 if it is not one whose coverage is measured."""
        ...

    def interpretations(self, problem: Problem, solution: str) -> tuple[bool, ...]:
        """Which interpretations a solution answers, as many as `interpretation_count` says."""
        ...


@runtime_checkable
class TreeDomain(Protocol):
    """What a domain offers besides if its solutions have syntax trees whose likeness can be measured."""

    def tree_features(self, solution: str) -> Mapping[str, int] | None:
        """How often each kind of edge occurs in the tree of a solution, right or wrong; None if it cannot be parsed.

        An edge is named after its two ends, and after more where it matters. What is only written down differently has
        the same edges; literals are masked. Never raises; callers must not change the mapping.
        """
        ...


@runtime_checkable
class TokenBudget(Protocol):
    """What a domain has besides when its prompts keep to a limit in tokens.

    A domain knows no tokenizer, so whoever has the codec hands over a way to count, before the first prompt.
    """

    def count_tokens_with(self, tokens_of: Callable[[str], int]) -> None:
        """Take over `tokens_of`: a prompt's text to the number of tokens that the policy will see."""
        ...

    def cut_report(self) -> str | None:
        """One line on how many prompts were cut and what was left out, for people; None if none was."""
        ...
