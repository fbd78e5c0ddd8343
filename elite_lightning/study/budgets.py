"""What the arms of a study have spent: per run, with the share of a search that was made once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from elite_lightning.budget import budget_of, mean_budget
from elite_lightning.run_folder import RunFolder
from elite_lightning.study.plan import StudyPlan

_SECONDS = "Seconds are wall-clock with {} runs at once on one machine, and do not compare methods."
_COLUMNS = (
    ("search: responses", "search", "generations"),
    ("training: responses", "train", "generations"),
    ("replayed", "train", "replayed_responses"),
    ("verifier calls", "both", "verifier_calls"),
    ("tokens sampled", "both", "generated_tokens"),
    ("search s", "search", "seconds"),
    ("training s", "train", "seconds"),
)


def _count(number: float | None) -> str:
    return "?" if number is None else f"{number:,.0f}"


def _short(number: float | None) -> str:
    """Three digits and a unit, for a terminal."""
    if number is None or number < 1000:
        return _count(number)
    return f"{number / 1000:.3g}k" if number < 999_500 else f"{number / 1e6:.3g}M"


def budgets_of(plan: StudyPlan) -> dict[str, dict[str, dict[str, float | None]]]:
    """What a run of each arm has spent, as a mean over the seeds.

    A shared search counts in whole for every arm that starts from it: it is what one run of that arm would need.

    Args:
        plan: A study whose runs are finished.

    Returns:
        Arm to part (`search`, `train`, `evaluate`) to what was spent; see `elite_lightning.budget`. None where an
        earlier release did not count.
    """
    found = {}
    for name, arm in plan.arms.items():
        spent = mean_budget([plan.run_dir(name, seed) for seed in plan.seeds])
        if arm.search is not None:
            spent["search"] = dict(budget_of(RunFolder(plan.search_dir(arm.search))).to_dict()["search"])
        found[name] = spent
    return found


def remark(results: Mapping[str, Any]) -> str:
    """Which arms sample as much as others in training and in their searches, and which do not.

    Args:
        results: A study's results, budgets included.
    """
    trained = {name: arm for name, arm in results["arms"].items() if arm["budget"]["train"]["optimizer_steps"]}
    lines = [
        _grouped(what, {arm["label"]: _value(arm["budget"], part, "generations") for arm in trained.values()})
        for what, part in (("In training", "train"), ("In all, its search included", "both"))
    ]
    return " ".join([*lines, _SECONDS.format(results["settings"]["parallel"])])


def _grouped(what: str, generations: Mapping[str, float | None]) -> str:
    groups: dict[float | None, list[str]] = {}
    for label, number in generations.items():
        groups.setdefault(number, []).append(label)
    if len(groups) == 1:
        return f"{what}, a run of every arm samples {_count(next(iter(groups)))} responses."
    said = "; ".join(f"{', '.join(labels)} {_count(number)}" for number, labels in groups.items())
    return f"{what}, runs do not sample equally many responses: {said}."


def markdown_of_budgets(results: Mapping[str, Any]) -> str:
    """The table of budgets in Markdown.

    Args:
        results: A study's results, budgets included.
    """
    head = ["arm", *(name for name, _, _ in _COLUMNS)]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * len(_COLUMNS)}"]
    lines += [f"| {arm['label']} | {' | '.join(_cells(arm['budget']))} |" for arm in results["arms"].values()]
    return "\n".join(lines) + f"\n\n{remark(results)}\n"


def show_budgets(results: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the table of budgets.

    Args:
        results: A study's results, budgets included.
        console: Where to print; the terminal if None.
    """
    console = console or Console()
    title = "Spent by one run: responses sampled and replayed, verifier calls, tokens, seconds"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("arm", no_wrap=True)
    for name in ("search", "training", "replayed", "calls", "tokens", "search s", "train s"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in results["arms"].values():
        table.add_row(arm["label"], *_cells(arm["budget"], _short))
    console.print(table)
    console.print(remark(results), highlight=False)


def _cells(
    budget: Mapping[str, Mapping[str, float | None]], write: Callable[[float | None], str] = _count
) -> list[str]:
    return [write(_value(budget, part, key)) for _, part, key in _COLUMNS]


def _value(budget: Mapping[str, Mapping[str, float | None]], part: str, key: str) -> float | None:
    if part != "both":
        return budget[part][key]
    values = [budget[name][key] for name in ("search", "train")]
    return None if None in values else sum(value for value in values if value is not None)
