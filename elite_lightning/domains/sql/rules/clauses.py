"""Find the clauses of a query's outermost SELECT in its text, without rewriting any of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from elite_lightning.domains.sql.syntax import tokens_of

_AFTER_ITEMS = {
    *(TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.WINDOW, TokenType.ORDER_BY),
    *(TokenType.LIMIT, TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT, TokenType.SEMICOLON),
}
_LAST = {TokenType.LIMIT, TokenType.SEMICOLON}
_LITERALS = {TokenType.STRING, TokenType.NUMBER, TokenType.HEX_STRING}
_INTEGER = re.compile(r"\d+|0[xX][0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a query: its tokens, and the text of the whole query, in which they have their places."""

    sql: str
    tokens: tuple[Token, ...]

    @property
    def text(self) -> str:
        """The part as it was written."""
        return self.sql[self.tokens[0].start : self.tokens[-1].end + 1] if self.tokens else ""

    def value(self) -> Term:
        """A term of ORDER BY without what says how to sort: directions, collations, and parentheses around all."""
        tokens = _without_direction(self.tokens)
        while True:
            if len(tokens) > 2 and tokens[-2].token_type is TokenType.COLLATE:
                tokens = tokens[:-2]
            elif _enclosed(tokens):
                tokens = tokens[1:-1]
            else:
                return Term(self.sql, tokens)

    def number(self) -> int | None:
        """The number of the column that SQLite takes a term of ORDER BY for, if it does: `2`, `+2` and `0x2` are."""
        signs, last = self.tokens[:-1], self.sql[self.tokens[-1].start : self.tokens[-1].end + 1]
        if not _INTEGER.fullmatch(last) or any(sign.text not in ("+", "-") for sign in signs):
            return None
        return int(last, 16) if last[:2] in ("0x", "0X") else int(last)

    def name(self) -> str:
        """The name in lower case, if the term is nothing but one, else an empty text."""
        return _name(self.tokens[0]) if len(self.tokens) == 1 else ""

    def names_any(self, names: Sequence[str]) -> bool:
        """Whether one of these names, in lower case, stands anywhere as a name by itself."""
        before = (None, *self.tokens[:-1])
        return any(
            _name(token) in names and _name(token) and (last is None or last.token_type is not TokenType.DOT)
            for last, token in zip(before, self.tokens, strict=True)
        )

    def ending(self, alias: str) -> str:
        """`alias`, if it is empty or the last token, else what the last token is."""
        return alias if not alias or not self.tokens else self.tokens[-1].text.lower()

    def without_alias(self) -> Term:
        """An item of SELECT without the alias that it ends with."""
        tokens = self.tokens[:-1]
        return Term(self.sql, tokens[:-1] if tokens and tokens[-1].token_type is TokenType.ALIAS else tokens)

    def same_as(self, other: Term) -> bool:
        """Whether both are the same tokens, names in any case and quotation."""
        return list(map(_meaning, self.tokens)) == list(map(_meaning, other.tokens))


@dataclass(frozen=True, slots=True)
class Clauses:
    """The outermost SELECT (of several that are combined, the first) and the ORDER BY and LIMIT at the end.

    Args:
        sql: The query.
        items: What is selected.
        terms: The terms of ORDER BY.
        end: Where LIMIT begins, or the query ends.
    """

    sql: str
    items: tuple[Term, ...]
    terms: tuple[Term, ...]
    end: int

    def with_columns(self, columns: Sequence[str]) -> str:
        """The query without its LIMIT, and with further columns behind the last item."""
        if not columns:
            return self.sql[: self.end]
        place = self.items[-1].tokens[-1].end + 1
        further = "".join(f", ({column})" for column in columns)
        return self.sql[:place] + further + self.sql[place : self.end]


def clauses_of(sql: str) -> Clauses:
    """The clauses of a query without comments that `parse_query` can parse."""
    tokens = tokens_of(sql)
    top = _top_level(tokens)
    end = min((token.start for token in map(tokens.__getitem__, top) if token.token_type in _LAST), default=len(sql))
    inside = [index for index in top if tokens[index].start < end]
    return Clauses(sql, _items(sql, tokens, inside), _terms(sql, tokens, inside), end)


def _top_level(tokens: Sequence[Token]) -> list[int]:
    """Indices of the tokens outside of all parentheses, and of opening ones."""
    depth, found = 0, []
    for index, token in enumerate(tokens):
        depth -= token.token_type is TokenType.R_PAREN
        if depth == 0:
            found.append(index)
        depth += token.token_type is TokenType.L_PAREN
    return found


def _items(sql: str, tokens: Sequence[Token], top: list[int]) -> tuple[Term, ...]:
    begin = next((index + 1 for index in top if tokens[index].token_type is TokenType.SELECT), None)
    if begin is None:
        return ()
    begin += tokens[begin].token_type in (TokenType.DISTINCT, TokenType.ALL)
    inside = [index for index in top if index >= begin]
    end = next((index for index in inside if _ends_items(tokens, index)), top[-1] + 1)
    return _parted(sql, tokens, [index for index in inside if index < end], end)


def _ends_items(tokens: Sequence[Token], index: int) -> bool:
    is_distinct_from = tokens[index - 1].token_type is TokenType.DISTINCT
    return tokens[index].token_type in _AFTER_ITEMS and not is_distinct_from


def _terms(sql: str, tokens: Sequence[Token], top: list[int]) -> tuple[Term, ...]:
    begins = [index + 1 for index in top if tokens[index].token_type is TokenType.ORDER_BY]
    if not begins:
        return ()
    inside = [index for index in top if index >= begins[-1]]
    return _parted(sql, tokens, inside, top[-1] + 1)


def _parted(sql: str, tokens: Sequence[Token], top: list[int], end: int) -> tuple[Term, ...]:
    """What stands between the commas that are not in parentheses."""
    if not top:
        return ()
    commas = [index for index in top if tokens[index].token_type is TokenType.COMMA]
    begins = [top[0], *(index + 1 for index in commas)]
    return tuple(Term(sql, tuple(tokens[a:b])) for a, b in zip(begins, [*commas, end], strict=True))


def _without_direction(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    if len(tokens) > 2 and tokens[-2].text.upper() == "NULLS":
        tokens = tokens[:-2]
    return tokens[:-1] if len(tokens) > 1 and tokens[-1].text.upper() in ("ASC", "DESC") else tokens


def _enclosed(tokens: tuple[Token, ...]) -> bool:
    """Whether the first parenthesis is closed by the last token."""
    if len(tokens) < 3 or tokens[0].token_type is not TokenType.L_PAREN:
        return False
    return _top_level(tokens) == [0, len(tokens) - 1]


def _name(token: Token) -> str:
    return "" if token.token_type in _LITERALS else token.text.lower()


def _meaning(token: Token) -> tuple[bool, str]:
    literal = token.token_type in _LITERALS
    return literal, token.text if literal else token.text.lower()
