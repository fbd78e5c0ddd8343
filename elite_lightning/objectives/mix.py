"""The mixed loss: a policy term and a replay term, in one scalar and one backward pass."""

from __future__ import annotations

from torch import Tensor


def check_mu(mu: float) -> float:
    """Return `mu` if it is a share.

    Args:
        mu: Share of the replay term.

    Returns:
        `mu`, unchanged.

    Raises:
        ValueError: If `mu` lies outside [0, 1] or is not a number.
    """
    if not 0.0 <= mu <= 1.0:
        raise ValueError(f"mu must lie in [0, 1], got {mu}: 0 is the policy term alone, 1 is the replay term alone")
    return mu


def mix(policy_loss: Tensor, replay_loss: Tensor, mu: float) -> Tensor:
    """`(1 - mu) * policy_loss + mu * replay_loss`.

    Both terms always take part, so that every parameter has a gradient on every rank, whatever mu is. A finite term
    with weight 0 changes neither the value nor the gradient of the other by one bit.

    Source: EliteReplay, arXiv 2610.22290.

    Args:
        policy_loss: Scalar share of the policy term.
        replay_loss: Scalar share of the replay term.
        mu: Share of the replay term, in [0, 1].

    Returns:
        Scalar.

    Raises:
        ValueError: If `mu` lies outside [0, 1].
    """
    check_mu(mu)
    return (1.0 - mu) * policy_loss + mu * replay_loss
