"""What the figures say, in words that follow from them: no claim without an interval that bears it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from elite_lightning.html.estimates import Estimate, Estimates

NAMES = {
    "pass": "pass@{k}, the chance that at least one of {k} samples is right",
    "strategies": "distinct correct strategies in {k} samples",
    "either": "either@{k}, the chance that {k} samples answer an interpretation",
    "both": "both@{k}, the chance that {k} samples answer every interpretation",
}


def described(name: str) -> str:
    """A figure's name in words, such as `strategies@128`."""
    kind, k = name.split("@")
    if name == "pass@1":
        return "pass@1, the chance that one sample is right"
    return NAMES[kind].format(k=k) if kind in NAMES else name


class Reading(NamedTuple):
    """One sentence in parts.

    Args:
        lead: What is compared, and the reference's figure.
        parts: Verdict, such as `more`, and the arms that it holds for with their differences.
    """

    lead: str
    parts: Sequence[tuple[str, str]]

    def __str__(self) -> str:
        return f"{self.lead}; {'; '.join(f'{verdict}: {arms}' for verdict, arms in self.parts)}."


def reading(name: str, estimates: Estimates, labels: Mapping[str, str]) -> Reading | None:
    """One sentence: which arms have more of a figure than the reference, which less, and which cannot be told apart.

    Args:
        name: Of the figure.
        estimates: All figures.
        labels: Name of each arm to what people call it.

    Returns:
        The sentence; None if there is nothing to compare.
    """
    reference = estimates.reference
    base = estimates.figures.get(reference or "", {}).get(name)
    if reference is None or base is None:
        return None
    found: dict[str, list[str]] = {"more": [], "less": [], "not told apart": []}
    for arm, label in labels.items():
        difference = estimates.differences.get(arm, {}).get(name)
        if difference is not None and arm != reference:
            found[verdict(difference)].append(f"{label} ({signed(difference)})")
    subject = described(name)
    lead = f"{subject[0].upper()}{subject[1:]}: {labels[reference]} has {plain(base)}"
    return Reading(lead, [(how, ", ".join(arms)) for how, arms in found.items() if arms])


def verdict(difference: Estimate) -> str:
    """What an interval of a difference allows to say."""
    low, high = difference.widest
    if low > 0:
        return "more"
    return "less" if high < 0 else "not told apart"


def plain(estimate: Estimate) -> str:
    """Mean and interval."""
    return "{} [{}, {}]".format(*numbers(estimate.mean, *estimate.widest))


def signed(estimate: Estimate) -> str:
    """Mean and interval of a difference, with signs."""
    return "{} [{}, {}]".format(*numbers(estimate.mean, *estimate.widest, sign="+"))


def numbers(*values: float, sign: str = "") -> list[str]:
    """Two decimals; three for all where one of them would look like 0 and is not."""
    digits = 3 if any(0 < abs(value) < 0.005 for value in values) else 2
    return [f"{value:{sign}.{digits}f}" for value in values]
