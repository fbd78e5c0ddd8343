"""Arithmetic as a problem source, with demonstrations: the smallest complete data set, for trying things out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property

from datamodules.sources import Demonstration, DemonstrationSource, ProblemSource
from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Problem


class ArithmeticSource(ProblemSource):
    """Expressions to rewrite, different ones in each split.

    Args:
        train_problems: Problems to search and to train on.
        validation_problems: Problems to tune on.
        test_problems: Problems to report on.
        seed: Of the numbers.

    Raises:
        ValueError: If there are fewer than 1 problem to train on.
    """

    def __init__(
        self, train_problems: int = 64, validation_problems: int = 16, test_problems: int = 16, seed: int = 0
    ) -> None:
        if train_problems < 1:
            raise ValueError(f"source.train_problems must be at least 1, got {train_problems}")
        made = make_problems(train_problems + validation_problems + test_problems, seed)
        self._train = made[:train_problems]
        self._validation = made[train_problems : train_problems + validation_problems]
        self._test = made[train_problems + validation_problems :]

    @cached_property
    def domain(self) -> ArithmeticDomain:
        """The arithmetic domain."""
        return ArithmeticDomain()

    def train(self) -> Sequence[Problem]:
        """The first problems."""
        return self._train

    def validation(self) -> Sequence[Problem]:
        """The next ones."""
        return self._validation

    def test(self) -> Sequence[Problem]:
        """The last ones."""
        return self._test


class ArithmeticDemonstrations(DemonstrationSource):
    """Rewritten expressions, mostly as they stand.

    Args:
        usual_share: Share of answers that repeat the expression.
    """

    def __init__(self, usual_share: float = 0.7) -> None:
        self.usual_share = usual_share
        self._domain = ArithmeticDomain()

    def demonstration(self, index: int, seed: int) -> Demonstration:
        """The demonstration of this number."""
        draws = random.Random(derive_seed(seed, "arithmetic demonstration", index))
        a, b, c, d = draws.sample(range(2, 10), 4)
        problem = Problem("", "", {"expression": f"{a} * ({b} + {c} + {d})"})
        rewritten = {
            "direct": f"{a} * ({b} + {c} + {d})",
            "commuted": f"({b} + {c} + {d}) * {a}",
            "grouped": f"{a} * ({b} + {c}) + {a} * {d}",
            "expanded": f"{a} * {b} + {a} * {c} + {a} * {d}",
        }
        form = "direct" if draws.random() < self.usual_share else draws.choice(list(rewritten))
        target = form if draws.random() < 0.5 else None
        return Demonstration(self._domain.prompt(problem, target), rewritten[form])
