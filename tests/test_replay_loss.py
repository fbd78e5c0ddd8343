"""The replay term: two layers of normalisation, against numbers by hand and exact fractions."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.objectives import length_normalised_nll

rows = st.lists(
    st.lists(st.integers(-64, 0).map(lambda i: i / 8), min_size=1, max_size=6),  # exact in binary
    min_size=1,
    max_size=6,
)


def padded(lists, extra=0, garbage=float("-inf")):
    """Ragged lists as float64 `[batch, time]` with garbage under the padding, and the mask."""
    width = max(map(len, lists)) + extra
    values = torch.tensor([[*row, *[garbage] * (width - len(row))] for row in lists], dtype=torch.float64)
    return values, torch.tensor([[t < len(row) for t in range(width)] for row in lists])


def exact(lists, total):
    """The formula in exact fractions."""
    means = [sum(map(Fraction, row)) / len(row) for row in lists]
    return float(-sum(means) / total)


def test_by_hand_it_is_not_the_mean_over_all_tokens():
    logprobs, mask = padded([[-1.0], [-2.0, -3.0, -4.0]])
    loss = length_normalised_nll(logprobs, mask, 2)
    assert loss.item() == (1.0 + 3.0) / 2  # and not (1 + 2 + 3 + 4) / 4


@settings(max_examples=60, deadline=None)
@given(rows, st.integers(0, 3), st.integers(1, 20))
def test_it_equals_exact_fractions_whatever_the_padding(lists, extra, total):
    logprobs, mask = padded(lists, extra)
    assert length_normalised_nll(logprobs, mask, total).item() == pytest.approx(exact(lists, total), rel=1e-14)


@settings(max_examples=30, deadline=None)
@given(rows, st.data())
def test_shares_of_micro_batches_add_up_in_any_order(lists, data):
    order = data.draw(st.permutations(range(len(lists))))
    cut = data.draw(st.integers(0, len(lists)))
    logprobs, mask = padded(lists, garbage=7.0)
    whole, leaf = logprobs.clone().requires_grad_(), logprobs.clone().requires_grad_()
    length_normalised_nll(whole, mask, len(lists)).backward()
    shares = [
        length_normalised_nll(leaf[piece], mask[piece], torch.tensor(float(len(lists))))
        for piece in (order[:cut], order[cut:])
    ]
    sum(shares).backward()
    assert sum(shares).item() == pytest.approx(exact(lists, len(lists)), rel=1e-14)
    torch.testing.assert_close(leaf.grad, whole.grad, atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("garbage", [float("inf"), float("-inf"), float("nan")])
def test_padding_has_no_gradient(garbage):
    logprobs, mask = padded([[-1.0], [-2.0, -3.0]], garbage=garbage)
    logprobs.requires_grad_()
    length_normalised_nll(logprobs, mask, 2).backward()
    assert logprobs.grad.tolist() == [[-0.5, 0.0], [-0.25, -0.25]]


def test_weights_scale_each_responses_pull():
    logprobs, mask = padded([[-1.0], [-2.0, -4.0]])
    weights = torch.tensor([3.0, 0.5], dtype=torch.float64)
    assert length_normalised_nll(logprobs, mask, weights.sum(), weights).item() == (3 * 1 + 0.5 * 3) / 3.5
    small = torch.tensor([0.25, 0.25], dtype=torch.float64)  # a total below 1 is still a total
    assert length_normalised_nll(logprobs, mask, small.sum(), small).item() == 2.0


def test_nothing_to_replay_is_a_zero_with_a_graph():
    logprobs = torch.randn(2, 3, requires_grad=True)
    loss = length_normalised_nll(logprobs, torch.zeros(2, 3).bool(), 0)
    loss.backward()
    assert loss.item() == 0
    assert logprobs.grad.eq(0).all()
