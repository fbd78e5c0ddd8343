r"""Find the query within a response. What it does, and whether it can run, is the executor's business.

A response is taken as it comes: with special tokens left in, thoughts, fences, prose, cut off anywhere. The rules below
apply in this order and again from the first, until none changes anything; so the result is its own result. What stands
within a literal of a query, from quote to quote in one line, is text of the query and no mark of any of these rules,
and what is marked as an answer but holds no query is passed over.

1. **Turns.** Of a response that holds special tokens (`<|im_end|>`, `</s>`, `<end_of_turn>`, ..) the first turn counts:
   what follows is a conversation that the model made up. Where there are channels, the last `final` one counts.
2. **Thoughts** (`<think>`, `<thinking>`, `<thought>`, `<reasoning>`) do not count, fences within them neither: what
   follows the last end of one does. A thought without an end has no answer behind it, and there is no solution.
3. **Tags.** Of the tags of an answer (`<answer>`, `<sql>`, ..) the last one that holds a query counts, closed or cut
   off.
4. **JSON** from the beginning of the text. In an object the text under `sql`, `query`, `answer` or the like counts,
   else the last text that is a query; in JSON that is cut off too. Of several objects the last one counts.
5. **Fences** of backticks or tildes. The last block that is marked as SQL (`sql`, `sqlite`, ..) and holds a query
   counts, because models correct themselves forwards; else the last block that holds one; else the text around the
   blocks. A fence without an end goes to the end. A text that begins with a query and then meets a fence is a marked
   block itself: the prompt had opened it. One or two backticks in the last line are the beginning of a closing fence.
6. **JSON within prose**, by rule 4; in text with fences these come first.
7. **Escapes** (`\n`, `\"`) are undone where SQL cannot have them, that is outside of literals.
8. **HTML entities** (`&lt;`) are undone where they occur outside of literals.
9. **Questions.** Within a text without fences, or within one block, a line that begins with `Question:`, `Q:`, `User:`
   or the like between two queries begins a turn that the model made up: the last query before it counts. Between
   blocks it does not, because of several blocks the last one counts.
10. **Statements.** Of several queries the last one counts, as of several blocks; what follows its semicolon does not,
    nor do lines of prose before and after it (`statements` says which lines are prose). The comments before the first
    query of a text stay with it, and so do those within a query.

Nothing is repaired: quotes and parentheses stay open where a response was cut off, statements other than queries are
no solution, and the text of the query is the response's own, so that what is run is what the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from elite_lightning.domains.sql.fences import split_blocks, without_partial_fence
from elite_lightning.domains.sql.statements import (
    QUERY_KEYWORDS,
    begins_with_query,
    first_keyword,
    is_blank,
    last_query,
)
from elite_lightning.domains.sql.wrappings import (
    holds_query,
    json_text,
    own_turn,
    tagged,
    unescaped,
    whole_json,
    without_entities,
    without_thoughts,
)

__all__ = ["QUERY_KEYWORDS", "extract_sql", "first_keyword", "is_blank"]

MOST_LAYERS = 12
"""Of wrapping around a query; what is wrapped more often is taken for no solution."""

# SQLite's white space and all other, and what editors and models leave at the ends of a text without showing it.
_BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\ufeff"


def extract_sql(response: str) -> str | None:
    """The query that a response gives as its answer, without surrounding white space and closing semicolons.

    Never raises, and takes time linear in the length of the response.

    Returns:
        The query, or None if the response holds none; it begins with SELECT, WITH or VALUES, be it behind comments.
    """
    text = response.strip(_BLANKS)
    for _ in range(MOST_LAYERS):
        inner = _unwrapped(text)
        if inner is None or inner == text:
            return inner
        text = inner
    return None


def _unwrapped(text: str) -> str | None:
    """The text without its outermost layer; the same text if there is no layer left; None if it holds no query."""
    for rule in _RULES:
        inner = rule(text).strip(_BLANKS)
        if inner != text:
            return inner
    query = last_query(text)
    return query.strip(_BLANKS).rstrip(_BLANKS + ";") if query is not None else None


def _answer_block(text: str) -> str:
    blocks = split_blocks(text)
    if len(blocks) == 1:
        return text
    opened_by_prompt = begins_with_query(blocks[0].text)
    marked = [block.text for block in blocks if block.is_sql or (opened_by_prompt and block is blocks[0])]
    code = [block.text for block in blocks if block.is_code]
    around = [block.text for block in blocks if not block.is_code]
    return next((part for parts in (marked, code, around) for part in reversed(parts) if holds_query(part)), "")


_RULES: tuple[Callable[[str], str], ...] = (
    own_turn,
    without_thoughts,
    tagged,
    whole_json,
    _answer_block,
    json_text,
    unescaped,
    without_partial_fence,
    without_entities,
)
