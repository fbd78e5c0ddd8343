"""The prompt for general and instruct models: DDL, keys, sample values, descriptions and evidence, within a budget."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from elite_lightning.domains.sql.ddl import Column, Table, read_tables
from elite_lightning.domains.sql.descriptions import FOLDER, Description, read_descriptions
from elite_lightning.domains.sql.prompts import SqlPrompt
from elite_lightning.domains.sql.schema_cut import KINDS, Cut, DescribedSchema, cuts_in_order, schema_ddl
from elite_lightning.types import Problem

INSTRUCTION = "Write one SQLite query that answers the question. Give it alone, in a block that starts with ```sql."
ESTIMATED_BYTES_PER_TOKEN = 3
REMEMBERED_FITS = 65_536


class Asked(NamedTuple):
    """What a prompt says besides the schema."""

    question: str
    evidence: str = ""
    target: str | None = None
    parent: str | None = None

    @property
    def related(self) -> str:
        """All that tells which parts of the schema matter."""
        return " ".join((self.question, self.evidence, self.parent or ""))


def _estimated_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // ESTIMATED_BYTES_PER_TOKEN)


class DdlPrompt(SqlPrompt):
    """CREATE TABLE statements with types, keys, sample values and descriptions, then evidence and question.

    Descriptions are those of BIRD's `database_description` folder beside a database, evidence is the problem's
    `data["evidence"]`; both may be absent. The prompt is plain text; a chat model's template is put around it with the
    tokens, by the codec.

    A prompt of more than `max_tokens` loses parts of its schema in the order that `schema_cut.py` states, never a part
    of the evidence, the question or the parent. The limit is in tokens, because that is what a model's context and a
    step's memory are counted in, and tokens are counted exactly: the module hands over the codec's own count
    (`count_tokens_with`). A limit in characters would need no tokenizer, but would have to leave a third of the budget
    unused for the schemas that split into many tokens. Until a count is handed over, 3 bytes of UTF-8 count as a token.

    Args:
        max_tokens: Longest prompt, in tokens, chat template included; null for no limit.
        values: Most sample values of a column.
        value_characters: Longer values are cut off there.
        descriptions: Whether to show the descriptions of columns.
        description_characters: Longer descriptions are cut off there.
        instruction: What to do, between the question and the answer.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        max_tokens: int | None = 3072,
        values: int = 3,
        value_characters: int = 40,
        descriptions: bool = True,
        description_characters: int = 200,
        instruction: str = INSTRUCTION,
    ) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"prompts.max_tokens must be at least 1, or null for no limit, got {max_tokens}")
        if min(values, value_characters, description_characters) < 0:
            raise ValueError("prompts.values, value_characters and description_characters must be at least 0")
        self._settings = (max_tokens, values, value_characters, descriptions, description_characters, instruction)
        self.max_tokens, self.values, self.value_characters = max_tokens, values, value_characters
        self.descriptions, self.description_characters = descriptions, description_characters
        self.instruction = instruction
        self._tokens_of: Callable[[str], int] = _estimated_tokens
        self._schema = lru_cache(maxsize=None)(self._read)
        self._forget()

    def __reduce__(self) -> tuple[type[DdlPrompt], tuple[Any, ...]]:
        return type(self), self._settings

    def identity(self) -> list[Any]:
        """The settings, and the prompt of an example that has every part of the form."""
        columns = (Column("id", "INTEGER", 1, None, ("1",)), Column("of", "INT", 2, ("t", "id")))
        schema = DescribedSchema((Table("t", columns),), {("t", "id"): Description("key", "a key")})
        asked = Asked("question", "evidence", "order_limit", "SELECT 1")
        return [*self._settings, self._text(schema, asked, cuts_in_order(schema, "id")[:1])]

    def files(self, database: Path) -> Sequence[Path]:
        """The description files."""
        return sorted((database.parent / FOLDER).glob("*.csv")) if self.descriptions else ()

    def count_tokens_with(self, tokens_of: Callable[[str], int]) -> None:
        """Count tokens like this from now on."""
        self._tokens_of = tokens_of
        self._forget()

    def write(self, database: Path, problem: Problem, target: str | None = None, parent: str | None = None) -> str:
        """The prompt, cut to the budget."""
        schema = self._schema(database)
        asked = Asked(problem.question, str(problem.data.get("evidence") or ""), target, parent)
        count = self._fit(database, asked)
        return self._text(schema, asked, cuts_in_order(schema, asked.related)[:count] if count else ())

    def cut_report(self) -> str | None:
        """How many of the prompts so far were cut, and in how many what kind of thing is missing."""
        if not self._prompts_cut:
            return None
        parts = ", ".join(f"{kind} in {self._kinds_cut[kind]}" for kind in KINDS if self._kinds_cut[kind])
        report = (
            f"{self._prompts_cut} of {self._prompts_written} prompts were longer than prompts.max_tokens="
            f"{self.max_tokens} and were cut: {parts}"
        )
        return report + (f"; {self._prompts_too_long} are still longer" if self._prompts_too_long else "")

    def _forget(self) -> None:
        self._fit = lru_cache(maxsize=REMEMBERED_FITS)(self._find_fit)
        self._kinds_cut: Counter[str] = Counter()
        self._prompts_written = self._prompts_cut = self._prompts_too_long = 0

    def _read(self, database: Path) -> DescribedSchema:
        tables = read_tables(database, self.values, self.value_characters)
        return DescribedSchema(tables, read_descriptions(database) if self.descriptions else {})

    def _find_fit(self, database: Path, asked: Asked) -> int:
        """The smallest number of cuts with which the prompt fits; all of them where none is enough."""
        self._prompts_written += 1
        schema = self._schema(database)
        if self._fits_in(self._text(schema, asked, ())):
            return 0
        cuts = cuts_in_order(schema, asked.related)
        enough = bisect_left(
            range(1, len(cuts)), True, key=lambda n: self._fits_in(self._text(schema, asked, cuts[:n]))
        )
        made = cuts[: enough + 1]
        self._prompts_cut += 1
        self._prompts_too_long += not self._fits_in(self._text(schema, asked, made))
        self._kinds_cut.update({cut.kind for cut in made})
        return len(made)

    def _fits_in(self, text: str) -> bool:
        return self.max_tokens is None or self._tokens_of(text) <= self.max_tokens

    def _text(self, schema: DescribedSchema, asked: Asked, cuts: Sequence[Cut]) -> str:
        """The prompt with these cuts made."""
        parts = [schema_ddl(schema, cuts, self.description_characters), ""]
        parts += [f"Hint: {asked.evidence}"] if asked.evidence else []
        parts.append(f"Question: {asked.question}")
        if asked.target is not None:
            parts.append(f"Approach to take: {asked.target.replace('_', ' ')}")
        if asked.parent is not None:
            parts.append(f"A right query that takes another approach: {asked.parent}")
        return "\n".join([*parts, self.instruction])
