"""Demonstrations on random schemas, from which the bundled base model learns.

Half of them answer the plain prompt, mostly with the family's most usual solution, so that the base model
prefers one strategy without forgetting the others; a quarter name a target approach, and a quarter show a parent
of another kind as well, so that the search can ask for either.
"""

from __future__ import annotations

import random

from datamodules.pocketsql.questions import ask, families_for
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

    Raises:
        ValueError: If a share is outside [0, 1].
    """

    def __init__(self, plain_share: float = 0.5, usual_share: float = 0.75, second_share: float = 0.15) -> None:
        for name, share in (("plain_share", plain_share), ("usual_share + second_share", usual_share + second_share)):
            if not 0 <= share <= 1:
                raise ValueError(f"demonstrations.{name} must be within [0, 1], got {share}")
        self.plain_share, self.usual_share, self.second_share = plain_share, usual_share, second_share

    def demonstration(self, index: int, seed: int) -> Demonstration:
        """The demonstration at a place of the stream."""
        rng = random.Random(f"pocketsql-demonstration:{seed}:{index}")
        schema = random_schema(rng)
        roles = rng.choice(roles_of(schema))
        families = families_for(roles)
        weights = [LONG_FAMILY_WEIGHT if family in LONG_FAMILIES else 1 for family in families]
        question = ask(roles, rng.choices(families, weights)[0], "train", rng)
        solutions, draw = question.solutions, rng.random()
        if draw < self.plain_share:
            weights = self._weights(len(solutions))
            chosen = rng.choices(solutions, weights)[0]
            return Demonstration(compact_prompt(schema.as_schema(), question.text), chosen)
        chosen = rng.choice(solutions)
        parent = None
        if draw > (1 + self.plain_share) / 2:
            parent = rng.choice([solution for solution in solutions if solution != chosen])
        prompt = compact_prompt(schema.as_schema(), question.text, label_approach(chosen), parent)
        return Demonstration(prompt, chosen)

    def _weights(self, count: int) -> list[float]:
        rest = (1 - self.usual_share - self.second_share) / (count - 2)
        return [self.usual_share, self.second_share] + [rest] * (count - 2)
