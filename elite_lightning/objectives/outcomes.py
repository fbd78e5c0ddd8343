"""Advantages that depend on nothing but right or wrong, and on how many of the group are right."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

# Theory is for rewards in {0, 1}; a shaped reward counts as right above the middle, as in MaxRL's released code.
_RIGHT = 0.5


def subset_share(count: int, size: int, of: int) -> float:
    """`C(count, size) / C(of, size)`: the share of all subsets of `size` that lie within `count` of the `of` things.

    Args:
        count: At most `of`; below `size`, negative included, gives 0.
        size: At least 0 and at most `of`.
        of: All things.
    """
    return math.comb(count, size) / math.comb(of, size) if count >= size else 0.0


def advantages_by_outcome(
    rewards: Tensor, counted: Tensor, values: Callable[[int, int], tuple[float, float]]
) -> Tensor:
    """One advantage for a group's right responses, and one for its wrong ones.

    Args:
        rewards: `[problems, group]`, floating; right above 0.5.
        counted: `[problems, group]`, bool; False leaves the group's numbers and gets 0.
        values: From the number of counted responses and of right ones among them to both advantages, right first.

    Returns:
        `[problems, group]`, of the rewards' type, without gradient.
    """
    right = counted & (rewards > _RIGHT)
    numbers = torch.stack([counted.sum(dim=-1), right.sum(dim=-1)], dim=-1).tolist()
    table = [values(total, successes) for total, successes in numbers]
    pairs = torch.tensor(table, dtype=rewards.dtype, device=rewards.device).reshape(-1, 2)
    return torch.where(counted, torch.where(right, pairs[:, :1], pairs[:, 1:]), 0.0)
