"""Which code made a run: the release, and a hash of the package's files, for a release may be edited."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import elite_lightning

_PACKAGES = ("elite_lightning", "datamodules", "callbacks")


@cache
def code_version() -> str:
    """Release and hash, such as `0.1.0+3f2a91c0b7d4`; equal exactly where the packages' Python files are."""
    root = Path(elite_lightning.__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(path for package in _PACKAGES for path in (root / package).rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return f"{elite_lightning.__version__}+{digest.hexdigest()[:12]}"
