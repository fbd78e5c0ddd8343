"""The search before training: the frozen policy fills the archive, the archive is frozen, replay draws from it.

It decides from the run's own archive file whether there is anything to do, never from a checkpoint's state: on some
strategies, states are restored only later.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from callbacks.base_logprobs import base_logprobs_of
from elite_lightning.archive import EliteArchive
from elite_lightning.archive_file import manifest_path
from elite_lightning.distributed import on_every_rank, on_first_rank
from elite_lightning.policy import model_fingerprint
from elite_lightning.run_folder import RunFolder, write_atomically
from elite_lightning.samples import Keeping, NearPerfect, Weighting, limits_of
from elite_lightning.search import (
    ArchiveSearch,
    IidSearch,
    Labeler,
    MapElitesSearch,
    SearchProgress,
    SearchSettings,
    search_fingerprints,
)


class PreSearch(pl.Callback, ABC):
    """What every search before training has in common; a subclass says which way of searching it is.

    Args:
        settings: How attempts are spent.
        labeler: Names approaches instead of the domain, such as `elite_lightning.search.LlmLabeler`. Null leaves them
            to the domain, which is deterministic.
    """

    @property
    @abstractmethod
    def search_class(self) -> type[ArchiveSearch]:
        """The way of searching."""

    def __init__(
        self,
        settings: SearchSettings = SearchSettings(),  # noqa: B008 - frozen
        labeler: Labeler | None = None,
    ) -> None:
        super().__init__()
        self.settings, self.labeler = settings, labeler

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Search unless the run has its archive; hand it to the DataModule, which makes its loaders next."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        folder = RunFolder(trainer.default_root_dir)
        settings = self._settings_of(pl_module)
        fingerprints = search_fingerprints(
            self.search_class.method,
            settings,
            pl_module.domain,
            pl_module.codec,
            list(data.train_problems.values()),
            pl_module.base_fingerprint,
            self.labeler,
        )
        keeping = self._keeping(settings, fingerprints)
        if on_first_rank(lambda: not (folder.archive.is_file() and manifest_path(folder.archive).is_file())):
            self._search(trainer, pl_module, folder, settings, keeping)
        expected = fingerprints if keeping is None else {**fingerprints, **keeping.fingerprints}
        archive = on_every_rank(lambda: EliteArchive.load(folder.archive, expected))
        asked = getattr(pl_module, "needs_base_logprobs", False)
        base_logprobs = base_logprobs_of(archive, folder, trainer, pl_module) if asked else None
        on_every_rank(lambda: data.use_archive(archive, base_logprobs))

    def _keeping(self, settings: SearchSettings, fingerprints: Mapping[str, str]) -> Keeping | None:  # noqa: ARG002
        """What is kept of plain samples; None keeps an elite a cell."""
        return None

    def _settings_of(self, pl_module: Any) -> SearchSettings:
        """The settings with the run's seed, unless they have one of their own."""
        return self.settings if self.settings.seed is not None else replace(self.settings, seed=pl_module.seed)

    def _search(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        folder: RunFolder,
        settings: SearchSettings,
        keeping: Keeping | None,
    ) -> None:
        """Every rank searches its share; the first one merges, freezes and saves."""
        started = time.perf_counter()
        shown = trainer.is_global_zero and trainer.progress_bar_callback is not None
        with _progress_bar(shown) as show:
            search = self.search_class(
                domain=pl_module.domain,
                engine=pl_module.engine,
                codec=pl_module.codec,
                pool=pl_module.verifier,
                problems=list(trainer.datamodule.train_problems.values()),  # type: ignore[attr-defined]
                folder=folder.path,
                base_model=pl_module.base_fingerprint,
                settings=settings,
                rank=trainer.global_rank,
                world_size=trainer.world_size,
                on_progress=show,
                labeler=self.labeler,
                **({} if keeping is None else {"keeping": keeping}),
            )
            with torch.inference_mode():
                if self.labeler is not None:
                    on_every_rank(search.seed)
                    on_first_rank(search.learn_vocabulary)
                on_every_rank(search.run)
        if model_fingerprint(pl_module.loaded_policy, base_only=True) != pl_module.base_fingerprint:
            raise RuntimeError("the search changed the policy's weights, which must stay frozen until training")
        on_first_rank(lambda: _save(search, folder, started))


def _save(search: ArchiveSearch, folder: RunFolder, started: float) -> None:
    archive = search.merged()
    archive.freeze()
    report = {**search.report().to_dict(), "replay_items": len(archive), "seconds": time.perf_counter() - started}
    write_atomically(folder.search_report, json.dumps(report, indent=2) + "\n")
    archive.save(folder.archive)


@contextmanager
def _progress_bar(shown: bool) -> Iterator[Any]:
    """A bar over the attempts of this rank, with the coverage so far."""
    columns = (
        TextColumn("Search"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("attempts"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, disable=not shown) as progress:
        task = progress.add_task("", total=None)

        def show(state: SearchProgress) -> None:
            # Short: a terminal of 80 columns cuts the numbers of attempts off otherwise.
            coverage = f"{state.elites} elites, {state.covered_problems}/{state.problems} problems"
            progress.update(task, completed=state.attempts, total=state.budget, description=coverage)

        yield show


class MapElitesPreSearch(PreSearch):
    """MAP-Elites: seed samples, then targets at what is uncovered, from parents of other approaches.

    Args:
        settings: How attempts are spent.
        labeler: Names approaches instead of the domain, such as `elite_lightning.search.LlmLabeler`. Null leaves them
            to the domain, which is deterministic.
    """

    search_class = MapElitesSearch  # type: ignore[assignment]


class IidPreSearch(PreSearch):
    """Plain samples of the frozen policy instead of a search: the baseline "IID replay".

    With the same `settings` it generates exactly as often as `MapElitesPreSearch`, all of it with the plain prompt.
    To match the number of stored items instead, name the other run's archive.

    Args:
        settings: How attempts are spent; `attempts_per_problem` is the number of samples of each problem.
        labeler: Names approaches instead of the domain. Only the weighting `cell` depends on it.
        weighting: Over what replay is uniform within a problem: `frequency` (every correct sample, repeats included),
            `text` (each text once) or `cell` (the shortest of each cell, as EliteReplay does).
        match_items_of: Another run's `archive.jsonl`, over the same problems and policy: no problem keeps more items
            than it has there. It has to stay where it is while this run is to be resumed. Null keeps all.
        near_perfect: Keep only problems that the policy solves almost always, such as `{"least": 6, "of": 8}`: DPH-RL's
            set. All their correct samples are kept. Null keeps all problems.
    """

    search_class = IidSearch  # type: ignore[assignment]

    def __init__(
        self,
        settings: SearchSettings = SearchSettings(),  # noqa: B008 - frozen
        labeler: Labeler | None = None,
        weighting: Weighting = "frequency",
        match_items_of: str | None = None,
        near_perfect: NearPerfect | None = None,
    ) -> None:
        super().__init__(settings, labeler)
        if near_perfect is not None and near_perfect.of > settings.attempts_per_problem:
            raise ValueError(
                f"search.near_perfect.of={near_perfect.of} is more than the search.settings.attempts_per_problem="
                f"{settings.attempts_per_problem} samples that a problem gets"
            )
        self.weighting, self.match_items_of, self.near_perfect = weighting, match_items_of, near_perfect

    def _keeping(self, settings: SearchSettings, fingerprints: Mapping[str, str]) -> Keeping:
        if self.match_items_of is None:
            return Keeping(self.weighting, near_perfect=self.near_perfect)
        same = {name: fingerprints[name] for name in ("base_model", "tokenizer", "domain", "problems")}
        limits = limits_of(self.match_items_of, same)
        return Keeping(self.weighting, limits, settings.seed or 0, self.near_perfect)
