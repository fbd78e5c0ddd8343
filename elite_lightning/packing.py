"""Which responses to one prompt travel in one row, so that their prompt is computed once."""

from __future__ import annotations

from collections.abc import Sequence

from elite_lightning.batching import TokenRow, TokenTree


def plant(rows: Sequence[TokenRow], indices: Sequence[int]) -> TokenRow | TokenTree:
    """The tree of some rows with the same prompt.

    Args:
        rows: All rows.
        indices: Which of them; at least one.
    """
    first = rows[indices[0]]
    return first if len(indices) == 1 else TokenTree(first.prompt_ids, [rows[i].response_ids for i in indices])


def share_prompts(rows: Sequence[TokenRow], token_budget: int) -> list[list[int]]:
    """Bring rows with the same prompt together, as many as a micro-batch holds.

    Sharing always saves work: every response attends to its prompt and to itself in any case (`tree_attention`), and
    what else is done for a prompt is done once.

    Args:
        rows: Prompts and responses, in any order.
        token_budget: Most tokens of a tree of more than one response.

    Returns:
        Indices into `rows`, one list a tree; together each exactly once, in the order of first occurrence.
    """
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(rows):
        by_prompt.setdefault(tuple(row.prompt_ids), []).append(index)
    return [tree for prompt, indices in by_prompt.items() for tree in _cut(rows, indices, token_budget - len(prompt))]


def _cut(rows: Sequence[TokenRow], indices: Sequence[int], room: int) -> list[list[int]]:
    """Cut the responses to one prompt where they would be longer together than there is room."""
    trees: list[list[int]] = []
    left = 0
    for index in indices:
        length = len(rows[index].response_ids)
        if trees and length <= left:
            trees[-1].append(index)
        else:
            trees.append([index])
            left = room
        left -= length
    return trees
