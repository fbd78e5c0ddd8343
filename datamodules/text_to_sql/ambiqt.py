"""AmbiQT (Bhaskar 2023, arXiv 2310.13659): Spider's questions where the schema allows two readings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from datamodules.text_to_sql.ambiqt_databases import AMBIGUITY_KEYS, AmbiguousDatabase, cache_name, write_database
from datamodules.text_to_sql.files import Record, read_records
from datamodules.text_to_sql.folder import FolderSource, Questions
from datamodules.text_to_sql.names import require_databases
from elite_lightning.domains.sql import SqlDomain
from elite_lightning.types import Problem

Kind = Literal["col-synonyms", "tbl-synonyms", "tbl-split", "tbl-agg"]

DATABASES = Path("db-content", "database")
"""Where Spider's databases are, in the data set's folder."""


class AmbiqtSource(FolderSource):
    """AmbiQT: `benchmark/<kind>/validation.json`, with Spider's databases in `db-content/database`.

    The benchmark changes schemas on paper only. So that queries can run, the changed databases are made on first use,
    one for each change: with both synonyms in the place of a column or a table, or with the further table of a split
    or of an aggregate. The synonyms hold the same rows: by execution, both readings are right.

    There is no training file (`tbl-agg/train.json` is of another kind and has no databases here): the original
    databases are shared out. `data["golds"]` has both queries, `data["gold"]` the first; for the official rule,
    which rewrites predictions, `data["original"]` has Spider's query and database, and `data["ambiguity"]` what the
    file says about the change.

    Args:
        root: The folder that holds `benchmark` and `db-content`.
        kinds: Kinds of ambiguity to use.
        cache: Where changed databases are written (some 30 MB for all).
        options: What every benchmark takes.
    """

    title: ClassVar[str] = "AmbiQT"

    def __init__(
        self,
        root: str | None = None,
        kinds: Sequence[Kind] = ("col-synonyms", "tbl-synonyms", "tbl-split", "tbl-agg"),
        cache: str = ".cache/ambiqt",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.kinds = tuple(kinds)
        self.cache = cache
        self._changed: Path | None = None

    def database_folder(self, root: Path) -> Path:
        """The cache of changed databases; the data set's own folder is only read."""
        if self._changed is None:
            self._changed = Path(self.cache) / cache_name(root / DATABASES)
        return self._changed

    def read(self, root: Path) -> Questions:
        """The problems of every kind's validation file."""
        found: list[Problem] = []
        for kind in self.kinds:
            records = read_records(
                root / "benchmark" / kind / "validation.json", ("db_id", "question", "orig_query", "query1", "query2")
            )
            found += [_problem(record, kind, number) for number, record in enumerate(records)]
        return Questions(None, found)

    def prepare(self, root: Path, problems: Sequence[Problem]) -> None:
        """Make the changed databases that are not there yet."""
        originals = root / DATABASES
        require_databases(originals, [str(problem.data["db_id"]) for problem in problems])
        for problem in {str(problem.data["database"]): problem for problem in problems}.values():
            name, original = str(problem.data["database"]), str(problem.data["db_id"])
            change = AmbiguousDatabase(problem.data["kind"], problem.data["ambiguity"])
            write_database(originals / original / f"{original}.sqlite", self.database_folder(root) / name, change)

    def new_domain(self, root: Path, used: Sequence[str]) -> SqlDomain:
        """The domain over the changed databases; the original ones are for the official rule of coverage."""
        folder, originals = self.database_folder(root), root / DATABASES
        return SqlDomain(folder, self.limits, self.prompts, used, self.rule, originals=originals)


def _problem(record: Record, kind: str, number: int) -> Problem:
    ambiguity = {key: record.get(key) for key in AMBIGUITY_KEYS[kind]}
    change = json.dumps(ambiguity, sort_keys=True)
    data = {
        "database": f"{record['db_id']}-{kind}-{hashlib.sha256(change.encode()).hexdigest()[:12]}",
        "db_id": record["db_id"],
        "kind": kind,
        "gold": record["query1"],
        "golds": [record["query1"], record["query2"]],
        "original": {"database": record["db_id"], "gold": record["orig_query"]},
        "ambiguity": ambiguity,
    }
    return Problem(f"ambiqt-{kind}-{number}", record["question"], data)
