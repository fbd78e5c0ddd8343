"""The archive's file: JSON Lines that people and other tools can read, and a manifest that vouches for them.

Each line carries its own checksum, so that an edited line can be named. The manifest is written last: an archive
without one was not written to its end.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Cells, Elite

FORMAT = "elite-archive"
SAMPLES_FORMAT = "elite-samples"  # the same lines, but a cell may have several
VERSION = 1


class ArchiveError(UsageError):
    """An archive or its file that cannot be used; one line that says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the file beside the archive says about it.

    Args:
        elites: Lines of the archive.
        problems: Problems with at least one elite.
        problems_tried: Problems with at least one attempt.
        attempts: Attempts of the search, whatever became of them: the denominator.
        sha256: Hash of the archive file's bytes.
        fingerprints: Hashes of all that the elites depend on: base model, tokenizer, domain, search settings.
        format: `elite-archive`, or `elite-samples` where a cell may have several lines.
        version: Version of the format.
        cells: What tells cells apart, so of which a problem has each once; left out of the file where it is `both`, as
            it was before there was a choice.

    Raises:
        ValueError: If `cells` is none of these.
    """

    elites: int
    problems: int
    problems_tried: int
    attempts: int
    sha256: str
    fingerprints: Mapping[str, str]
    format: str = FORMAT
    version: int = VERSION
    cells: Cells = "both"

    def __post_init__(self) -> None:
        """Refuse what only a later release may know."""
        if self.cells not in get_args(Cells):
            raise ValueError(f"cells must be one of {', '.join(get_args(Cells))}, got {self.cells!r}")

    def to_dict(self) -> dict[str, Any]:
        """What the file holds."""
        fields = asdict(self)
        if self.cells == "both":
            del fields["cells"]
        return fields


def manifest_path(path: str | Path) -> Path:
    """Where the manifest of an archive lies: `archive.jsonl` has `archive.manifest.json` beside it."""
    path = Path(path)
    return path.with_name(f"{path.stem}.manifest.json")


def encode_elite(elite: Elite) -> bytes:
    """One line of the file, newline included; equal elites give equal bytes."""
    record = {
        "problem_id": elite.problem_id,
        "approach": elite.cell.approach,
        "structure": elite.cell.structure,
        "response": elite.response,
        "solution": elite.solution,
        "token_ids": list(elite.token_ids),
        "weight": float(elite.weight),
    }
    body = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return f'{body[:-1]}, "crc32": "{zlib.crc32(body.encode()):08x}"}}\n'.encode()


def write_archive(
    path: Path,
    elites: Sequence[Elite],
    problems_tried: int,
    attempts: int,
    fingerprints: Mapping[str, str],
    format_: str = FORMAT,
    cells: Cells = "both",
) -> None:
    """Write archive and manifest, each as a whole or not at all.

    Writing the same content again is harmless, and finishes a file whose writer was killed before the manifest.

    Args:
        path: Where the JSON Lines go, such as `runs/x/archive.jsonl`.
        elites: Sorted by problem and cell.
        problems_tried: Problems with at least one attempt.
        attempts: All attempts.
        fingerprints: Name to hash.
        format_: `FORMAT`, or `SAMPLES_FORMAT` where a cell may have several elites.
        cells: What tells cells apart.

    Raises:
        ArchiveError: If another archive lies there already; it is left as it is.
    """
    content = b"".join(map(encode_elite, elites))
    manifest = Manifest(
        elites=len(elites),
        problems=len({elite.problem_id for elite in elites}),
        problems_tried=problems_tried,
        attempts=attempts,
        sha256=hashlib.sha256(content).hexdigest(),
        fingerprints=dict(fingerprints),
        format=format_,
        cells=cells,
    )
    files = {
        path: content,
        manifest_path(path): (json.dumps(manifest.to_dict(), indent=2, sort_keys=True) + "\n").encode(),
    }
    for target, data in files.items():
        if target.exists() and target.read_bytes() != data:
            raise ArchiveError(
                f"{target} already holds another archive, and nothing is overwritten; move it away first"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, data in files.items():
        _write_whole(target, data)


def _write_whole(path: Path, data: bytes) -> None:
    """A reader, or a run after a crash, sees no file or the whole of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_archive(path: Path, expected: Mapping[str, str]) -> tuple[list[Elite], Manifest]:
    """Read an archive and refuse one that is not exactly what was written.

    Args:
        path: The JSON Lines.
        expected: Fingerprints that must agree, by name; those that are not named are not compared.

    Returns:
        The elites in the file's order, and the manifest.

    Raises:
        ArchiveError: If a file is missing, cut off, edited, of another version or made for something else.
    """
    if not path.is_file():
        raise ArchiveError(f"no archive at {path}; make one with the `search` command")
    manifest = _read_manifest(manifest_path(path))
    for name, value in expected.items():
        found = manifest.fingerprints.get(name)
        if found != value:
            raise ArchiveError(
                f"{path} was made with another {name} ({found} there, {value} here); "
                "use what made it, or search again in another run folder"
            )
    content = path.read_bytes()
    elites = _read_lines(path, content, manifest.cells if manifest.format == FORMAT else None)
    if hashlib.sha256(content).hexdigest() != manifest.sha256 or len(elites) != manifest.elites:
        raise ArchiveError(
            f"{path} was changed: each of its {len(elites)} lines is whole, but they are not the "
            f"{manifest.elites} that the manifest vouches for; restore the file, or search again"
        )
    return elites, manifest


def _read_manifest(path: Path) -> Manifest:
    if not path.is_file():
        raise ArchiveError(f"{path} is missing, so the archive was not written to its end; run the search again")
    try:
        fields = json.loads(path.read_bytes())
        version = (fields["format"], fields["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(
            f"{path} is not an archive's manifest ({_why(error)}); restore it, or search again"
        ) from None
    if version not in ((FORMAT, VERSION), (SAMPLES_FORMAT, VERSION)):
        raise ArchiveError(
            f"{path} is of format {version[0]!r}, version {version[1]!r}; "
            f"this release reads {FORMAT!r}, version {VERSION}"
        )
    try:
        return Manifest(**{**fields, "fingerprints": dict(fields["fingerprints"])})
    except (TypeError, ValueError, KeyError) as error:
        raise ArchiveError(f"{path} is not complete ({_why(error)}); restore it, or search again") from None


def _read_lines(path: Path, content: bytes, once: Cells | None) -> list[Elite]:
    """All elites; names the first line that is not one. `once` is what a problem has each of once."""
    elites: list[Elite] = []
    taken: set[tuple[str, Cell]] = set()
    for number, line in enumerate(io.BytesIO(content), 1):
        try:
            elite = _decode_elite(line)
            _check_order(elites[-1:], elite, one_per_cell=once is not None)
            if once is not None:
                _take(taken, elite, once)
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"{path}, line {number}: {_why(error)}; restore the file, or search again") from None
        elites.append(elite)
    return elites


def _check_order(before: Sequence[Elite], elite: Elite, one_per_cell: bool) -> None:
    for last in before:
        earlier, later = (last.problem_id, last.cell), (elite.problem_id, elite.cell)
        if one_per_cell and earlier >= later:
            raise ValueError("it is out of order: lines are sorted by problem and cell, each cell once")
        if (earlier, last.response) > (later, elite.response):
            raise ValueError("it is out of order: lines are sorted by problem, cell and response")


def _take(taken: set[tuple[str, Cell]], elite: Elite, cells: Cells) -> None:
    place = (elite.problem_id, elite.cell.projected(cells))
    if place in taken:
        raise ValueError(f"its problem has that {cells} already, and has each once in this archive")
    taken.add(place)


def _decode_elite(line: bytes) -> Elite:
    """The elite of one line.

    Raises:
        ValueError, KeyError, TypeError: If the line is not exactly what `encode_elite` writes.
    """
    if not line.endswith(b"\n"):
        raise ValueError("it is cut off, there is no newline at its end")
    fields: dict[str, Any] = json.loads(line)
    elite = Elite(
        problem_id=fields["problem_id"],
        cell=Cell(fields["approach"], fields["structure"]),
        response=fields["response"],
        solution=fields["solution"],
        token_ids=tuple(fields["token_ids"]),
        weight=fields["weight"],
    )
    if encode_elite(elite) != line:
        raise ValueError("it was edited, its content does not fit its checksum")
    return elite


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg}, column {error.colno})"
    return str(error).splitlines()[0]
