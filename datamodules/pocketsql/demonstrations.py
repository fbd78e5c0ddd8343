"""Demonstrations on random schemas, from which the bundled base model learns.

Half of them answer the plain prompt, mostly with the family's most usual solution, so that the base model
prefers one strategy without forgetting the others; a quarter name a target approach, and a quarter show a parent
of another kind as well, so that the search can ask for either.
"""

from __future__ import annotations

import random

from datamodules.pocketsql.questions import ask, families_for, slip
from datamodules.pocketsql.random_schemas import random_schema
from datamodules.pocketsql.schema_text import roles_of
from datamodules.sources import Demonstration, DemonstrationSource
from elite_lightning.domains.sql.labeler import label_approach
from elite_lightning.domains.sql.prompts import compact_prompt

# Families with long solutions over several tables take more practice to learn than the others.
LONG_FAMILIES = frozenset({"without", "counted", "both", "linked", "every", "busiest", "total"})
LONG_FAMILY_WEIGHT = 2


class PocketDemonstrations(DemonstrationSource):
    """An endless, stateless stream: demonstration `index` is a function of the seed and of `index` alone.

    Args:
        plain_share: Share of demonstrations with the plain prompt; half of the rest name a target approach only,
            the other half show a parent too.
        usual_share: Probability of the family's most usual solution under the plain prompt.
        second_share: Probability of its second most usual solution; the others share what is left.
        slip_share: Share of demonstrations whose response is wrong in one detail, as it is in what people write. It
            decides how often the base model is right at the first try, while what it knows is decided by how long it
            trains; without slips both hang on one sharp stopping point.

    Raises:
        ValueError: If a share is outside [0, 1].
    """

    def __init__(
        self,
        plain_share: float = 0.5,
        usual_share: float = 0.75,
        second_share: float = 0.15,
        slip_share: float = 0.35,
    ) -> None:
        shares = {
            "plain_share": plain_share,
            "usual_share + second_share": usual_share + second_share,
            "slip_share": slip_share,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"demonstrations.{name} must be within [0, 1], got {share}")
        self.plain_share, self.usual_share = plain_share, usual_share
        self.second_share, self.slip_share = second_share, slip_share

    def demonstration(self, index: int, seed: int) -> Demonstration:
        """The demonstration at a place of the stream."""
        rng = random.Random(f"pocketsql-demonstration:{seed}:{index}")
        schema = random_schema(rng)
        roles = rng.choice(roles_of(schema))
        families = families_for(roles)
        weights = [LONG_FAMILY_WEIGHT if family in LONG_FAMILIES else 1 for family in families]
        question = ask(roles, rng.choices(families, weights)[0], "train", rng)
        plain, shows_parent = rng.random() < self.plain_share, rng.random() < 0.5
        index = self._choose(len(question.solutions), plain, rng)
        target = None if plain else label_approach(question.solutions[index])
        others = [solution for place, solution in enumerate(question.solutions) if place != index]
        parent = rng.choice(others) if shows_parent and not plain else None
        slips = rng.random() < self.slip_share
        response = slip(roles, question, index, rng) if slips else question.solutions[index]
        return Demonstration(compact_prompt(schema.as_schema(), question.text, target, parent), response)

    def _choose(self, count: int, plain: bool, rng: random.Random) -> int:
        """A solution's place: skewed towards the usual one under the plain prompt, even where it is asked for."""
        if not plain:
            return rng.randrange(count)
        rest = (1 - self.usual_share - self.second_share) / (count - 2)
        return rng.choices(range(count), [self.usual_share, self.second_share] + [rest] * (count - 2))[0]
