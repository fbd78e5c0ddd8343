"""Dynamic sampling: rounds of responses until a step has enough groups that can move the policy.

It decides which groups a step is trained on. How they are sampled and judged, and where problems come from, is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elite_lightning.rollouts import Group


@dataclass(frozen=True)
class DynamicSampling:
    """Train on groups with a signal alone, and sample further problems until the step has enough of them.

    A group has a signal if the objective gives any of its responses an advantage other than 0: under SetPO that may be
    a group that is all right or all wrong, unless its gate is `mixed_groups_only`, which with DAPO it should be.

    A round has as many problems as the step, and they are the next ones of the same order, so that none is asked before
    its turn. Of more groups than the step needs, the first ones by number are kept; the others are lost. If groups are
    still missing after the last round, the step is trained on fewer, and its policy term is the mean over these.

    What is left out enters neither the policy term nor its denominator, and no KL penalty acts on it.

    Source: Yu 2025, arXiv 2503.14476 (DAPO), section 3.2. The paper keeps groups with `0 < correct < G`, verl's code
    those whose rewards differ; for right and wrong, these and GRPO's advantages say the same. verl's rounds have a size
    of their own (three times the step in its recipe), and its limit, `max_num_gen_batches`, ends the run with an error.

    Args:
        max_rounds: Most rounds of a step, the first one included; 1 leaves groups out and samples no others.

    Raises:
        ValueError: If there would be no round.
    """

    max_rounds: int = 10

    def __post_init__(self) -> None:
        """Refuse a step without a round."""
        if self.max_rounds < 1:
            raise ValueError(f"model.dynamic_sampling.max_rounds must be at least 1, got {self.max_rounds}")


@dataclass(frozen=True)
class Round:
    """One round of sampling on this rank.

    Args:
        groups: Judged groups, by number.
        advantages: `[problems, group]`.
        seconds: What of the round took how long.
    """

    groups: Sequence[Group]
    advantages: Tensor
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Sampled:
    """All that a step sampled on this rank, and what of it the step is trained on.

    Args:
        rounds: The rounds, one at least.
        chosen: Numbers of the groups that the step is trained on, over all ranks; None is all.
        missing: Groups that the step is short of, over all ranks.
    """

    rounds: Sequence[Round]
    chosen: frozenset[int] | None = None
    missing: int = 0

    @property
    def groups(self) -> list[Group]:
        """All groups, by number."""
        return [group for part in self.rounds for group in part.groups]

    @property
    def advantages(self) -> Tensor:
        """Of all groups, `[problems, group]`; empty when there are none."""
        parts = [part.advantages for part in self.rounds if part.groups]
        return torch.cat(parts) if parts else torch.zeros(0, 0)

    @property
    def kept_groups(self) -> list[Group]:
        """The groups that the step is trained on, by number."""
        groups = self.groups
        return [groups[i] for i in self._kept()]

    @property
    def kept_advantages(self) -> Tensor:
        """Of the kept groups, `[problems, group]`; empty when there are none."""
        return self.advantages[torch.tensor(self._kept(), dtype=torch.int64)]

    @property
    def seconds(self) -> dict[str, float]:
        """What took how long, over all rounds."""
        return {name: sum(part.seconds[name] for part in self.rounds) for name in self.rounds[0].seconds}

    def _kept(self) -> list[int]:
        return [i for i, group in enumerate(self.groups) if self.chosen is None or group.index in self.chosen]


def sample_until_full(rounds: Iterable[Round], problems: int, reduce_sum: Callable[[Tensor], Tensor]) -> Sampled:
    """Take rounds until enough groups have a signal, over all ranks.

    All ranks learn of all groups, so they take equally many rounds and choose the same groups, however these are dealt.

    Args:
        rounds: This rank's part of each round, lazily; groups are numbered on from round to round.
        problems: Groups that the step needs, and problems of a round, over all ranks.
        reduce_sum: Element-wise sum over ranks; called once a round on every rank.
    """
    taken: list[Round] = []
    with_signal: list[int] = []
    for part in rounds:
        marks = reduce_sum(_marks(part, len(taken) * problems, problems))
        with_signal += [len(taken) * problems + i for i in marks.nonzero().flatten().tolist()]
        taken.append(part)
        if len(with_signal) >= problems:
            break
    chosen = frozenset(with_signal[:problems])
    return Sampled(taken, chosen, missing=problems - len(chosen))


def _marks(part: Round, first: int, problems: int) -> Tensor:
    """Float32 `[problems]`: 1 for each problem of the round whose group, on this rank, has a signal."""
    marks = torch.zeros(problems)
    for group, has_signal in zip(part.groups, (part.advantages != 0).any(dim=-1).tolist(), strict=True):
        marks[group.index - first] = float(has_signal)
    return marks
