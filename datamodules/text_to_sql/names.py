"""Names of problems and databases: unique ids, the files behind names, near misses, and lists for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from elite_lightning.errors import UsageError
from elite_lightning.types import Problem

NAMED = 10
"""So many names are listed; the rest is counted."""


def require_databases(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder that lacks databases.

    Args:
        folder: Holds `<name>/<last part of name>.sqlite`.
        names: Databases that must be there, upper and lower case as given.

    Raises:
        UsageError: If one is not.
    """
    missing = sorted({name for name in names if not file_of(folder, name).is_file()})
    if missing:
        raise UsageError(
            f"{len(missing)} databases are missing in {folder}, such as {file_of(folder, missing[0])}: copy them "
            "there, or name the ones that are in data.source.init_args.databases"
        )


def unique(problems: Sequence[Problem]) -> list[Problem]:
    """The problems with distinct ids: the second of an id gets `#2`, and so on, in the order of the file."""
    seen: Counter[str] = Counter()
    found = []
    for problem in problems:
        seen[problem.id] += 1
        number = seen[problem.id]
        found.append(problem if number == 1 else Problem(f"{problem.id}#{number}", problem.question, problem.data))
    return found


def file_of(folder: Path, name: str) -> Path:
    """The SQLite file of a database; its name may be a path below the folder."""
    return folder / name / f"{Path(name).name}.sqlite"


def suggestion(name: str, known: set[str]) -> str:
    """How an error about an unknown name ends: the nearest known one, which may differ by case alone, or what there is.

    Args:
        name: The name that is not known.
        known: The names that are.
    """
    lower = {other.lower(): other for other in known}
    near = get_close_matches(name.lower(), lower, n=1)
    return f": did you mean {lower[near[0]]!r}?" if near else f"; it has {listed(sorted(known))}"


def listed(names: Sequence[str]) -> str:
    """Names for people: the first ten, and how many more there are."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
