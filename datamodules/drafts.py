"""Folders that are made once and kept, by whichever process comes first."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """Make a folder unless it is there; several processes may do so at once, and none ever sees half of it.

    Args:
        folder: What is to be there.
        write: Fills the empty folder that it is given; always with the same content for the same `folder`.

    Returns:
        `folder`.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".draft-"))
    try:
        write(draft)
        os.replace(draft, folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, with the same content
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
