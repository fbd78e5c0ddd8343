"""`python train.py report FOLDER [...] [--out report.html]`: from run folders, or a study's folder, to the page."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from elite_lightning.errors import UsageError
from elite_lightning.html.page import write_report

_SEED = re.compile(r"[-_ ]?seed[=_-]?\d+$")


class _Parser(ArgumentParser):
    """Errors are one line, as those of the other commands."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `python train.py report --help`")


def main(args: Sequence[str]) -> int:
    """Run the command.

    Args:
        args: What follows `report` on the command line.

    Returns:
        The exit code: 0, or 2 after a user's error, which is one line on stderr.
    """
    try:
        given = _parser().parse_args(list(args))
        print(f"Report: {report(given.folders, given.out, given.reference)}")
    except UsageError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> ArgumentParser:
    parser = _Parser(prog="train.py report", description="Make one HTML page, and PNGs, of run folders or of a study.")
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="A study's folder, or run folders; those that differ in their seed alone (x-seed0, x-seed1, or x/seed=0, "
        "x/seed=1) are one arm.",
    )
    parser.add_argument("--out", type=Path, help="The page; by default report.html in the folder, or here for several.")
    parser.add_argument("--reference", help="The arm that the others are compared to; by default the base policy.")
    return parser


def report(folders: Sequence[Path], out: Path | None = None, reference: str | None = None) -> Path:
    """Write the page of run folders or of one study.

    Args:
        folders: A study's folder, which has `results.json`, or run folders.
        out: The page; None is `report.html` in the only folder, or here.
        reference: The arm that the others are compared to.

    Raises:
        UsageError: If a folder is missing or is neither, or `results.json` is broken.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"no folder at {folder}; name a run's folder, or a study's")
    out = out or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    if out.is_dir() or not out.suffix:
        raise UsageError(f"--out={out} is no name of a page; end it in .html")
    studies = [folder for folder in folders if (folder / "results.json").is_file()]
    if studies and len(folders) > 1:
        raise UsageError(f"{studies[0]} is a study: it is reported on alone; leave out the other folders")
    if studies:
        return _of_study(studies[0], out, reference)
    if len(folders) == 1 and not (folders[0] / "config.yaml").is_file():
        inside = _run_folders(folders[0])
        searches = {name: run for run in inside if (name := _search_name(folders[0], run))}
        folders = [run for run in inside if run not in searches.values()] or folders
        return write_report(arms_by_name(folders), out, reference=reference, searches=searches)
    arms = {"trained": list(folders)} if len(folders) == 1 else arms_by_name(folders)
    return write_report(arms, out, reference=reference)


def arms_by_name(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Runs that differ in their seed alone as one arm: `grpo-seed0`, or `grpo/seed=0`, is a run of `grpo`.

    Raises:
        UsageError: If a folder is given twice.
    """
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("a run folder is named twice, which would count it as two seeds; name each once")
    arms: dict[str, list[Path]] = {}
    for folder in folders:
        absolute = folder.absolute()
        arms.setdefault(_SEED.sub("", absolute.name) or absolute.parent.name, []).append(folder)
    return arms


def _of_study(study: Path, out: Path, reference: str | None) -> Path:
    file = study / "results.json"
    results = _read(file)
    arms = {name: [study / run for run in arm["runs"]] for name, arm in results["arms"].items()}
    searches = {path.name: path for path in sorted((study / "searches").glob("*")) if path.is_dir()}
    return write_report(arms, out, reference=reference, results=results, results_file=file, searches=searches)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        results: Mapping[str, Any] = json.loads(file.read_text())
        for arm in results["arms"].values():
            list(arm["runs"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is not a study's results ({type(error).__name__}: {error}); make it again") from error
    return results


def _run_folders(folder: Path) -> list[Path]:
    """Run folders below a folder that is none itself, up to two levels down."""
    found = sorted({path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/config.yaml")})
    if not found:
        raise UsageError(f"{folder} is neither a run's folder (config.yaml) nor a study's, and holds none; name one")
    return found


def _search_name(folder: Path, run: Path) -> str | None:
    """The name of a search that arms share, which lies in `searches/`."""
    return run.name if run.parent == folder / "searches" else None
