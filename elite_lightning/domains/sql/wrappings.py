"""Take off what a response is wrapped in, one layer a function. The rules are in `extract`.

Each function gives back what it got where there is no such layer.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

from elite_lightning.domains.sql.statements import QUERY_KEYWORDS, first_keyword
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

_QUOTED = re.compile(QUOTED)
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#39|#34|#x27|#x22);", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([nrt\"'\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def own_turn(text: str) -> str:
    """The first turn of a response that goes on with special tokens and further turns, or its final channel."""
    final = text.rfind(_FINAL_CHANNEL)
    if final >= 0:
        return text[final + len(_FINAL_CHANNEL) :]
    turns = _SPECIAL_TOKEN.split(text)
    return next((turn for turn in turns if turn.strip().lower() not in _ROLES), "") if len(turns) > 1 else text


def without_thoughts(text: str) -> str:
    """What follows the last end of a thought, up to the beginning of another one."""
    ends = [found.end() for found in _END_OF_THOUGHT.finditer(text)]
    answer = text[ends[-1] :] if ends else text
    begin = _START_OF_THOUGHT.search(answer)
    return answer[: begin.start()] if begin else answer


def tagged(text: str) -> str:
    """What stands within the last of the tags that models put around answers; the closing one may be missing."""
    openings = list(_ANSWER_TAG.finditer(text))
    if not openings:
        return text
    last = openings[-1]
    return re.split(f"</{last[1]}>", text[last.end() :], maxsplit=1, flags=re.IGNORECASE)[0]


def json_text(text: str) -> str:
    """The text in JSON that is the answer by its key, or else the last one that is a query. JSON may be cut off."""
    begin = _json_begin(text)
    if begin < 0:
        return text
    try:
        found = _answer_in(_DECODER.raw_decode(text, begin)[0])
    except (ValueError, RecursionError):
        found = _cut_off_answer(text)
    return text if found is None else found


def _json_begin(text: str) -> int:
    if first_keyword(text) in QUERY_KEYWORDS:
        return -1
    blank = len(text) - len(text.lstrip())
    return blank if text[blank : blank + 1] in ('"', "[") else text.find("{")


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
