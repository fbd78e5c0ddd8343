"""Seeds that are derived from what they are for, so that no result depends on the order in which things happen."""

from __future__ import annotations

import hashlib
import json


def derive_seed(*parts: int | str) -> int:
    """Hash the parts into one seed.

    The same parts give the same seed in every process and on every machine (Python's own `hash` does not), and
    parts that differ give unrelated streams.

    Args:
        parts: What the seed is for, such as `(settings.seed, "generate", round, batch)`.

    Returns:
        Integer of 63 bits, which torch, NumPy and `random` all take.
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
