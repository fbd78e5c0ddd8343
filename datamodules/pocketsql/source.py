"""PocketSQL as a problem source: writes its databases and problems once, then reads them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from datamodules.drafts import make_once
from datamodules.pocketsql.databases import nullable_keys, write_databases
from datamodules.pocketsql.problems import PocketProblem, make_problems
from datamodules.pocketsql.random_schemas import random_schemas
from datamodules.pocketsql.schema_text import PocketSchema
from datamodules.pocketsql.schemas import SPLITS
from datamodules.sources import ProblemSource, read_problems
from elite_lightning.domains.sql import SqlDomain
from elite_lightning.types import Problem

COUNTS = {"train": 1536, "validation": 96, "test": 96}
# On few databases a small policy learns their names instead of reading them, and forgets how to read others.
RANDOM_DATABASES = 244


class PocketSqlSource(ProblemSource):
    """The bundled benchmark: seventeen families of questions on 264 databases.

    Training has 12 handwritten databases and 244 random ones, validation and test have four handwritten ones each.

    Args:
        root: Where databases and problems are written on first use (about 15 MB, some seconds).
        train_problems: How many of the 1,536 training problems to use; families stay balanced.
        seed: Of rows and questions; another seed is another benchmark.

    Raises:
        ValueError: If `train_problems` is not between 1 and 1,536.
    """

    checked: ClassVar[bool] = True

    def __init__(self, root: str = ".cache/pocketsql", train_problems: int = COUNTS["train"], seed: int = 0) -> None:
        if not 1 <= train_problems <= COUNTS["train"]:
            raise ValueError(f"source.train_problems must be between 1 and {COUNTS['train']}, got {train_problems}")
        self.train_problems = train_problems
        self.folder = prepare(Path(root), seed)

    @cached_property
    def domain(self) -> SqlDomain:
        """The SQL domain over PocketSQL's databases."""
        return SqlDomain(self.folder / "databases")

    def train(self) -> Sequence[Problem]:
        """Problems on the training databases, about six on each."""
        return read_problems(self.folder / "train.jsonl")[: self.train_problems]

    def validation(self) -> Sequence[Problem]:
        """Problems on four databases, and in words, that training never shows."""
        return read_problems(self.folder / "validation.jsonl")

    def test(self) -> Sequence[Problem]:
        """Problems on four other databases, in other words again."""
        return read_problems(self.folder / "test.jsonl")


def prepare(root: Path, seed: int) -> Path:
    """Make the benchmark unless it is there.

    The folder's name holds a hash of the generator, so that a changed generator never meets old files.

    Args:
        root: Parent of the folder.
        seed: Of rows and questions.

    Returns:
        The folder with `databases/` and one JSON Lines file a split.
    """
    return make_once(root / f"{_generator_hash()}-seed{seed}", lambda draft: _write(draft, seed))


def split_schemas(seed: int) -> dict[str, dict[str, PocketSchema]]:
    """The schemas of every split by name: the handwritten ones, and for training random ones besides.

    Args:
        seed: Of the benchmark.
    """
    return SPLITS | {"train": SPLITS["train"] | random_schemas(RANDOM_DATABASES, seed)}


def _generator_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _write(folder: Path, seed: int) -> None:
    databases = folder / "databases"
    for split, schemas in split_schemas(seed).items():
        nullable = nullable_keys(schemas.values())
        for schema in schemas.values():
            write_databases(schema, databases, seed, nullable)
        problems = make_problems(split, schemas, databases, COUNTS[split], seed)
        (folder / f"{split}.jsonl").write_text("".join(_line(made) for made in problems), encoding="utf-8")


def _line(made: PocketProblem) -> str:
    problem = made.problem
    return json.dumps({"id": problem.id, "question": problem.question, "data": dict(problem.data)}) + "\n"
