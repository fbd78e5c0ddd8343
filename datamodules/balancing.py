"""Over what replay is balanced: which elites make a group, for the sampler that draws groups evenly."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, Protocol

from elite_lightning.types import Cells, Elite

Balancing = Literal["problem_and_cell", "cell", "none"]
"""Over what replay of an archive is balanced; see `EliteDataModule`."""


class FrozenElites(Protocol):
    """What replay needs from an archive."""

    @property
    def problem_ids(self) -> tuple[str, ...]:
        """Sorted ids of the problems that have an elite."""
        ...

    def elites(self, problem_id: str) -> tuple[Elite, ...]:
        """The problem's elites, sorted by cell; samples may share a cell."""
        ...

    @property
    def told_apart_by(self) -> Cells:
        """What tells cells apart."""
        ...


Place = tuple[str, int]
"""Where an elite is in an archive: its problem, and its index among the problem's elites."""


def groups_of(archive: FrozenElites, balancing: Balancing) -> dict[str, list[Place]]:
    """The groups that are drawn evenly, with the places of the elites that are drawn evenly within each.

    Args:
        archive: Not empty of elites in any problem that it names.
        balancing: What makes a group: `problem_and_cell` a problem, `cell` a cell over all problems, and with `none`
            all elites are one group.

    Returns:
        By the group's name, in the archive's order.
    """
    groups: dict[str, list[Place]] = {}
    for problem_id in archive.problem_ids:
        for index, elite in enumerate(archive.elites(problem_id)):
            groups.setdefault(_group(elite, balancing, archive.told_apart_by), []).append((problem_id, index))
    return groups


def _group(elite: Elite, balancing: Balancing, cells: Cells) -> str:
    if balancing == "problem_and_cell":
        return elite.problem_id
    return json.dumps(elite.cell.projected(cells)) if balancing == "cell" else "all"


def made_from(archive: FrozenElites, balancing: Balancing) -> str:
    """Hash of what the names and sizes of the groups do not tell: what each elite is. The names tell the balancing.

    Empty for `problem_and_cell`, which was there first: positions that an earlier release saved stay valid.

    Args:
        archive: See `groups_of`.
        balancing: See `groups_of`.
    """
    if balancing == "problem_and_cell":
        return ""
    elites = [[i, *elite.cell, elite.response] for i in archive.problem_ids for elite in archive.elites(i)]
    return hashlib.sha256(json.dumps(elites).encode()).hexdigest()
