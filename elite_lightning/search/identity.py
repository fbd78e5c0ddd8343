"""What an archive depends on, as hashes by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from elite_lightning.search.labeling import Labeler
from elite_lightning.search.settings import SearchSettings
from elite_lightning.types import Codec, Domain, Problem


def search_fingerprints(
    method: str,
    settings: SearchSettings,
    domain: Domain,
    codec: Codec,
    problems: Sequence[Problem],
    base_model: str,
    labeler: Labeler | None = None,
) -> dict[str, str]:
    """The fingerprints that go into an archive's manifest.

    Args:
        method: Way of searching, such as `MapElitesSearch.method`.
        settings: How attempts are spent.
        domain: How to ask, and what is right.
        codec: Text to tokens.
        problems: All problems, of all ranks.
        base_model: Hash of the policy's weights.
        labeler: Names approaches; None where the domain does.

    Returns:
        Hashes named `base_model`, `tokenizer`, `domain`, `problems` and `search`, and `labeler` where there is one;
        pass them, or some of them, to `EliteArchive.load`.
    """
    listed = json.dumps([[p.id, p.question, dict(p.data)] for p in problems], sort_keys=True)
    labelled = {} if labeler is None else {"labeler": labeler.fingerprint()}
    return {
        "base_model": base_model,
        "tokenizer": codec.fingerprint,
        "domain": domain.fingerprint(),
        "problems": hashlib.sha256(listed.encode()).hexdigest(),
        "search": settings.fingerprint(method, labelled.get("labeler")),
        **labelled,
    }
