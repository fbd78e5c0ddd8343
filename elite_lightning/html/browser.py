"""What the browser of samples is made from: which archives are shown, where problems come from, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elite_lightning.archive_file import ArchiveError, read_archive
from elite_lightning.html.arms import Arm
from elite_lightning.html.problems import ProblemTexts, load_problems, read_config
from elite_lightning.html.samples import Browsable, browser_data, read_answers
from elite_lightning.html.sources import Sources, digest_of
from elite_lightning.run_folder import RunFolder
from elite_lightning.types import Elite


def browser(
    arms: Sequence[Arm], folders: Sequence[Path], searches: Mapping[str, Path], sources: Sources, budget: int
) -> tuple[dict[str, Any], list[str]]:
    """The browser's data and notes on what it lacks.

    Args:
        arms: All arms.
        folders: All run folders.
        searches: Name of each shared search to its run folder.
        sources: Names the files.
        budget: Most bytes of the data.
    """
    archives, notes = _archives(arms, searches, sources)
    texts, missing = _texts([*folders, *searches.values()], sources)
    found = Browsable(arms, [read_answers(arm.evaluations) for arm in arms], archives, texts)
    names = [[sources.name_of(path) for path in arm.evaluations] for arm in arms]
    sources.note(path for arm in arms for path in arm.evaluations)
    return browser_data(found, names, budget), [*notes, *missing]


def _archives(
    arms: Sequence[Arm], searches: Mapping[str, Path], sources: Sources
) -> tuple[dict[str, list[Elite]], list[str]]:
    """One archive an arm, equal ones once: archives of other seeds are as large again and say little more."""
    groups = {f"search {name}": [folder] for name, folder in searches.items()}
    groups |= {arm.label: list(arm.runs) for arm in arms if not arm.is_base}
    archives: dict[str, list[Elite]] = {}
    notes = []
    seen: set[str] = set()
    for label, folders in groups.items():
        paths = [path for folder in folders if (path := RunFolder(folder).archive).is_file()]
        new = {digest: path for path in reversed(paths) if (digest := digest_of(path)) not in seen}
        seen |= new.keys()
        for path in list(reversed(new.values()))[:1]:
            try:
                archives[f"{label}: {sources.name_of(path)}"] = read_archive(path, {})[0]
                sources.note([path])
            except ArchiveError as error:
                notes.append(f"An archive is left out: {error}")
        if len(new) > 1:
            notes.append(f"{label}: of {len(new)} different archives the browser shows the first.")
    return archives, notes


def _texts(folders: Sequence[Path], sources: Sources) -> tuple[ProblemTexts, list[str]]:
    """Problems of the first run's data source, for runs that are compared have been measured on the same ones."""
    configs = [path for folder in folders if (path := RunFolder(folder).config).is_file()]
    if not configs:
        return ProblemTexts({}, None), ["Questions, prompts and golds are left out: no run has a config.yaml."]
    texts, why = load_problems(configs[0])
    if why is not None:
        where = sources.name_of(configs[0])
        return texts, [
            f"Questions, prompts and golds are left out: the data source of {where} cannot be built ({why})."
        ]
    sources.note(configs[:1])
    return texts, _changed(texts, configs)


def _changed(texts: ProblemTexts, configs: Sequence[Path]) -> list[str]:
    """Whether the source is still what the runs have seen, as far as an archive can tell."""
    kinds = {repr((read_config(path).get("data") or {}).get("source")) for path in configs}
    notes = [] if len(kinds) == 1 else ["The runs have several data sources; questions are those of the first run."]
    for archive in (RunFolder(path.parent).archive for path in configs):
        if not archive.is_file():
            continue
        try:
            there = read_archive(archive, {})[1].fingerprints.get("domain")
        except ArchiveError:
            continue
        if there is not None and there != texts.fingerprint():
            notes.append(
                "The domain or its databases have changed since the runs: prompts and golds are those of today, and "
                "answers were judged by the rules of then."
            )
        break
    return notes
