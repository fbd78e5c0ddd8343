"""The kernel of syntax trees: how much of their trees two solutions share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from elite_lightning.errors import UsageError
from elite_lightning.similarity.base import Similarity
from elite_lightning.types import Domain, TreeDomain


class SyntaxTrees(Similarity):
    """Similarity of two solutions' syntax trees: the weighted Jaccard index of the features that the domain names.

    `k_ij = sum_f min(n_if, n_jf) / sum_f max(n_if, n_jf)`, with `n_if` the number of times that feature f, an edge of
    the tree, occurs in solution i. It is 1 exactly where two solutions have the same features, equally often. The
    cosine of the counts, which is as usual, is also 1 for a tree and its double, and squares what is frequent in every
    tree. Literals are masked, so queries that differ in a number only are alike.

    A solution that cannot be parsed has 1 with an equal text and 0 with all others. An objective that rewards being
    different, such as `SetPo`, so takes broken solutions for most different, unless its gate lets in right ones only.

    SetPo (Li 2026, arXiv 2602.01062) has sentence embeddings in this place. This is the alternative for code, without a
    model.
    """

    def check(self, domain: Domain) -> None:
        """See `Similarity.check`."""
        if not isinstance(domain, TreeDomain):
            raise UsageError(
                f"kernel SyntaxTrees compares syntax trees, and the domain {domain.name!r} has none: give it a method "
                "tree_features, or choose another kernel"
            )

    def compare(self, groups: Sequence[Sequence[str]], domain: Domain, device: torch.device) -> list[Tensor]:  # noqa: ARG002
        """See `Similarity.compare`."""
        trees = cast(TreeDomain, domain)
        return [jaccard([trees.tree_features(text) for text in texts]) for texts in groups]


def jaccard(multisets: Sequence[Mapping[str, int] | None]) -> Tensor:
    """Weighted Jaccard index of each pair; 0 where either is None or both are empty.

    Args:
        multisets: How often each feature occurs.

    Returns:
        `[n, n]`, float64.
    """
    known = [multiset or {} for multiset in multisets]
    features = {feature: column for column, feature in enumerate(sorted(set().union(*known)))}
    counts = torch.zeros(len(known), len(features), dtype=torch.int64)
    for row, multiset in enumerate(known):
        for feature, count in multiset.items():
            counts[row, features[feature]] = count
    shared = torch.stack([torch.minimum(row, counts).sum(dim=-1) for row in counts]) if known else counts
    totals = counts.sum(dim=-1)
    union = totals[:, None] + totals[None, :] - shared
    return shared.double() / union.clamp(min=1)
