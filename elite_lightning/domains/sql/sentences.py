"""Sentences behind a query that begin with a word of SQL, such as `In this query, ..` or `As requested.`.

Two witnesses have to agree before such a line ends a query: it is written like a sentence, and SQLite's own grammar
refuses the query with it. So nothing is cut off that SQLite takes as a whole, and a wrong query in SQL stays wrong.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

MOST_CHECKED = 8
"""Lines of a statement that SQLite is asked about, so that the time stays linear in the length of a text."""

MOST_BEFORE = 20_000  # characters of a query that SQLite reads again for each of these lines
MOST_BEHIND = 1_000  # characters behind the beginning of the line; a sentence is refused within its first words

_CAPITAL = r"(?:[A-Z][a-z]+|I|A)\b"
_NO_OPERATOR = r"(?!(?:[ \t]+[\w'-]+){0,2}[ \t]*[-+*/%|&=<>])"
_WORDS = rf"{_CAPITAL}{_NO_OPERATOR}(?:[ \t]*[.,:;!?…(]|[ \t]+[\w`'\"]|[ \t]*$)"
_ITEM = r"(?:[-*•]|\d{1,3}[.)])[ \t]+"
_SENTENCE = re.compile(rf"[ \t]*(?:{_ITEM}\(?{_WORDS}|\(?{_WORDS}[^\n]*(?<=[\w`'\")][.!?])[ \t]*$)", re.MULTILINE)
_PARAGRAPH = re.compile(rf"[ \t]*\(?{_WORDS}", re.MULTILINE)


def is_like_sentence(text: str, begin: int, line: int) -> bool:
    """Whether the line that begins at `line`, in the query that begins at `begin`, is written like a sentence.

    That is, its first word has a capital and small letters as the query's own first word has not, up to its third word
    there is no operator, and it is an item of a list, the first line behind a blank one, or ends in a full stop.
    """
    if text[begin : begin + 2].istitle():
        return False
    line_before = text.rfind("\n", begin, line - 1)
    behind_blank = line_before >= 0 and not text[line_before:line].strip()
    return bool(_SENTENCE.match(text, line) or (behind_blank and _PARAGRAPH.match(text, line)))


def grammar_refuses(text: str, begin: int, line: int) -> bool:
    """Whether SQLite's grammar refuses the query that begins at `begin` because of the line that begins at `line`.

    Nothing is run, and no tables are needed: SQLite reads a statement to its end before it looks for them.
    """
    if line - begin > MOST_BEFORE:
        return False
    end_of_line = text.find("\n", line, line + MOST_BEHIND)
    # The line alone first, so that a fault further behind, in SQL, is not taken for the line's.
    for end in (end_of_line, line + MOST_BEHIND) if end_of_line >= 0 else (line + MOST_BEHIND,):
        complaint = _complaint(text[begin:end])
        if complaint.endswith("syntax error"):
            return True
        if not complaint.startswith(("incomplete", "unrecognized")):
            return False
    return line + MOST_BEHIND >= len(text)


def _complaint(sql: str) -> str:
    """What SQLite says to a query, without tables and without running it; empty if it is content."""
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f"EXPLAIN {sql}")
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # ValueError: what cannot be encoded
            return str(error)
    return ""
