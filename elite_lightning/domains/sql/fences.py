"""The blocks of code in a response: between fences of three or more backticks or tildes."""

from __future__ import annotations

import re
from typing import NamedTuple

from elite_lightning.domains.sql.statements import without_literals

SQL_LANGUAGES = frozenset(
    {"sql", "sqlite", "sqlite3", "mysql", "mariadb", "postgresql", "postgres", "psql", "plsql", "tsql", "mssql"}
    | {"oracle", "duckdb", "bigquery", "snowflake"}
)
"""What a fence of SQL may be marked with, in lower case."""

_FENCE = re.compile(r"(?P<mark>`{3,}|^[ \t]*~{3,})(?P<word>[\w+#.-]*)(?P<rest>[^\S\n]*\n?)", re.MULTILINE)


_PARTIAL_FENCE = re.compile(r"\n[ \t]*`{1,2}[ \t]*\Z")


class Block(NamedTuple):
    """A piece of a response: a block, or what stands outside of them (`is_code` is false)."""

    text: str
    is_code: bool
    is_sql: bool


class _Open(NamedTuple):
    """A fence that is open: its mark (empty outside of fences), whether it says SQL, and where its content begins."""

    mark: str
    is_sql: bool
    begin: int


def split_blocks(text: str) -> list[Block]:
    """A response as blocks in their order; the last one may lack its closing fence.

    A fence that is marked as SQL always opens a block, also within another one. Any other closes the open block if it
    is made of the same characters, and at least as many. Where the prompt ended in an opening fence the first block is
    code although it is said to be none. A fence within a literal of a query is none.
    """
    blocks: list[Block] = []
    current = _Open("", False, 0)
    for fence in _FENCE.finditer(without_literals(text) if _FENCE.search(text) else text):
        mark, says_sql = fence["mark"].strip(), fence["word"].lower() in SQL_LANGUAGES
        if current.mark and not says_sql and not mark.startswith(current.mark):
            continue  # a shorter or other fence within the block
        blocks.append(Block(text[current.begin : fence.start()], bool(current.mark), current.is_sql))
        if current.mark and not says_sql:
            current = _Open("", False, fence.end("mark"))
        else:
            current = _Open(mark, says_sql, _content_begin(fence, says_sql))
    blocks.append(Block(text[current.begin :], bool(current.mark), current.is_sql))
    return blocks


def _content_begin(fence: re.Match[str], says_sql: bool) -> int:
    """A word behind an opening fence names a language if it says SQL or stands alone in its line."""
    return fence.end() if says_sql or fence["rest"].endswith("\n") else fence.end("mark")


def without_partial_fence(text: str) -> str:
    """The text without the one or two backticks in a last line that are the beginning of a closing fence."""
    return _PARTIAL_FENCE.sub("", text)
