"""The loaders: which problems and which replay items come next, on which rank.

The loaders are plain iterables of a few counters. All ranks hold the same counters and draw the same global batch;
the rank enters only where a batch is dealt. So the state that one rank saves is right for every rank.

Problems are dealt in chunks, and a chunk is what is sampled together. Its composition does not depend on the number
of ranks, so neither does what is drawn for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from elite_lightning.types import Problem
from elite_lightning.work import EvalBatch, Numbered, StepBatch


def deal(problems: Sequence[Problem], size: int, rank: int, world_size: int, first: int = 0) -> list[list[Numbered]]:
    """Cut problems into chunks and deal these to the ranks in turn.

    Args:
        problems: All problems, the same on every rank.
        size: Problems in a chunk; the last one may be smaller.
        rank: This process.
        world_size: All processes.
        first: Number of the first problem.

    Returns:
        This rank's chunks; none when there are fewer chunks than ranks.
    """
    numbered = [Numbered(i, problem) for i, problem in enumerate(problems, first)]
    return [numbered[i : i + size] for i in range(0, len(numbered), size)][rank::world_size]


def deal_rounds(
    draw: Callable[[], Sequence[Problem]], size: int, rank: int, world_size: int
) -> Iterator[list[list[Numbered]]]:
    """Deal one draw of problems after the other, each when it is asked for, numbered on from draw to draw.

    Args:
        draw: The next problems, the same on every rank.
        size: See `deal`, also for the others.
        rank: This process.
        world_size: All processes.

    Yields:
        This rank's chunks of a draw.
    """
    first = 0
    while True:
        problems = draw()
        yield deal(problems, size, rank, world_size, first)
        first += len(problems)


class StepLoader:
    """The training loader: one global batch a step, dealt to ranks, resumable to the very next draw.

    It has a length, so Lightning does not fetch ahead and the saved state is that of the running step.

    Args:
        steps: Optimizer steps until the loader ends.
        draw: Makes the share of this rank in the next batch.
        stateful: Objects with `state_dict` and `load_state_dict`, by name: the streams behind `draw`.
    """

    def __init__(self, steps: int, draw: Callable[[], StepBatch], stateful: dict[str, Any]) -> None:
        self.steps = steps
        self.position = 0
        self._draw = draw
        self._stateful = stateful

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[StepBatch]:
        while True:
            # Counted before the yield: a checkpoint written during this step must point at the next one.
            self.position += 1
            yield self._draw()
            if self.position % self.steps == 0:
                return

    def state_dict(self) -> dict[str, Any]:
        """Position and stream counters: plain numbers, equal on all ranks."""
        return {"position": self.position, **{name: s.state_dict() for name, s in self._stateful.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the step that `state` was saved in."""
        self.position = state["position"]
        for name, stream in self._stateful.items():
            stream.load_state_dict(state[name])


class EvalLoader:
    """The evaluation loader: each problem once, on one rank.

    Ranks may have different numbers of chunks; nothing in an evaluation step waits for another rank. One without any
    gets an empty chunk: Lightning would leave out its end of the evaluation, which collects from all ranks.

    Args:
        chunks: This rank's chunks.
    """

    def __init__(self, chunks: list[list[Numbered]]) -> None:
        self._chunks = chunks or [[]]

    def __len__(self) -> int:
        return len(self._chunks)

    def __iter__(self) -> Iterator[EvalBatch]:
        return iter([EvalBatch(chunk) for chunk in self._chunks])
