"""What IID replay replays: the correct ones among plain samples, weighted by how they are kept.

The file of an archive has one line for each cell, which cannot say how often the policy wrote what. So a weighting is
not a number beside a line but a rule of what is kept, and replay draws evenly from what a problem has, as ever:

- `frequency` keeps every correct sample, repeats included: the target is `pi_base(y | x, correct)`;
- `text` keeps each text once (the same but for white space), the shortest of each: uniform over texts;
- `cell` keeps the shortest of each cell, as EliteReplay does: uniform over cells.

No weight in the loss is needed, a problem with many correct samples has no more say than another, and draws of one
problem's samples are balanced at any time. The archive still asks the verifier itself; file, manifest, hash and freeze
are those of every archive.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elite_lightning.archive import EliteArchive, Outcome, Slot, enter
from elite_lightning.archive_file import SAMPLES_FORMAT, read_archive
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Cells, Elite, FinishReason, Judgement, Problem

Weighting = Literal["frequency", "text", "cell"]
"""Over what replay of plain samples is uniform within a problem."""


@dataclass(frozen=True)
class NearPerfect:
    """Problems that a policy solves almost always: DPH-RL's set to stay near the base policy on.

    Args:
        least: So many correct ones, at least,
        of: among the first so many samples of a problem. What our own verifier could not judge is no sample here.

    Raises:
        ValueError: If `least` does not lie in [1, `of`].
    """

    least: int = 6
    of: int = 8

    def __post_init__(self) -> None:
        """Check ranges."""
        if not 1 <= self.least <= self.of:
            raise ValueError(f"near_perfect.least must lie between 1 and near_perfect.of={self.of}, got {self.least}")

    def __str__(self) -> str:
        return f"{self.least} of {self.of}"


@dataclass(frozen=True)
class Keeping:
    """What is kept of the correct samples.

    Args:
        weighting: The rule.
        limits: Most items that a problem keeps; a problem that is not named keeps none. None is no limit.
        seed: Decides which items are kept.
        near_perfect: Only problems that fit it keep anything; None is no condition.
    """

    weighting: Weighting = "frequency"
    limits: Mapping[str, int] | None = None
    seed: int = 0
    near_perfect: NearPerfect | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """What an archive's manifest says about it."""
        limits = "none"
        if self.limits is not None:
            listed = repr((self.seed, sorted(self.limits.items())))
            limits = hashlib.sha256(listed.encode()).hexdigest()
        chosen = {} if self.near_perfect is None else {"near_perfect": f"{self.near_perfect}"}
        return {"weighting": self.weighting, "limits": limits, **chosen}


def limits_of(path: str | Path, expected: Mapping[str, str]) -> dict[str, int]:
    """How many items another run's archive holds for each problem, to keep no more.

    Args:
        path: The other archive, such as `runs/elite/archive.jsonl`.
        expected: Fingerprints that must agree, by name.

    Raises:
        ArchiveError: If the file cannot be used, or was made for something else.
    """
    counts: dict[str, int] = {}
    for elite in read_archive(Path(path), expected)[0]:
        counts[elite.problem_id] = counts.get(elite.problem_id, 0) + 1
    return counts


class SampleArchive(EliteArchive):
    """An archive that keeps correct samples by another rule than one a cell.

    What `insert` returns follows the rule of the cells all the same, so that one journal serves every weighting.

    Where only near-perfect problems keep anything, the others are left out when the archive is frozen.

    With limits, a problem that has more items when the archive is frozen keeps a random choice of them, drawn without
    replacement. One that has fewer keeps what it has: replay draws evenly from a problem's items, so repeats drawn to
    fill it up would add noise and nothing else.

    Args:
        judge: See `EliteArchive`.
        encode: See `EliteArchive`.
        fingerprints: See `EliteArchive`.
        keeping: What is kept.
        cells: See `EliteArchive`.
    """

    file_format = SAMPLES_FORMAT

    def __init__(
        self,
        judge: Callable[[Problem, str], Judgement],
        encode: Callable[[str], Sequence[int]],
        fingerprints: Mapping[str, str],
        keeping: Keeping,
        cells: Cells = "both",
    ) -> None:
        super().__init__(judge, encode, fingerprints, cells)
        self._keeping = keeping
        self._shortest: dict[str, dict[Slot, Elite]] = {}
        self._judged: defaultdict[str, list[bool]] = defaultdict(list)

    def freeze(self) -> None:
        """End all inserts, and keep what condition and limits leave; a second call changes nothing."""
        chosen = self._keeping.near_perfect
        if not self.frozen and chosen is not None:
            solved = [i for i in self.problem_ids if sum(self._judged[i][: chosen.of]) >= chosen.least]
            self._elites = {problem_id: self._elites[problem_id] for problem_id in solved}
        if not self.frozen and self._keeping.limits is not None:
            cut = {i: self._chosen(i, self._keeping.limits.get(i, 0)) for i in self.problem_ids}
            self._elites = {problem_id: slots for problem_id, slots in cut.items() if slots}
        super().freeze()

    def elites(self, problem_id: str) -> tuple[Elite, ...]:
        """What is kept of the problem, sorted by cell and response, repeats included."""
        return tuple(sorted(super().elites(problem_id), key=lambda elite: (elite.cell, elite.response)))

    def insert(self, problem: Problem, response: str, finish_reason: FinishReason = FinishReason.STOP) -> Outcome:
        """See `EliteArchive.insert`."""
        outcome = super().insert(problem, response, finish_reason)
        # What hit the length limit goes through `reject`.
        return outcome if finish_reason is FinishReason.LENGTH else self._note(problem, outcome)

    def reject(self, problem: Problem, outcome: Outcome) -> Outcome:
        """See `EliteArchive.reject`."""
        return self._note(problem, super().reject(problem, outcome))

    def _note(self, problem: Problem, outcome: Outcome) -> Outcome:
        if outcome is not Outcome.VERIFIER_FAILURE:
            self._judged[problem.id].append(outcome.correct)
        return outcome

    def _file(self, elite: Elite) -> Outcome:
        enter(self._elites.setdefault(elite.problem_id, {}), self._slot(elite), elite)
        return enter(self._shortest.setdefault(elite.problem_id, {}), (self._place(elite),), elite)

    def _slot(self, elite: Elite) -> Slot:
        if self._keeping.weighting == "cell":
            return (self._place(elite),)
        if self._keeping.weighting == "text":
            return (self._place(elite), " ".join(elite.response.split()))
        return (self._place(elite), elite.response, self.attempts)

    def _chosen(self, problem_id: str, limit: int) -> dict[Slot, Elite]:
        slots = sorted(self._elites[problem_id])
        if len(slots) > limit:
            slots = random.Random(derive_seed(self._keeping.seed, "keep", problem_id)).sample(slots, limit)
        return {slot: self._elites[problem_id][slot] for slot in slots}
