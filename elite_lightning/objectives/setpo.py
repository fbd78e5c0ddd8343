"""SetPO: an advantage on top for a response that makes its group more diverse."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from elite_lightning.objectives.grpo import Grpo
from elite_lightning.objectives.interface import Objective
from elite_lightning.objectives.wrapped import OnTop
from elite_lightning.similarity import Similarity

Gate = Literal["none", "correct_only", "mixed_groups_only"]


def diversity_marginals(similarity: Tensor, members: Tensor) -> Tensor:
    """How much the diversity of a set falls when one of its members leaves it.

    With `m_i(S) = sum_{j in S, j != i} k_ij / (|S| - 1)`, `g(m) = -log(1 + m)` and `D(S) = mean_{i in S} g(m_i(S))`, it
    is `s_i = D(S) - D(S without i)`; masses are computed anew inside the smaller set. Where all pairs are equally alike
    it is exactly 0. Else it is of order 1 / |S|, and does not add up to 0.

    Source: SetPO, Li 2026, arXiv 2602.01062.

    Args:
        similarity: `[problems, group, group]`, floating, symmetric, in [0, 1]. The diagonal does not matter.
        members: `[problems, group]`, bool; who belongs to the set.

    Returns:
        `[problems, group]` of the same dtype; 0 for those outside, and for sets of fewer than three.
    """
    pair = members[:, :, None] & members[:, None, :]
    pair = pair & ~torch.eye(members.shape[-1], dtype=torch.bool, device=members.device)
    inside = torch.where(pair, similarity, 0.0)
    size = members.sum(dim=-1, keepdim=True)
    row = inside.sum(dim=-1)
    gains = torch.where(members, _gain(row / (size - 1).clamp(min=1)), 0.0)
    whole = gains.sum(dim=-1, keepdim=True) / size.clamp(min=1)
    # [p, i, j]: the mass of j once i has left.
    left = (row[:, None, :] - inside) / (size[:, :, None] - 2).clamp(min=1)
    without = torch.where(pair, _gain(left), 0.0).sum(dim=-1) / (size - 1).clamp(min=1)
    # Where all pairs are equally alike it is 0, and rounding must not turn that into a signal.
    lowest = torch.where(pair, similarity, torch.inf).amin(dim=(-2, -1))[:, None]
    highest = torch.where(pair, similarity, -torch.inf).amax(dim=(-2, -1))[:, None]
    has_signal = (size >= 3) & (highest > lowest)
    return torch.where(members & has_signal, whole - without, 0.0)


def _gain(mass: Tensor) -> Tensor:
    # A difference of sums may fall below 0 by rounding, and all masses lie in [0, 1].
    return -mass.clamp(min=0.0).log1p()


class SetPo(OnTop):
    """A base objective whose advantages get `weight * s_i`, the group's diversity with and without the response.

    `A_i = A_i(base) + weight * s_i`, after the base has normalised; `s_i` is `diversity_marginals` of the kernel k.
    Everything else is the base's: clipping, aggregation, KL penalty.

    Three kernels are there. Without `kernel`, `k_ij = 1` where two responses have the same strategy, else 0; wrong
    responses have no strategy and count as one class of their own, so a group that is all wrong gets exactly 0.
    `elite_lightning.similarity.SyntaxTrees` compares syntax trees, `elite_lightning.similarity.SentenceEmbeddings` is
    the paper's. With these two each response has a similarity of its own to each other one, whether it is right or
    wrong. With the gate `none` they so reward wrong answers that differ, as the paper does: in a group that is all
    wrong, and in a mixed one, where a wrong answer unlike the others loses less than its fellows. The gate
    `mixed_groups_only` prevents the first, `correct_only` both. Responses without a solution count as alike.

    Source: SetPO, Li 2026, arXiv 2602.01062. The authors' code was not available, so paper and code could not be
    compared. The paper's kernel is the cosine of frozen sentence embeddings of the answers; the default here is the
    strategy, which needs no second model. SyntaxTrees is not in the paper.

    Args:
        base: Gives the advantages to add to, and the loss; null is GRPO with its defaults, as in the paper.
        weight: Of the diversity, at least 0. The paper has 0.05 for GRPO, 0.1 for GSPO and 0.2 for DAPO.
        gate: Whose diversity counts. `none` (the paper): all responses, correct or not. `correct_only`: the set is the
            correct ones, and only they get something. `mixed_groups_only`: as `none`, but nothing in groups that are
            all right or all wrong. The last two are not in the paper.
        kernel: How alike two responses are, as `class_path` and `init_args`; null is 1 for the same strategy, else 0.

    Raises:
        ValueError: If a value is out of range, or both this and the base have a kernel.
    """

    def __init__(
        self,
        base: Objective | None = None,
        weight: float = 0.05,
        gate: Gate = "none",
        kernel: Similarity | None = None,
    ) -> None:
        if not weight >= 0.0:
            raise ValueError(f"weight must be at least 0, got {weight}: a negative one would reward what is common")
        if gate not in get_args(Gate):
            raise ValueError(f"gate must be one of {', '.join(get_args(Gate))}, got {gate!r}")
        super().__init__(base if base is not None else Grpo(), kernel)
        self.weight = weight
        self.gate = gate

    def with_strategies(
        self, rewards: Tensor, counted: Tensor, strategies: Tensor, mean_logprobs: Tensor | None
    ) -> Tensor:
        """The base's advantages and the weighted diversity.

        Raises:
            ValueError: If there is a kernel, and no similarity of these groups was given.
        """
        base = self.base.advantages(rewards, counted, strategies=strategies, mean_logprobs=mean_logprobs)
        correct = counted & (strategies >= 0)
        alike = self._alike(strategies).to(base)
        diversity = diversity_marginals(alike, correct if self.gate == "correct_only" else counted)
        if self.gate == "mixed_groups_only":
            is_mixed = correct.any(dim=-1) & (counted & ~correct).any(dim=-1)
            diversity = torch.where(is_mixed[:, None], diversity, 0.0)
        return base + self.weight * diversity

    def _alike(self, strategies: Tensor) -> Tensor:
        if self.own_kernel is None:
            return strategies[:, :, None] == strategies[:, None, :]
        if self.similarity is None:
            raise ValueError(f"SetPo has the kernel {type(self.own_kernel).__name__}: call with_similarity first")
        return self.similarity
