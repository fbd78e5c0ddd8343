"""The page's pictures, made from arms and run folders: what was kept, both figures over k, training, and the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from elite_lightning.errors import UsageError
from elite_lightning.html.arms import Arm
from elite_lightning.html.curves import Curve, coverage, curve_of, journals_of, read_metrics
from elite_lightning.html.estimates import Estimates, mean_over_runs, with_interval
from elite_lightning.html.pictures import Picture, Style, draw_curves, draw_kept, draw_over_k, picture, style_of
from elite_lightning.html.sources import Sources
from elite_lightning.metrics import powers_of_two
from elite_lightning.run_folder import RunFolder

TRAINING = (
    ("train/correct", "correct", "Correct responses in training", "share of the step's responses"),
    ("train/entropy", "entropy", "Entropy", "nats a token"),
    ("train/loss_replay", "replay", "Replay loss", "the replay term's loss; for EliteReplay the NLL, nats a token"),
    ("train/gradient_norm", "gradient", "Gradient norm", "L2, before clipping"),
)
"""Metric, name of the picture, title, and unit. docs/metrics.md says more of each."""


class Canvas(NamedTuple):
    """What all pictures of a page share.

    Args:
        labels: Name of each arm to what people call it, in the order of the legend.
        styles: Name of each arm to its style.
        folder: Where the PNGs go.
        sources: Names the files.
    """

    labels: Mapping[str, str]
    styles: Mapping[str, Style]
    folder: Path
    sources: Sources

    @classmethod
    def of(cls, arms: Sequence[Arm], folder: Path, sources: Sources) -> Canvas:
        """Give each arm a style; the base policy has the first one, whether it is there or not."""
        trained = [arm.name for arm in arms if not arm.is_base]
        styles = {name: style_of(number) for number, name in enumerate(trained, start=1)}
        styles |= {arm.name: style_of(0) for arm in arms if arm.is_base}
        return cls({arm.name: arm.label for arm in arms}, styles, folder, sources)

    def names(self, paths: Iterable[Path]) -> list[str]:
        """Names of the files behind a picture, which go on the page's list."""
        paths = list(paths)
        self.sources.note(paths)
        return [self.sources.name_of(path) for path in paths]


def kept_picture(
    arms: Sequence[Arm], estimates: Estimates, canvas: Canvas, largest: int, files: Sequence[Path]
) -> Picture | None:
    """Accuracy beside diversity, an arm a row; None if no arm was measured.

    Args:
        arms: All arms.
        estimates: All figures.
        canvas: What the pictures share.
        largest: The largest k.
        files: What the figures come from.
    """
    names = dict.fromkeys(("pass@1", f"strategies@{largest}"))
    panels = {name: {a: f[name] for a, f in estimates.figures.items() if name in f} for name in names}
    panels = {("right at once" if name == "pass@1" else "kept") + f"\n{name}": of for name, of in panels.items() if of}
    if not panels:
        return None
    line = next((arm.name for arm in arms if arm.is_base), estimates.reference or "")
    labels = {name: label for name, label in canvas.labels.items() if name in estimates.figures}
    figure = draw_kept(panels, labels, canvas.styles, line)
    wide = any(e.with_seeds for figures in estimates.figures.values() for e in figures.values())
    caption = (
        f"Left how often one sample is right, right how many distinct correct strategies {largest} samples hold. Bars: "
        f"{estimates.level:.0%} intervals over problems{', thin: over problems and seeds' if wide else ''}. "
        f"Dotted: {canvas.labels.get(line, 'none')}."
    )
    return picture(figure, "kept", "What each method keeps", caption, canvas.folder, canvas.names(files))


def over_k_pictures(arms: Sequence[Arm], estimates: Estimates, canvas: Canvas) -> list[Picture]:
    """pass@k and strategies@k over k, and either@k and both@k where there are ambiguous problems."""
    measured = [arm for arm in arms if arm.counts]
    most = [max(counts.samples for counts in table.values()) for arm in measured for table in arm.counts]
    if not most or min(most) < 1:
        return []
    ks = powers_of_two(min(most))
    tables = {arm.name: mean_over_runs(arm, ks) for arm in measured}
    labels = {arm.name: arm.label for arm in measured}
    pictures = []
    for kind, what in (("pass", "pass@k"), ("strategies", "distinct correct strategies"), ("either", ""), ("both", "")):
        of_arms = {
            name: [with_interval(table[f"{kind}@{k}"], estimates.level, estimates.resamples) for k in ks]
            for name, table in tables.items()
            if f"{kind}@1" in table
        }
        whole = {name: [e for e in figures if e is not None] for name, figures in of_arms.items()}
        whole = {name: figures for name, figures in whole.items() if len(figures) == len(ks)}
        if whole:
            shown = {name: label for name, label in labels.items() if name in whole}
            caption = f"Bands: {estimates.level:.0%} intervals over problems. Computed from the files of samples."
            files = canvas.names(path for arm in measured if arm.name in whole for path in arm.evaluations)
            figure = draw_over_k(whole, ks, shown, canvas.styles)
            title = f"{what or f'{kind}@k'} over k"
            pictures.append(
                picture(figure, f"{kind}_over_k", title[0].upper() + title[1:], caption, canvas.folder, files)
            )
    return pictures


def training_pictures(arms: Sequence[Arm], canvas: Canvas) -> list[Picture]:
    """Metrics over optimizer steps, each arm a line with the range between its seeds."""
    logs = {
        arm.name: {path: read_metrics(path) for run in arm.runs if (path := RunFolder(run).metrics).is_file()}
        for arm in arms
        if not arm.is_base
    }
    pictures = []
    for metric, key, title, unit in TRAINING:
        points = {name: [log[metric] for log in of_arm.values() if metric in log] for name, of_arm in logs.items()}
        steps = max((len(of_seed) for of_arm in points.values() for of_seed in of_arm), default=0)
        window = max(1, steps // 20)
        curves = _present({name: curve_of(of_arm, window) for name, of_arm in points.items()})
        if curves:
            files = canvas.names(path for name in curves for path in logs[name])
            caption = f"{unit[0].upper()}{unit[1:]}. {_drawn(window, 'steps')}"
            figure = draw_curves(curves, canvas.labels, canvas.styles, "optimizer steps")
            pictures.append(picture(figure, f"training_{key}", title, caption, canvas.folder, files))
    return pictures


def coverage_pictures(
    arms: Sequence[Arm], searches: Mapping[str, Path], canvas: Canvas
) -> tuple[list[Picture], list[str]]:
    """Covered cells and covered problems over attempts.

    Args:
        arms: Arms whose runs have searched themselves.
        searches: Name of each shared search to its run folder.
        canvas: What the pictures share.

    Returns:
        The pictures, and what is wrong with journals that are left out.
    """
    # A run that started from a shared search holds a copy of its journal, which is drawn once, as the search's.
    groups = {
        arm.label: [run for run in arm.runs if not (run / "shared_search.json").is_file()]
        for arm in arms
        if not arm.is_base
    }
    groups |= {f"search {name}": [folder] for name, folder in searches.items()}
    found: dict[str, list[Mapping[str, dict[float, float]]]] = {}
    files: list[Path] = []
    wrong = []
    for label, folders in groups.items():
        for kind, journals in (pair for folder in folders for pair in journals_of(folder).items()):
            try:
                found.setdefault(label if kind == "search" else f"{label} (iid)", []).append(coverage(journals))
                files += journals
            except UsageError as error:
                wrong.append(str(error))
    colours = {label: canvas.styles[name] for name, label in canvas.labels.items()}
    styles = {
        label: colours.get(label.removesuffix(" (iid)"), style_of(len(canvas.labels) + n))
        for n, label in enumerate(found)
    }
    pictures = []
    for what, title in (("cells", "Covered cells"), ("problems", "Covered problems")):
        curves = _present({label: curve_of([seed[what] for seed in seeds]) for label, seeds in found.items()})
        if curves:
            figure = draw_curves(curves, {label: label for label in curves}, styles, "attempts")
            key, head = f"coverage_{what}", f"{title} over attempts"
            named = canvas.names(files)
            pictures.append(picture(figure, key, head, _drawn(1, "attempts"), canvas.folder, named))
    return pictures, wrong


def _drawn(window: int, what: str) -> str:
    smooth = f"moving mean over {window} {what}; " if window > 1 else ""
    return f"Lines: {smooth}mean over seeds. Bands: from the lowest to the highest seed."


def _present(curves: Mapping[str, Curve | None]) -> dict[str, Curve]:
    return {name: curve for name, curve in curves.items() if curve is not None}
