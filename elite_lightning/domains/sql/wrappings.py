"""Take off what a response is wrapped in, one layer a function. The rules are in `extract`.

Each function gives back what it got where there is no such layer.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

from elite_lightning.domains.sql.statements import QUERY_KEYWORDS, first_keyword, last_query, without_literals
from elite_lightning.domains.sql.syntax import QUOTED

_FINAL_CHANNEL = "<|channel|>final<|message|>"
_SPECIAL_TOKEN = re.compile(
    r"<[|｜][^|｜<>\n]{1,40}[|｜]>|</?s>|<(?:start_of_turn|end_of_turn|eos|bos|pad)>|\[/?INST\]"  # noqa: RUF001
)
_ROLES = frozenset({"", "assistant", "model", "user", "system"})
_THOUGHT = r"(?:think|thinking|thought|reasoning)"
_END_OF_THOUGHT = re.compile(rf"</{_THOUGHT}>", re.IGNORECASE)
_START_OF_THOUGHT = re.compile(rf"<{_THOUGHT}>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(answer|final_answer|sql|sql_query|query|output|response)>", re.IGNORECASE)

_KEYS = ("sql", "sql_query", "query", "final_sql", "final_answer", "answer", "response", "output", "result")
_KEY_AND_TEXT = re.compile(rf'"(?:{"|".join(_KEYS)})"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*)', re.IGNORECASE | re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)  # a real line break within a text is no reason to lose it

_KEYWORD = re.compile(rf"\b(?:{'|'.join(QUERY_KEYWORDS)})\b", re.IGNORECASE)
_QUOTED = re.compile(QUOTED)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#34|#x27|#x22);", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([nrt\"'\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def own_turn(text: str) -> str:
    """The first turn of a response that goes on with special tokens and further turns, or its final channel."""
    if not _SPECIAL_TOKEN.search(text):
        return text
    outside = without_literals(text)
    final = outside.rfind(_FINAL_CHANNEL)
    if final >= 0:
        return text[final + len(_FINAL_CHANNEL) :]
    turns = [text[begin:end] for begin, end in _between(_SPECIAL_TOKEN, outside)]
    return next((turn for turn in turns if turn.strip().lower() not in _ROLES), "") if len(turns) > 1 else text


def _between(mark: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Where the pieces of a text are that a mark separates."""
    marks = [found.span() for found in mark.finditer(text)]
    return list(zip([0, *(end for _, end in marks)], [*(begin for begin, _ in marks), len(text)], strict=True))


def without_thoughts(text: str) -> str:
    """What follows the last end of a thought, up to the beginning of another one."""
    if not (_START_OF_THOUGHT.search(text) or _END_OF_THOUGHT.search(text)):
        return text
    outside = without_literals(text)
    begin = max((found.end() for found in _END_OF_THOUGHT.finditer(outside)), default=0)
    another = _START_OF_THOUGHT.search(outside, begin)
    return text[begin : another.start() if another else len(text)]


def tagged(text: str) -> str:
    """What stands within the last of the tags that models put around answers and that holds a query.

    The closing one may be missing; a tag reaches up to the next one at most.
    """
    if not _ANSWER_TAG.search(text):
        return text
    outside = without_literals(text)
    openings = list(_ANSWER_TAG.finditer(outside))
    limit = len(text)
    for opening in reversed(openings):
        closing = re.compile(f"</{opening[1]}>", re.IGNORECASE).search(outside, opening.end(), limit)
        inner = text[opening.end() : closing.start() if closing else limit]
        if holds_query(inner):
            return inner
        limit = opening.start()
    return text


def holds_query(text: str) -> bool:
    """Whether there is a query in a piece of a response: as it stands, escaped, or in JSON."""
    return any(last_query(inner) is not None for inner in (text, unescaped(text))) or json_text(text) != text


def whole_json(text: str) -> str:
    """The query in a text that is JSON from its beginning; see `json_text`."""
    return json_text(text) if text.lstrip()[:1] in ("{", "[", '"') else text


def json_text(text: str) -> str:
    """The text in JSON that is the answer by its key, or else the last one that is a query. JSON may be cut off.

    Of several objects the last one with a query counts; JSON without a query is none of an answer.
    """
    answers = [answer for answer in _json_answers(text) if answer is not None and _may_be_query(answer)]
    return answers[-1] if answers else text


def _may_be_query(text: str) -> bool:
    return _KEYWORD.search(text) is not None


def _json_answers(text: str) -> Iterator[str | None]:
    begin = _json_begin(text)
    outside = without_literals(text) if begin >= 0 else text
    while begin >= 0:
        try:
            value, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            yield _cut_off_answer(text[begin:])
            return
        yield _answer_in(value)
        begin = outside.find("{", end)


def _json_begin(text: str) -> int:
    if first_keyword(text) in QUERY_KEYWORDS:
        return -1
    blank = len(text) - len(text.lstrip())
    return blank if text[blank : blank + 1] in ('"', "[") else without_literals(text).find("{")


def _answer_in(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return _last_query_in(value)
    by_key = {str(key).lower(): item for key, item in value.items()}
    answers = (_answer_in(by_key[key]) for key in _KEYS if key in by_key)
    return next((answer for answer in answers if answer is not None), None) or _last_query_in(value)


def _last_query_in(value: object) -> str | None:
    queries = [text for text in _texts_in(value) if first_keyword(text) in QUERY_KEYWORDS]
    return queries[-1] if queries else None


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(item)


def _cut_off_answer(text: str) -> str | None:
    found = _KEY_AND_TEXT.findall(text)
    if not found:
        return None
    try:
        return str(json.loads(found[-1] + '"', strict=False))
    except ValueError:  # cut off within an escape
        return _without_escapes(found[-1][1:])


def unescaped(text: str) -> str:
    r"""The text with `\n`, `\t`, `\"`, `\'` and `\\` for what they stand for, if SQL can not have meant them.

    That is, a query with a backslash outside of literals, or a text of one line with `\n` outside of literals.
    """
    if "\\" not in text:
        return text
    outside = _QUOTED.sub("", text.replace("```", ""))
    is_query = first_keyword(text) in QUERY_KEYWORDS
    escaped = "\\" in outside if is_query else "\\n" in outside and "\n" not in text
    return _without_escapes(text) if escaped else text


def _without_escapes(text: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def without_entities(text: str) -> str:
    """The text with HTML's entities for what they stand for, if one occurs outside of literals."""
    if "&" not in text or not _ENTITY.search(_QUOTED.sub("", text)):
        return text
    return _ENTITY.sub(lambda found: html.unescape(found[0]), text)
