"""Where queries begin and end within a text of SQL and prose. A query is cut out as it stands, never repaired.

A query begins with SELECT, WITH name AS, or VALUES ( at the start of the text or of a line (behind `-`, `1.` or
`sqlite>` as well), and behind a colon, a semicolon or a backtick. It ends at a semicolon, at a fence, at the closing
backtick if it began behind one, or where a line of prose begins; none of them within a literal, a name in quotes or a
comment. A line that begins with `Question:` or the like behind a query begins another turn, in which nothing counts.

A line is taken for prose only where no SQL could go on like it, so that nothing is cut off a query that runs:

- it begins with a mark of Markdown, `#` or `**`, or with a tag and holds the closing one;
- it has a colon with white space behind it (a parameter such as `:name` has none);
- it begins with two names side by side, as in `expression alias`, and a third word that cannot come after an alias;
- it is written like a sentence, and SQLite's own grammar refuses the query with it (`sentences`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from elite_lightning.domains.sql.sentences import MOST_CHECKED, grammar_refuses, is_like_sentence

QUERY_KEYWORDS = ("SELECT", "WITH", "VALUES")
"""The words that a query can begin with."""

_SPACE_OR_COMMENT = r"\s|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z)"
_BLANK = re.compile(rf"(?:{_SPACE_OR_COMMENT})*", re.DOTALL)
_NOTHING = re.compile(rf"(?:{_SPACE_OR_COMMENT}|;)*", re.DOTALL)
_WORD = re.compile(r"[A-Za-z]+")

_NAME = r"(?:\w+|\"[^\"]{0,99}\"|`[^`]{0,99}`|\[[^\]]{0,99}\])"  # bounded, so that searching takes linear time
_AS = r"AS\b(?![ \t]+(?!(?:SELECT|VALUES|WITH|NOT|MATERIALIZED)\b)[^\W\d])"  # `With x as the table` is prose
_QUERY = rf"(?:SELECT\b(?!`)|WITH\s+(?:RECURSIVE\s+)?{_NAME}\s*(?:\([^()]*\)\s*)?{_AS}|VALUES\s*\()"
_BULLET = r"(?:(?:[-*>]|\d+[.)]|\w{1,20}>)[ \t]+)?"
_STATEMENT = re.compile(_QUERY, re.IGNORECASE)
_BEFORE_QUERY = rf"(?:^[ \t]*{_BULLET}|[:;`][ \t]*\n?[ \t]*|```\w{{1,20}}[ \t]+)"
_START = re.compile(rf"{_BEFORE_QUERY}(?P<query>{_QUERY})", re.IGNORECASE | re.MULTILINE)
_STOP = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|```|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|;|\n""", re.DOTALL
)

_LITERAL = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|(?<=[a-z])'(?:s|t|d|m|re|ve|ll)\b|(?P<literal>'[^'\n]*'|"[^"\n]*")"""
    r"""|'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)""",
    re.DOTALL | re.IGNORECASE,
)
_NEXT_QUESTION = re.compile(
    r"^[ \t]*(?:#+[ \t]*|\*\*)?(?:question|q|user|human|instruction)(?:[ \t]*\d+)?(?:\*\*)?[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
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
_TAGS = r"<(?P<tag>\w{1,20})>(?=[^\n]*</(?P=tag)>)|</\w{1,20}>"
_PROSE = re.compile(rf"[ \t]*(?:\#|\*\*|{_TAGS}|{_COLON}|{_WORDS_OF_PROSE})", re.IGNORECASE)
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
    """The last query of a text, up to a next question, as it stands; the first one with the comments before it."""
    spans = list(_spans(text))
    if spans:
        pairs = pairwise(spans)
        turns = [place for place, (one, other) in enumerate(pairs) if _NEXT_QUESTION.search(text, one[1], other[0])]
        begin, end = spans[turns[0] if turns else -1]
        return text[begin:end].strip()
    if first_keyword(text) in QUERY_KEYWORDS:  # not quite a query, but for SQLite to say so
        return text[: _end(text, 0)].strip()
    return None


def without_literals(text: str) -> str:
    """A text of the same length with `x` for all that stands in literals of queries, where nothing is a wrapping.

    A literal that does not end in its line is left: the next quote may as well be one of the prose behind a query that
    was cut off or wrongly quoted. So is an apostrophe behind a letter.
    """
    if "'" not in text and '"' not in text:
        return text
    parts, position = [], 0
    for begin, end in _spans(text):
        parts += [text[position:begin], _LITERAL.sub(_blackened, text[begin:end])]
        position = end
    return "".join([*parts, text[position:]])


def _blackened(found: re.Match[str]) -> str:
    return "x" * len(found[0]) if found["literal"] else found[0]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the queries of a text begin and end; the first begins at 0 if nothing but comments is before it."""
    position = _leading_blank(text)
    if _begins(text, position):
        position = _end(text, position)
        yield 0, position
    while (start := _START.search(text, position)) is not None:
        begin = start.start("query")
        position = _end(text, begin) if _begins(text, begin) else start.end()
        if _begins(text, begin):
            yield begin, position


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
    checked = 0
    for stop in _STOP.finditer(text, begin):
        mark, line = stop.group(), stop.end()
        if mark in (";", "```") or (mark == "\n" and _PROSE.match(text, line)):
            return stop.start()
        if mark == "\n" and checked < MOST_CHECKED and is_like_sentence(text, begin, line):
            checked += 1
            if grammar_refuses(text, begin, line):
                return stop.start()
    return len(text)
