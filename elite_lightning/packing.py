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


def share_prompts(rows: Sequence[TokenRow], hidden_size: int) -> list[list[int]]:
    """Bring rows with the same prompt together, as many as save work.

    What a tree saves in the layers' weights, it may lose in attention, which grows with the square of the row: so
    prompts with long responses are cut into several trees. Per layer of a transformer of width h, T tokens cost about
    24 h^2 T operations in the weights and 4 h T^2 in attention (Kaplan et al. 2020, arXiv 2001.08361, table 1, with a
    feed-forward width of 4 h), in proportion T (6 h + T).

    Args:
        rows: Prompts and responses, in any order.
        hidden_size: Width h of the model.

    Returns:
        Indices into `rows`, one list a tree; together each exactly once, in the order of first occurrence.
    """
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for index, row in enumerate(rows):
        by_prompt.setdefault(tuple(row.prompt_ids), []).append(index)
    trees = []
    for prompt, indices in by_prompt.items():
        size = _best_size(len(prompt), [len(rows[i].response_ids) for i in indices], hidden_size)
        trees += [indices[start : start + size] for start in range(0, len(indices), size)]
    return trees


def _best_size(prompt: int, responses: Sequence[int], hidden_size: int) -> int:
    def cost(size: int) -> int:
        lengths = [prompt + sum(responses[start : start + size]) for start in range(0, len(responses), size)]
        return sum(length * (6 * hidden_size + length) for length in lengths)

    return min(range(1, len(responses) + 1), key=cost)
