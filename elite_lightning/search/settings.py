"""What can be set about a search."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from elite_lightning.errors import UsageError
from elite_lightning.types import Cells, Sampling


@dataclass(frozen=True)
class SearchSettings:
    """How attempts are spent. All of it decides the archive, so all of it enters the fingerprint.

    Args:
        attempts_per_problem: Budget: attempts in all, divided by the number of problems. It is the seed samples and
            a number of rounds with `samples_per_target` each. Problems with little coverage get more than others.
        seed_samples: Plain samples of each problem, before any target is set.
        samples_per_target: Samples of one problem in one later round, all with the same target and parent.
        parent_probability: Chance that a round with a target also shows a parent, if the problem has an elite.
        problems_per_round: Most problems that one round serves, those with the least coverage first; it is never more
            than half of them. What a round finds out is known to the next one, so smaller rounds learn sooner.
        batch_problems: Problems that are generated together. A batch is also what a killed search loses at most
            (two, when it was killed while one was verified beside the next).
        plain_every: A problem without any elite gets a plain prompt in every `plain_every`-th round that serves it
            and a target in the others. 1 means always plain: no approach is known to fit it, and a policy may answer
            the plain prompt best.
        use_success_rates: Order the uncovered approaches by how often asking for them succeeded on other problems
            that have the same approaches covered; False orders them by how seldom they were tried, and nothing else.
        min_success_rate: An uncovered approach with a smaller estimated chance per attempt comes after the covered
            ones. Only with `use_success_rates`; 0 means never.
        sampling: How tokens are drawn.
        seed: Decides samples, ties and parents. Null takes the seed of the run, `seed_everything`, and 0 without one.
        cells: What tells the cells of a problem apart: `both` (approach and structure, as in EliteReplay), or
            `approach` or `structure` alone, for an ablation. The archive has one elite for each. Targets stay
            approaches in any case.

    Raises:
        UsageError: If a value is out of range.
    """

    attempts_per_problem: int = 24
    seed_samples: int = 8
    samples_per_target: int = 4
    parent_probability: float = 0.8
    problems_per_round: int = 256
    batch_problems: int = 64
    plain_every: int = 1
    use_success_rates: bool = True
    min_success_rate: float = 0.02
    sampling: Sampling = field(default_factory=Sampling)
    seed: int | None = None
    cells: Cells = "both"

    def __post_init__(self) -> None:
        """Check ranges."""
        for name in ("seed_samples", "samples_per_target", "problems_per_round", "batch_problems", "plain_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"search.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("parent_probability", "min_success_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"search.{name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.cells not in get_args(Cells):
            raise UsageError(f"search.cells must be one of {', '.join(get_args(Cells))}, got {self.cells!r}")
        if self.attempts_per_problem < self.seed_samples:
            raise UsageError(
                f"search.attempts_per_problem must be at least search.seed_samples ({self.seed_samples}), "
                f"got {self.attempts_per_problem}"
            )
        samples = self.samples_per_target
        rest = (self.attempts_per_problem - self.seed_samples) % samples
        if rest:
            below = self.attempts_per_problem - rest
            raise UsageError(
                f"search.attempts_per_problem must be search.seed_samples ({self.seed_samples}) and a multiple of "
                f"search.samples_per_target ({samples}), got {self.attempts_per_problem}; "
                f"take {below} or {below + samples}"
            )

    def flat(self) -> dict[str, Any]:
        """All settings by dotted name, such as `sampling.temperature`.

        `cells` is left out where it is `both`, as it was before there was a choice: journals and archives of earlier
        releases stay valid.
        """
        settings = asdict(self)
        if self.cells == "both":
            del settings["cells"]
        return _flat(settings)

    def fingerprint(self, method: str, labeler: str | None = None) -> str:
        """Hash of the settings and of the way of searching that they belong to.

        Args:
            method: Name of the way of searching.
            labeler: Fingerprint of the labeler; None where the domain names approaches.
        """
        content = [method, self.flat(), *([] if labeler is None else [labeler])]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat
