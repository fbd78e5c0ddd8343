"""A key from the tokens alone, for what `syntax` does not parse.

Two queries have one fallback key when they differ in white space, comments, upper and lower case, quotes, literals, the
length of a list of literals behind IN, and a closing semicolon. Unlike the key from the syntax tree it knows no scopes:
other aliases, superfluous parentheses and another order of operands give another key, never the same for another query.

Tokens are SQLite's (https://www.sqlite.org/lang_keywords.html, https://www.sqlite.org/lang_expr.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from elite_lightning.domains.sql.scopes import written
from elite_lightning.domains.sql.syntax import Tables, without_comments

_TOKEN = re.compile(
    r"""(?P<literal>x?'(?:[^']|'')*(?:'|\Z)|0x[\da-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|\?\d*|[:@$]\w+)
    |(?P<name>"(?:[^"]|"")*(?:"|\Z)|`(?:[^`]|``)*(?:`|\Z)|\[[^\]]*(?:\]|\Z))
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign>->>|->|\|\||<=|>=|<>|!=|==|<<|>>|\S)""",
    re.VERBOSE | re.IGNORECASE,
)
_SPELLINGS = {"==": "=", "!=": "<>"}
_LITERAL_LIST = re.compile(r"(?<=\bin \( )\?(?: , \?)+(?= \))")


def fallback_text(sql: str, tables: Tables | None = None) -> str:
    """The tokens of a query, those that do not matter left out. Never raises.

    Args:
        sql: The query as the policy wrote it.
        tables: The database's columns; without them a text in double quotes is taken for a name.
    """
    sql = without_comments(sql)
    words = {found.group("word").lower() for found in _TOKEN.finditer(sql) if found.group("word")}
    known = words.union(tables, *tables.values()) if tables is not None else None
    text = " ".join(_tokens(sql, known)).rstrip("; ")
    return _LITERAL_LIST.sub("?", text)


def _tokens(sql: str, known: set[str] | None) -> Iterator[str]:
    for found in _TOKEN.finditer(sql):
        text, kind = found.group(), found.lastgroup
        if kind == "literal":
            yield "?"
        elif kind == "name":
            name = _unquoted(text)
            # SQLite takes a name in double quotes that is no name for a text.
            yield "?" if text[0] == '"' and known is not None and name not in known else written(name)
        else:
            yield _SPELLINGS.get(text, text.lower())


def _unquoted(text: str) -> str:
    closing = {"[": "]"}.get(text[0], text[0])
    name = text[1:].removesuffix(closing).lower()
    return name if text[0] == "[" else name.replace(closing * 2, closing)
