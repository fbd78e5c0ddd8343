"""Find the SQL within a response. What the SQL does is the executor's business."""

from __future__ import annotations

import re

_FENCE = re.compile(r"```sql\b(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = "</think>"
_SPACE_OR_COMMENT = r"\s|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)"
_BLANK = re.compile(rf"(?:{_SPACE_OR_COMMENT})*", re.DOTALL)
_NOTHING = re.compile(rf"(?:{_SPACE_OR_COMMENT}|;)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")
QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES")
"""The words that a query can begin with."""


def first_keyword(sql: str) -> str:
    """The first word of `sql` behind white space and comments, in capitals; empty if there is none."""
    blank = _BLANK.match(sql)
    word = _WORD.match(sql, blank.end() if blank else 0)
    return word.group().upper() if word else ""


def is_blank(sql: str) -> bool:
    """Whether `sql` holds nothing but white space, comments and semicolons."""
    nothing = _NOTHING.match(sql)  # not fullmatch: it would take all up to the end for a comment without an end
    return nothing is not None and nothing.end() == len(sql)


def extract_sql(response: str) -> str | None:
    """The query that a response ends in, without surrounding white space and closing semicolons.

    Taken from the last fence marked ``sql`` if there is one (a fence that was cut off counts), else from what
    follows the last ``</think>``, else from the whole text.

    Returns:
        The query, or None if what was found does not begin with SELECT, WITH or VALUES.
    """
    fences = _FENCE.findall(response)
    text = fences[-1] if fences else response.rpartition(_END_OF_THOUGHT)[2]
    sql = str(text).strip().rstrip("; \t\r\n")
    return sql if first_keyword(sql) in QUERY_KEYWORDS else None
