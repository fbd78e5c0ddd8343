"""The command line: from a YAML to a run folder. It decides what is done and in which order, and nothing else.

`fit` measures the base policy, searches, trains, measures again, and ends with a table; whatever of it a stopped run
has done already is not done again.
"""

from __future__ import annotations

import json
import signal
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from jsonargparse import ArgumentError, ArgumentParser
from lightning.fabric.plugins import CheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException
from lightning_utilities.core.rank_zero import rank_zero_only
from rich.console import Console

from callbacks import PassAtKEvaluation, PreSearch
from datamodules.elite import EliteDataModule
from datamodules.sources import ProblemSource
from elite_lightning.distributed import RemoteError
from elite_lightning.errors import UsageError
from elite_lightning.evaluation import figures_of, read_counts
from elite_lightning.loggers import JsonlLogger
from elite_lightning.module import EliteModule
from elite_lightning.prediction_report import show_scores, write_scores
from elite_lightning.process import be_quiet, set_threads
from elite_lightning.report import coverage_line, draw, show, summarise
from elite_lightning.run_folder import RunFolder, load_yaml
from elite_lightning.trainer import AtomicCheckpointIO, EliteTrainer
from elite_lightning.types import CheckingDomain, TokenBudget

TRAINER_DEFAULTS = {
    "use_distributed_sampler": False,  # the DataModule deals the batches
    "num_sanity_val_steps": 0,
    "log_every_n_steps": 1,
    "inference_mode": False,  # what modules keep from an evaluation must remain trainable
    "enable_model_summary": False,
}

_ABOUT = (
    "Reinforcement learning with verifiable rewards that keeps the other right answers. Two more commands have options "
    "of their own: `study --help` (several methods over several seeds) and `report --help` (a page of runs)."
)
_OF_ONE_COMMAND = frozenset({"ckpt_path", "weights_only", "verbose", "predictions"})


class EliteCLI(LightningCLI):
    """LightningCLI with run folders, and with the whole experiment behind `fit`."""

    trainer: EliteTrainer
    model: EliteModule
    datamodule: EliteDataModule

    def __init__(self, args: Sequence[str] | None = None) -> None:
        strict = {"exit_on_error": False}  # errors become one line in `main`
        super().__init__(
            EliteModule,
            EliteDataModule,
            save_config_callback=None,
            trainer_class=EliteTrainer,
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_kwargs={"description": _ABOUT, **strict, **{name: dict(strict) for name in self.subcommands()}},
            args=None if args is None else list(args),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    # What can be configured.

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """The commands, and which of their arguments come from here."""
        ours = {"model", "dataloaders", "datamodule"}
        fit = {"model", "train_dataloaders", "val_dataloaders", "datamodule"}
        return {"fit": fit, "validate": ours, "test": ours, "search": {"model", "datamodule"}}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the run folder, the search and the evaluation, and link what must agree."""
        parser.add_argument("--run_dir", type=str, default="runs/default", help="Folder for all that the run leaves.")
        parser.add_argument(
            "--checkpoint_every", type=int, default=25, help="Optimizer steps between checkpoints; at least 1."
        )
        parser.add_argument(
            "--torch_threads",
            type=int | None,
            default=None,
            help="CPU threads of torch in each process; null is OMP_NUM_THREADS, or all cores but the workers'.",
        )
        parser.add_lightning_class_args(PreSearch, "search", subclass_mode=True, required=False)
        parser.add_lightning_class_args(PassAtKEvaluation, "evaluation")
        parser.link_arguments("run_dir", "trainer.default_root_dir")
        parser.link_arguments("seed_everything", "model.seed", compute_fn=int)
        parser.link_arguments("seed_everything", "data.seed", compute_fn=int)
        parser.link_arguments("evaluation.samples", "model.evaluation_samples")
        parser.link_arguments(
            ("evaluation.samples", "evaluation.validation_samples"),
            "model.validation_samples",
            compute_fn=lambda samples, validation: samples if validation is None else validation,
        )
        parser.link_arguments("data.domain", "model.domain", apply_on="instantiate")

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        if subcommand != "search":
            parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
            if subcommand == "test":
                parser.add_argument(
                    "--predictions",
                    type=str | None,
                    default=None,
                    help="File of predictions in the benchmark's own format: it is scored, and no model is loaded.",
                )
            return parser
        # Lightning makes a group of options named like the command, and `search` is the name of a group already.
        parser = self.init_parser(**kwargs)
        self._add_arguments(parser)
        self._subcommand_method_arguments[subcommand] = []
        return parser

    # From the configuration to objects.

    def _set_seed(self) -> None:
        if isinstance(self._get(self.config, "seed_everything"), bool):
            raise UsageError("seed_everything must be an integer: a run that drew its own could not be continued")
        super()._set_seed()

    def _parse_ckpt_path(self) -> None:
        given = self.config[self.config.subcommand].get("ckpt_path")
        # A sharded checkpoint is a folder. Lightning looks into a file at once, and would take any for a pickle.
        if given and Path(given).is_file() and not zipfile.is_zipfile(given):
            raise UsageError(f"ckpt_path={given} is not a checkpoint: name a file of a run's checkpoints")
        super()._parse_ckpt_path()

    def before_instantiate_classes(self) -> None:
        """Check the run folder before anything is loaded, and set what holds for the whole process."""
        config = self.config[self.subcommand]
        if config.checkpoint_every < 1:
            raise UsageError(f"checkpoint_every must be at least 1, got {config.checkpoint_every}")
        if config.trainer.gradient_clip_val or config.trainer.accumulate_grad_batches != 1:
            raise UsageError(
                "trainer.gradient_clip_val and trainer.accumulate_grad_batches do not apply to manual optimisation; "
                "set model.optimizer.gradient_clip_norm and model.micro_batch_tokens"
            )
        ends = config.trainer.max_steps > 0 or config.trainer.max_epochs or config.trainer.max_time
        if self.subcommand == "fit" and not ends:
            raise UsageError("trainer.max_steps is not set: training would never end; set it")
        every = config.trainer.val_check_interval
        if self.subcommand == "fit" and isinstance(every, int) and 0 < config.trainer.max_steps < every:
            raise UsageError(
                f"trainer.val_check_interval={every} is more than trainer.max_steps={config.trainer.max_steps}: "
                "lower it, or set it to null to train without validation"
            )
        if config.get("ckpt_path") and not Path(config.ckpt_path).exists():
            raise UsageError(f"no checkpoint at {config.ckpt_path}")
        self.folder = RunFolder(config.run_dir)
        self.folder.require_usable()
        if self._predictions is not None:
            return
        self.resolved = self._resolved(config)
        self.folder.check(self.resolved, self._with_later_options)
        set_threads(config.torch_threads, config.trainer.devices, config.model.verification.workers)

    def _resolved(self, config: Any) -> dict[str, Any]:
        """The complete configuration, but for arguments of single commands: any command can run it again."""
        dumped = self._parser(self.subcommand).dump(config, skip_none=False, format="yaml")
        return {key: value for key, value in load_yaml(dumped).items() if key not in _OF_ONE_COMMAND}

    def _with_later_options(self, config: dict[str, Any]) -> dict[str, Any]:
        """A run folder's configuration, with the defaults of options that its release did not have yet."""
        try:
            return self._resolved(self._parser(self.subcommand).parse_object(config))
        except (ArgumentError, UsageError, ValueError):
            return config  # an option of then is none any more: the comparison names it

    def instantiate_classes(self) -> None:
        """Build everything; what a constructor refuses is the user's to fix."""
        if self._predictions is not None:
            return
        try:
            super().instantiate_classes()
            self._check_data()
        except (ValueError, OSError) as error:
            raise UsageError(str(error)) from error

    def _check_data(self) -> None:
        """Touch all data now: a broken file must not be found after an hour of search."""
        data = self.datamodule
        self.model.check_batches(data.problems_per_step, data.replay_per_step)
        if self.subcommand == "fit" and self.model.needs_base_logprobs and data.demonstrations is not None:
            raise UsageError(
                f"model.replay={type(self.model.replay).__name__} compares to what the base policy wrote itself, and "
                "demonstrations are not: set data.demonstrations to null and configure `search`"
            )
        if self.subcommand == "fit" and data.needs_archive and self._get(self.config, "search") is None:
            raise UsageError("replay has nothing to draw from: configure `search` or `data.demonstrations`")
        data.domain.fingerprint()
        if self.subcommand in ("fit", "search") and not data.train_problems:
            raise UsageError("data.source has no training problems: choose other databases, or raise its limits")
        for problem in (*data.train_problems.values(), *data.source.validation(), *data.source.test()):
            try:
                data.domain.prompt(problem)
                if isinstance(data.domain, CheckingDomain) and not data.source.checked:
                    data.domain.check(problem)
            except KeyError as error:
                raise UsageError(f"problem {problem.id!r}: its data lacks {error}") from error
            except UsageError as error:
                raise UsageError(f"problem {problem.id!r}: {error}") from error
        cut = data.domain.cut_report() if isinstance(data.domain, TokenBudget) else None
        for note in (*data.source.notes(), cut):
            if note is not None:
                self._say(note)

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Any]) -> EliteTrainer:
        """Add the loggers and checkpoints of the run folder."""
        checkpoint = ModelCheckpoint(
            dirpath=self.folder.checkpoints,
            filename="{step}",
            every_n_train_steps=self._get(self.config, "checkpoint_every"),
            save_last="link",
            enable_version_counter=False,
        )
        ours = JsonlLogger(self.folder.metrics, self.folder.replayed)
        config["logger"] = [ours, *self._other_loggers(config["logger"])]
        config["plugins"] = _as_list(config["plugins"])
        if not any(isinstance(plugin, CheckpointIO) for plugin in config["plugins"]):
            config["plugins"].append(AtomicCheckpointIO())
        if config["max_steps"] > 0 and config["max_epochs"] is None:
            config["max_epochs"] = 1  # the DataModule's epoch is then the whole run
        if self.subcommand == "fit" and config["val_check_interval"] is None:
            config["limit_val_batches"] = 0  # validation is sampling, so it is done only when asked for
        present = [callback for callback in callbacks if callback is not None]
        return cast(EliteTrainer, super()._instantiate_trainer(config, [*present, checkpoint]))

    def _other_loggers(self, configured: Any) -> list[Any]:
        if configured in (None, True):
            return [TensorBoardLogger(self.folder.path, name="tensorboard", version="")]
        return _as_list(configured)

    # The commands.

    def _run_subcommand(self, subcommand: str) -> None:
        if self._predictions is not None:
            self._score(self._predictions)
            return
        try:
            super()._run_subcommand(subcommand)
        except (KeyboardInterrupt, SystemExit):  # Lightning turns the one into the other
            self._say("Stopped. The same command goes on from where this one got to.")
            raise
        finally:
            self.model.close()
            self.folder.release()

    def fit(self, model: EliteModule, datamodule: EliteDataModule, ckpt_path: str | None = None, **_: Any) -> None:
        """Measure, search, train and measure again."""
        if self.folder.summary.is_file():
            self._say(f"This run is finished: {self.folder.path}")
            self._show(json.loads(self.folder.summary.read_text()))
            return
        self._claim()
        evaluation = self._get(self.config_init, "evaluation")
        has_tests = len(datamodule.source.test()) > 0
        if has_tests and evaluation.baseline:
            self._measure(step=0)
        self.trainer.fit(
            model, datamodule=datamodule, ckpt_path=ckpt_path or self.folder.newest_checkpoint(), weights_only=True
        )
        # The last step need not be one of those that the checkpoints are due at.
        self.trainer.save_checkpoint(self.folder.checkpoints / "last.ckpt")
        if has_tests:
            self._measure(step=model.trained_steps)
        if self.trainer.is_global_zero:
            model.export(self.folder.model)
            if has_tests:
                draw(self.folder, model.trained_steps)
            self._show(summarise(self.folder, model.trained_steps, evaluation.ks, model.seconds))

    def search(self, model: EliteModule, datamodule: EliteDataModule, **_: Any) -> None:
        """Fill and freeze the archive; a later `fit` in the same run folder uses it."""
        if self._get(self.config, "search") is None:
            raise UsageError(
                "nothing to search with: set search.class_path, for example to callbacks.MapElitesPreSearch"
            )
        self._claim()
        self.trainer.search(model, datamodule=datamodule)
        self._say(coverage_line(json.loads(self.folder.search_report.read_text())))
        self._say(f"Run folder: {self.folder.path}")

    def validate(self, model: EliteModule, datamodule: EliteDataModule, ckpt_path: str | None = None, **_: Any) -> None:
        """Measure on the validation problems: the given checkpoint, else the run's newest, else the base policy."""
        self._require(datamodule.source.validation(), "validation")
        self._claim()
        self.trainer.validate(model, datamodule=datamodule, ckpt_path=self._checkpoint(ckpt_path), weights_only=True)
        self._show_samples("validation")

    def test(self, model: EliteModule, datamodule: EliteDataModule, ckpt_path: str | None = None, **_: Any) -> None:
        """Measure on the test problems: the given checkpoint, else the run's newest, else the base policy."""
        self._require(datamodule.source.test(), "test")
        self._claim()
        self.trainer.test(model, datamodule=datamodule, ckpt_path=self._checkpoint(ckpt_path), weights_only=True)
        self._show_samples("test")

    @rank_zero_only
    def _show_samples(self, stage: str) -> None:
        """Print what was just measured, with 95 % intervals over problems, and where the samples are."""
        evaluation = self._get(self.config_init, "evaluation")
        most = evaluation.samples if stage == "test" else evaluation.validation_samples
        path = self.folder.samples(stage, self.model.trained_steps)
        for name, figure in figures_of(read_counts(path), [k for k in evaluation.ks if k <= most]).items():
            self._say(f"{name:15s} {figure.mean:.3f} [{figure.low:.2f}, {figure.high:.2f}]")
        self._say(f"Samples: {path}")

    @property
    def _predictions(self) -> Path | None:
        given = self.config[self.subcommand].get("predictions")
        return None if given is None else Path(given)

    def _score(self, predictions: Path) -> None:
        """Score a file of predictions; of all that is configured, only the problem source is built."""
        config = self.config[self.subcommand]
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--source", type=ProblemSource)
        try:
            parsed = parser.parse_object({"source": config.data.source})
            source = parser.instantiate_classes(parsed).source
            source = source if config.data.root is None else source.at(config.data.root)
        except ValueError as error:
            raise UsageError(str(error)) from error
        scores = source.score(predictions, config.model.verification.workers)
        settings = {"source": parser.dump(parsed, format="json"), "root": config.data.root}
        folder = write_scores(self.folder.path, predictions, settings, scores.summary, scores.items)
        for warning in scores.warnings:
            self._say(warning)
        show_scores(scores.summary)
        self._say(f"Scores: {folder / 'summary.json'}, verdicts beside it")

    def _require(self, problems: Sequence[Any], split: str) -> None:
        if not problems:
            raise UsageError(f"data.source has no {split} problems to measure on")

    def _checkpoint(self, given: str | None) -> str | Path | None:
        own = self.folder.newest_checkpoint()
        if given and own and Path(given).resolve().parent != self.folder.checkpoints.resolve():
            raise UsageError(
                f"{given} is not a checkpoint of the run in {self.folder.path}, and its samples would pass for that "
                "run's; measure it with another --run_dir"
            )
        chosen = given or own
        self._say(f"Measuring {chosen or 'the base policy'}")
        return chosen

    def _measure(self, step: int) -> None:
        """Evaluate on the test problems, unless this run has done so; the time counts as evaluation."""
        if self.folder.samples("test", step).is_file():
            return
        started = time.perf_counter()
        self._say(f"Measuring the {'trained' if step else 'base'} policy on the test problems")
        self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)
        self.model.seconds["evaluate"] += time.perf_counter() - started

    @rank_zero_only
    def _claim(self) -> None:
        self.folder.lock()
        self.folder.claim(self.resolved)

    @rank_zero_only
    def _say(self, line: str) -> None:
        Console().print(line, highlight=False, soft_wrap=True)

    @rank_zero_only
    def _show(self, summary: dict[str, Any]) -> None:
        show(summary, self.folder.path)


def _as_list(value: Any) -> list[Any]:
    """A list of whatever a Trainer argument holds: nothing, one thing, or several."""
    if not value:
        return []
    return list(value) if isinstance(value, list) else [value]


def main(args: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        args: Command line arguments; those of the process if None.

    Returns:
        The exit code: 0, or 2 after a user's error, which is one line on stderr.
    """
    be_quiet()
    try:
        EliteCLI(args)
    except RemoteError:
        return 2
    except SIGTERMException:
        return 128 + signal.SIGTERM  # as a shell reports it, so that no job script takes this run for finished
    except (UsageError, ArgumentError, MisconfigurationException) as error:
        rank = rank_zero_only.rank  # type: ignore[attr-defined]
        where = f" on rank {rank}" if rank else ""
        print(f"error{where}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0
