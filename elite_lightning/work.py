"""What a DataModule hands to the LightningModule: the work of one rank in one step. No tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elite_lightning.types import Cell, Problem


@dataclass(frozen=True, slots=True)
class Numbered:
    """A problem with its number.

    Args:
        index: Its place in the global batch (further problems of a step are numbered on) or in the data set, the same
            for every number of ranks.
        problem: The problem.
    """

    index: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """One response to imitate.

    Args:
        prompt: Prompt text.
        response: Response text.
        weight: Relative weight in the replay loss.
        token_ids: The response's recorded tokens, end-of-sequence included; None encodes `response`.
        base_logprobs: Log-probability of each of them under the policy as it was before training; None if not known.
        problem_id: The problem that it solves; None for a demonstration.
        cell: Where the archive has it; None for a demonstration.
    """

    prompt: str
    response: str
    weight: float = 1.0
    token_ids: tuple[int, ...] | None = None
    base_logprobs: tuple[float, ...] | None = None
    problem_id: str | None = None
    cell: Cell | None = None


class StepBatch:
    """What one rank works on in one optimizer step.

    A plain class on purpose: Lightning walks into lists and dataclasses to look for tensors, and there are none.

    Args:
        chunks: This rank's problems in the chunks that they are sampled in, numbered within the global batch.
        replay: This rank's items to imitate.
        problems: Problems of the step, over all ranks.
        further: This rank's chunks of as many problems again, and again, numbered on. Problems are drawn when they are
            asked for, and count as used from then on, also when the run is continued; so all ranks have to ask equally
            often.
    """

    def __init__(
        self,
        chunks: list[list[Numbered]],
        replay: list[ReplayItem],
        problems: int = 0,
        further: Iterable[list[list[Numbered]]] = (),
    ) -> None:
        self.chunks = chunks
        self.replay = replay
        self.problems = problems
        self.further = further


class EvalBatch:
    """Some problems to evaluate together, numbered within their data set.

    Args:
        chunk: The problems and their numbers.
    """

    def __init__(self, chunk: list[Numbered]) -> None:
        self.chunk = chunk
