"""What a kernel over solutions is. The trainer calls it; an objective sees its numbers and never a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from elite_lightning.types import Domain


class Similarity(ABC):
    """A kernel in [0, 1] over the solutions of a group, right ones and wrong ones alike.

    Two equal texts have exactly 1, and so have two responses without a solution (nothing extracted, or cut off by the
    length limit): having none is one way to answer. A solution and none have 0. Between two different texts a subclass
    decides.
    """

    def check(self, domain: Domain) -> None:  # noqa: B027 - most kernels take any domain
        """Raise a `UsageError` unless solutions of the domain can be compared. Called before the search."""

    @abstractmethod
    def compare(self, groups: Sequence[Sequence[str]], domain: Domain, device: torch.device) -> list[Tensor]:
        """Similarities within each group.

        The result for a step has to be a function of `groups` alone, to the last bit: a run that is stopped and goes on
        must take the same steps.

        Args:
            groups: Of each problem, its different solutions in order of appearance; may be one or none.
            domain: What the solutions are of.
            device: Where a model may compute.

        Returns:
            Of each group `[solutions, solutions]`, floating, symmetric, in [0, 1]; the diagonal does not matter.
        """

    def of(self, groups: Sequence[Sequence[str | None]], domain: Domain, device: torch.device) -> Tensor:
        """Similarities of all responses of a step.

        Args:
            groups: Of each problem, the solutions of its responses, None where there is none; groups of one size.
            domain: What the solutions are of.
            device: Where a model may compute.

        Returns:
            `[problems, group, group]`, float32 on the CPU, symmetric, in [0, 1], with ones on the diagonal.
        """
        different = [[text for text in dict.fromkeys(group) if text is not None] for group in groups]
        compared = self.compare(different, domain, device)
        spread = [_spread(*parts) for parts in zip(groups, different, compared, strict=True)]
        return torch.stack(spread) if spread else torch.zeros(0, 0, 0, dtype=torch.float32)


def _spread(group: Sequence[str | None], texts: Sequence[str], compared: Tensor) -> Tensor:
    """From a group's different texts to its responses: `[group, group]`."""
    table = torch.zeros(len(texts) + 1, len(texts) + 1, dtype=torch.float32)  # the last one: no solution
    table[:-1, :-1] = compared.detach().to(table)
    table.fill_diagonal_(1.0)
    places = {text: place for place, text in enumerate(texts)}
    rows = torch.tensor([len(texts) if text is None else places[text] for text in group], dtype=torch.int64)
    return table[rows[:, None], rows[None, :]]
