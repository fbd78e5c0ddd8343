"""The run folder: where each file of a run lies, whose folder it is, and where a stopped run goes on."""

from __future__ import annotations

import fcntl
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import yaml  # type: ignore[import-untyped]

from elite_lightning.code_version import code_version
from elite_lightning.errors import UsageError

# Settings that cannot change results: where the run lies, what is shown, and arguments of single commands.
_FREE = frozenset(
    {
        "run_dir",
        "ckpt_path",
        "weights_only",
        "verbose",
        "trainer.enable_progress_bar",
        "trainer.enable_model_summary",
        "torch_threads",
        "model.gradient_norms_every",
        *(f"search.init_args.labeler.init_args.endpoint.{name}" for name in ("base_url", "api_key_variable")),
        *(f"search.init_args.labeler.init_args.endpoint.{name}" for name in ("timeout_s", "retries", "concurrency")),
    }
)


class RunFolder:
    """Paths of one run, after the design's list of files.

    Args:
        path: The folder; made when something is written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None

    @property
    def config(self) -> Path:
        """The complete configuration; can be run again."""
        return self.path / "config.yaml"

    @property
    def journal(self) -> Path:
        """Every attempt of the search."""
        return self.path / "search.sqlite"

    @property
    def archive(self) -> Path:
        """The frozen archive; its manifest lies beside it."""
        return self.path / "archive.jsonl"

    @property
    def code(self) -> Path:
        """Versions of the code that worked on the run, a line each, in order."""
        return self.path / "code.txt"

    @property
    def base_logprobs(self) -> Path:
        """What the base policy thought of the archive's elites, where the replay term asks for it."""
        return self.path / "archive.base_logprobs.safetensors"

    @property
    def search_report(self) -> Path:
        """Counts and seconds of the search."""
        return self.path / "search.json"

    @property
    def checkpoints(self) -> Path:
        """Training checkpoints."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """Logged metrics, a line a step."""
        return self.path / "metrics.jsonl"

    @property
    def replayed(self) -> Path:
        """How likely the policy found each replayed response, a line each."""
        return self.path / "replay.jsonl"

    @property
    def summary(self) -> Path:
        """The final table as data."""
        return self.path / "summary.json"

    @property
    def picture(self) -> Path:
        """Pass@k and strategies over k."""
        return self.path / "over_k.png"

    @property
    def model(self) -> Path:
        """The trained policy and its tokenizer, for `from_pretrained`."""
        return self.path / "model"

    def samples(self, stage: str, step: int) -> Path:
        """Every sample of one evaluation.

        Args:
            stage: `test` or `validation`.
            step: Optimizer steps before the evaluation.
        """
        prefix = "" if stage == "test" else f"{stage}_"
        return self.path / "eval" / f"{prefix}step={step}.jsonl"

    @property
    def evaluations(self) -> list[Path]:
        """Every file of samples that is there, sorted by name."""
        return sorted((self.path / "eval").glob("*step=*.jsonl"))

    def require_usable(self) -> None:
        """Refuse a path that no folder can be made at, before any work is done.

        Raises:
            UsageError: If it is a file, or its parent cannot be written to.
        """
        there = next(path for path in (self.path.absolute(), *self.path.absolute().parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            why = "cannot be written to" if there.is_dir() else "is not a folder"
            raise UsageError(f"run_dir={self.path}: {there} {why}; choose another --run_dir")

    def lock(self) -> None:
        """Keep other processes out until `release`, or until this process ends in whatever way.

        Raises:
            UsageError: If a run is going on in this folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        handle = (self.path / ".lock").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.close()
            raise UsageError(
                f"another process is running in {self.path}: wait for it, stop it, or choose another --run_dir"
            ) from error
        self._lock = handle

    def release(self) -> None:
        """Let other processes in again."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check(
        self, config: Mapping[str, Any], complete: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        """Refuse to mix two configurations in one folder.

        Args:
            config: The complete configuration of this command.
            complete: Adds to the folder's configuration what an earlier release had no option for; None adds nothing.

        Raises:
            UsageError: If the folder belongs to another configuration; names the first keys that differ.
        """
        if not self.config.is_file():
            return
        written = load_yaml(self.config.read_text()) or {}
        there, here = flatten(written if complete is None else complete(written)), flatten(config)
        differing = differing_keys(there, here)
        if differing:
            shown = ", ".join(f"{key} ({there.get(key)!r} there, {here.get(key)!r} here)" for key in differing[:3])
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            raise UsageError(
                f"the run folder {self.path} belongs to another configuration: {shown}{more}; "
                f"choose another --run_dir, or continue that run with --config {self.config}"
            )

    def claim(self, config: Mapping[str, Any]) -> None:
        """Write the configuration, unless it is there already, and which code works on it now."""
        if not self.config.is_file():
            text = yaml.safe_dump(dict(config), sort_keys=False)  # type: ignore[no-untyped-call]
            write_atomically(self.config, text)
        if code_version() not in self.code_versions():
            write_atomically(self.code, "".join(f"{version}\n" for version in (*self.code_versions(), code_version())))

    def code_versions(self) -> list[str]:
        """Versions of the code that worked on the run; none if an earlier release did not write them down."""
        return self.code.read_text().split() if self.code.is_file() else []

    def newest_checkpoint(self) -> Path | None:
        """The last checkpoint that was written to its end, or None."""
        found = sorted(self.checkpoints.glob("*.ckpt"), key=lambda p: (p.stat().st_mtime, p.name == "last.ckpt"))
        return next((p for p in reversed(found) if p.is_dir() or zipfile.is_zipfile(p)), None)


def load_yaml(text: str) -> Any:
    """What a YAML text says."""
    return yaml.safe_load(text)  # type: ignore[no-untyped-call]


def differing_keys(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Dotted keys of two flat configurations whose difference could change results.

    Args:
        there: One.
        here: The other; its order leads.
    """
    return [key for key in {**here, **there} if key not in _FREE and here.get(key) != there.get(key)]


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping of dotted keys."""
    return dict(_leaves(config, prefix))


def _leaves(config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
