"""The gradient of each term of the loss apart: how large it is, and whether the terms pull the same way.

Terms are accumulated one after the other into the same gradient (`update.py`), so that of a term is the difference of
what stands there after it and before it. Nothing is written into the gradient: an update is the same, to the last bit,
whether it is measured or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


class TermGradients:
    """Norms of the weighted terms' gradients over all ranks, and the angle between them.

    Costs a copy of the whole gradient, in its own type, while there is more than one term, and where ranks hold
    gradients of their own a further exchange for each term but the last. The difference is taken in float32; but where
    gradients are kept in 16 bits, what a small term adds to a large one is rounded before it can be seen here.

    Args:
        parameters: What has a gradient, in the same order on every rank.
        average: Mean over ranks of a tensor of which each has its own; None where every backward pass exchanges
            gradients at once, as sharded weights do, and with a single rank.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], average: Callable[[Tensor], Tensor] | None = None) -> None:
        self._parameters, self._average = list(parameters), average
        self._before: list[Tensor | None] = [None] * len(self._parameters)
        self._norm_before = 0.0
        self.metrics: dict[str, float] = {}

    def note(self, name: str, is_last: bool) -> None:
        """Take down the gradient of a term whose passes have just ended.

        From the second term on, `gradient_cosine` is that between it and all earlier ones together.

        Args:
            name: The term's.
            is_last: Whether no term follows, so that gradients have been exchanged.
        """
        squares: list[Tensor] = []
        sums: list[Tensor] = []
        dots: list[Tensor] = []
        for index, parameter in enumerate(self._parameters):
            now, before = self._gradient(parameter, is_last), self._before[index]
            part = now.float() if before is None else now.float() - before.float()
            squares.append(_whole(part.square().sum()))
            if before is not None:
                dots.append(_whole((part * before.float()).sum()))
            if not is_last:
                self._before[index] = now
                sums.append(_whole(now.float().square().sum()))
        norm = _total(squares) ** 0.5
        self.metrics[f"gradient_norm_{name}"] = norm
        if dots:
            lengths = norm * self._norm_before
            self.metrics["gradient_cosine"] = _total(dots) / lengths if lengths > 0 else 0.0
        self._norm_before = _total(sums) ** 0.5

    def _gradient(self, parameter: nn.Parameter, is_exchanged: bool) -> Tensor:
        """The gradient over all ranks so far; a copy unless it is the final one."""
        if parameter.grad is None:
            # Ranks have to exchange equally much, also those whose rows did not reach this parameter.
            gradient = torch.zeros_like(parameter)
        elif is_exchanged:
            return parameter.grad.detach()
        else:
            gradient = parameter.grad.detach().clone()
        return gradient if self._average is None or is_exchanged else self._average(gradient)


def _whole(scalar: Tensor) -> Tensor:
    """A scalar over all ranks, also where each holds a shard of what it was computed from."""
    return scalar.full_tensor() if hasattr(scalar, "full_tensor") else scalar


def _total(scalars: list[Tensor]) -> float:
    """The sum of scalars; the device is waited for once."""
    return float(torch.stack(scalars).cpu().double().sum()) if scalars else 0.0
