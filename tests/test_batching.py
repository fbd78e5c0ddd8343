"""Padding, masks and positions by lengths; micro-batches within a budget."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.batching import TokenRow, collate, micro_batches

ids = st.lists(st.integers(0, 5), max_size=6)
token_rows = st.lists(st.builds(TokenRow, ids.filter(bool), ids), max_size=12)


def test_a_batch_by_hand():
    batch = collate([TokenRow([1, 2, 3], [4, 5]), TokenRow([6], [7])], pad_id=9)
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 5], [6, 7, 9, 9, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert batch.response_ids.tolist() == [[4, 5], [7, 9]]
    assert batch.response_mask.tolist() == [[True, True], [True, False]]
    assert batch.predictor_index.tolist() == [2, 3, 5]
    assert batch.slot_index.tolist() == [0, 1, 2]


def test_padding_with_the_end_of_sequence_id_keeps_the_end_of_sequence():
    eos = 2
    batch = collate([TokenRow([eos, 1], [3, eos]), TokenRow([1], [eos])], pad_id=eos)
    assert batch.attention_mask.sum(1).tolist() == [4, 2]
    assert batch.response_mask.sum(1).tolist() == [2, 1]


@settings(deadline=None)
@given(token_rows.filter(bool), st.integers(0, 5))
def test_every_response_token_is_predicted_from_the_token_before_it(rows, pad_id):
    batch = collate(rows, pad_id)
    following = batch.input_ids.flatten()[batch.predictor_index + 1]
    assert following.tolist() == [token for row in rows for token in row.response_ids]
    assert batch.response_ids.flatten()[batch.slot_index].tolist() == following.tolist()
    time = batch.input_ids.shape[1]
    assert torch.equal(batch.predictor_index // time, batch.response_mask.nonzero()[:, 0])


def test_no_rows_give_one_without_a_response():
    batch = collate([], pad_id=3)
    assert batch.input_ids.tolist() == [[3]]
    assert batch.response_mask.shape == (1, 0)


def test_a_row_needs_a_prompt():
    with pytest.raises(ValueError, match="prompt token"):
        TokenRow([], [1])


def row_of(length):
    return TokenRow([0], [0] * (length - 1))


def test_micro_batches_by_hand():
    rows = [row_of(length) for length in (3, 10, 2, 3, 5, 2)]
    # 10 exceeds the budget and goes alone; 5 with one 3 would be 2 x 5 > 8; 3 + 3; then 3 x 3 > 8.
    assert micro_batches(rows, 8) == [[1], [4], [0, 3], [2, 5]]


@settings(deadline=None)
@given(token_rows, st.integers(1, 40), st.integers(1, 15))
def test_micro_batches_hold_each_row_once_within_the_budget(rows, budget, at_least):
    cut = micro_batches(rows, budget, at_least)
    assert sorted(index for batch in cut for index in batch) == list(range(len(rows)))
    assert len(cut) >= at_least
    for batch in cut:
        assert len(batch) <= 1 or len(batch) * max(len(rows[i]) for i in batch) <= budget
    if len(rows) >= at_least:
        assert all(cut)
    assert cut == micro_batches(rows, budget, at_least)
    plain = micro_batches(rows, budget)
    assert len(cut) == max(len(plain), at_least)


def test_ranks_with_unequal_work_can_be_given_equal_numbers_of_micro_batches():
    busy, idle = [row_of(4)] * 6, [row_of(4)]
    needed = len(micro_batches(busy, 8))
    assert needed == 3
    assert micro_batches(idle, 8, at_least=needed) == [[0], [], []]
    assert [len(batch) for batch in micro_batches(busy, 100, at_least=needed)] == [1, 2, 3]


@pytest.mark.parametrize(("budget", "at_least"), [(0, 1), (8, 0)])
def test_a_budget_below_one_is_refused(budget, at_least):
    with pytest.raises(ValueError, match="at least 1"):
        micro_batches([row_of(2)], budget, at_least)
