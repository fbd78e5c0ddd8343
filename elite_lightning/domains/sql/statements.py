"""Where queries begin and end within a text of SQL and prose. A query is cut out as it stands, never repaired.

A query begins with SELECT, WITH name AS, or VALUES ( at the start of the text or of a line (behind `-`, `1.` or
`sqlite>` as well), and behind a colon, a semicolon or a backtick. It ends at a semicolon, at a fence, at the closing
backtick if it began behind one, or where a line of prose begins; none of them within a literal, a name in quotes or a
comment.

A line is taken for prose only where no SQL could go on like it, so that nothing is cut off a query that runs:

- it begins with a mark of Markdown: `#` or `**`;
- it has a colon with white space behind it (a parameter such as `:name` has none);
- it begins with two names side by side, as in `expression alias`, and a third word that cannot come after an alias.
"""

from __future__ import annotations

import re

QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES")
"""The words that a query can begin with."""

_SPACE_OR_COMMENT = r"\s|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)"
_BLANK = re.compile(rf"(?:{_SPACE_OR_COMMENT})*", re.DOTALL)
_NOTHING = re.compile(rf"(?:{_SPACE_OR_COMMENT}|;)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")

_NAME = r"(?:\w+|\"[^\"]{0,99}\"|`[^`]{0,99}`|\[[^\]]{0,99}\])"  # bounded, so that searching takes linear time
_QUERY = rf"(?:SELECT\b(?!`)|WITH\s+(?:RECURSIVE\s+)?{_NAME}\s*(?:\([^()]*\)\s*)?AS\b|VALUES\s*\()"
_BULLET = r"(?:(?:[-*>]|\d+[.)]|\w{1,20}>)[ \t]+)?"
_STATEMENT = re.compile(_QUERY, re.IGNORECASE)
_START = re.compile(rf"(?:^[ \t]*{_BULLET}|[:;`][ \t]*\n?[ \t]*)(?P<query>{_QUERY})", re.IGNORECASE | re.MULTILINE)
_STOP = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|```|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|\n""", re.DOTALL
)

_RESERVED = (
    "SELECT DISTINCT ALL FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET UNION INTERSECT EXCEPT JOIN LEFT RIGHT FULL "
    "INNER OUTER CROSS NATURAL ON USING AS AND OR NOT IN IS NULL ISNULL NOTNULL LIKE GLOB REGEXP MATCH ESCAPE BETWEEN "
    "CASE WHEN THEN ELSE END CAST COLLATE ASC DESC NULLS EXISTS OVER FILTER WINDOW WITH RECURSIVE VALUES INDEXED"
).replace(" ", "|")
_AFTER_ALIAS = (
    "FROM WHERE GROUP HAVING ORDER LIMIT UNION INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS NATURAL ON USING "
    "WINDOW INDEXED NOT"
).replace(" ", "|")
_PLAIN_WORD = rf"(?!(?:{_RESERVED})\b)[^\W\d]\w*"
_WORDS_OF_PROSE = rf"{_PLAIN_WORD}[ \t]+{_PLAIN_WORD}[ \t]+(?!(?:{_AFTER_ALIAS})\b)[^\W\d]"
_COLON = r"(?:(?!--|/\*)[^\n'\"`\[:])*:(?:\s|\Z)"
_PROSE = re.compile(rf"[ \t]*(?:\#|\*\*|{_COLON}|{_WORDS_OF_PROSE})", re.IGNORECASE)
_PROSE_AS_PROJECTION = re.compile(rf"SELECT[ \t]+(?:DISTINCT[ \t]+)?{_WORDS_OF_PROSE}", re.IGNORECASE)


def first_keyword(sql: str) -> str:
    """The first word of `sql` behind white space and comments, in capitals; empty if there is none."""
    word = _WORD.match(sql, _leading_blank(sql))
    return word.group().upper() if word else ""


def is_blank(sql: str) -> bool:
    """Whether `sql` holds nothing but white space, comments and semicolons."""
    nothing = _NOTHING.match(sql)  # not fullmatch: it would take all up to the end for a comment without an end
    return nothing is not None and nothing.end() == len(sql)


def begins_with_query(text: str) -> bool:
    """Whether a text begins with a query, be it behind comments, and not with a sentence."""
    return _begins(text, _leading_blank(text))


def last_query(text: str) -> str | None:
    """The last query of a text as it stands, the first one with the comments before it; None if there is none."""
    last = None
    position = _leading_blank(text)
    if _begins(text, position):
        position = _end(text, position)
        last = text[:position]
    while (start := _START.search(text, position)) is not None:
        begin = start.start("query")
        position = _end(text, begin) if _begins(text, begin) else start.end()
        if _begins(text, begin):
            last = text[begin:position]
    if last is None and first_keyword(text) in QUERY_KEYWORDS:  # not quite a query, but for SQLite to say so
        last = text[: _end(text, 0)]
    return last.strip() if last is not None else None


def _leading_blank(text: str) -> int:
    blank = _BLANK.match(text)
    return blank.end() if blank else 0


def _begins(text: str, position: int) -> bool:
    """Whether a query begins here, and not a sentence such as `Select only those rows`."""
    return bool(_STATEMENT.match(text, position)) and not _PROSE_AS_PROJECTION.match(text, position)


def _end(text: str, begin: int) -> int:
    """Where the statement that begins at `begin` ends."""
    if begin and text[begin - 1] == "`":  # code within a line, which holds no other backtick
        closing = text.find("`", begin)
        return closing if closing >= 0 else len(text)
    for stop in _STOP.finditer(text, begin):
        mark = stop.group()
        if mark in (";", "```") or (mark == "\n" and _PROSE.match(text, stop.end())):
            return stop.start()
    return len(text)
