"""Responses that share a prompt in one row: the same log-probabilities and gradients as one row each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rollout import build

from elite_lightning.attention import FAMILIES, shareable_width
from elite_lightning.batching import TokenRow, TokenTree, collate
from elite_lightning.logprobs import response_logprobs
from elite_lightning.objectives import LossOutput
from elite_lightning.packing import plant, share_prompts
from elite_lightning.update import Passes, Term, accumulate_gradients

A, B = [5, 6, 7, 8], [9, 10]
ROWS = [
    TokenRow(A, [11, 12, 13, 2]),
    TokenRow(B, [14, 2]),
    TokenRow(A, [15, 2]),
    TokenRow(A, []),
    TokenRow(B, [11, 12, 13, 14, 15, 16]),
    TokenRow(A, [11, 12, 13, 2]),
    TokenRow([3], [2]),
]


def test_a_tree_by_hand():
    batch = collate([TokenTree([1, 2], [[3, 4], [5]]), TokenRow([6], [7, 8])], pad_id=9)
    assert batch.input_ids.tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 9]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 2], [0, 1, 2, 3, 3]]
    assert batch.response_ids.tolist() == [[3, 4], [5, 9], [7, 8]]
    assert batch.predictor_index.tolist() == [1, 2, 1, 5, 6]
    assert batch.slot_index.tolist() == [0, 1, 2, 4, 5]
    tree, row = batch.attention_mask[:, 0].int().tolist()
    assert tree == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]
    assert [line[:3] for line in row[:3]] == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert all(any(line) for line in row)


def scored_alone(model, rows):
    """Log-probability of each response, each row in a forward pass of its own, without our batching."""
    scores = []
    for row in rows:
        logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0]
        places = range(len(row.prompt_ids) - 1, len(row) - 1)
        chosen = [logits[at].log_softmax(-1)[token] for at, token in zip(places, row.response_ids, strict=True)]
        scores.append(torch.stack(chosen) if chosen else torch.zeros(0, dtype=logits.dtype))
    return scores


def assert_alike(gradients, expected):
    """Equal to what float32 resolves: transformers' norms compute in it, whatever the model's type."""
    for got, wanted in zip(gradients, expected, strict=True):
        assert float((got - wanted).abs().max()) <= 1e-6 * float(wanted.abs().max())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_trees_score_as_rows_do_alone(family):
    model = build(family).double()
    trees = share_prompts(ROWS, shareable_width(model))
    assert max(map(len, trees)) == 4
    batch = collate([plant(ROWS, tree) for tree in trees])
    logprobs = response_logprobs(model, batch, chunk_tokens=3)
    expected = scored_alone(model, ROWS)
    for index, line in zip([i for tree in trees for i in tree], logprobs, strict=True):
        wanted = torch.nn.functional.pad(expected[index], (0, len(line) - len(expected[index])))
        torch.testing.assert_close(line, wanted, atol=1e-11, rtol=1e-11)
    shared = torch.autograd.grad(logprobs.sum(), list(model.parameters()))
    alone = torch.autograd.grad(torch.cat(expected).sum(), list(model.parameters()))
    assert_alike(shared, alone)


@pytest.mark.parametrize("name", ["gpt2", "sliding", "eager"])
def test_models_that_cannot_share_are_known(name):
    assert shareable_width(build(name)) is None


@pytest.mark.parametrize("budget", [1, 12, 40, 1000])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_step_is_the_same_with_and_without_trees(budget, ranks):
    model = build("llama").double()

    def gradients(hidden_size):
        model.zero_grad()
        seen = []

        def loss(batch, logprobs, indices):
            seen.extend(indices)
            scale = torch.tensor([1.0 + i for i in indices] or [0.0]).double()
            return LossOutput((logprobs.sum(1) * scale).sum(), {})

        passes = Passes(
            score=lambda batch: response_logprobs(model, batch),
            backward=lambda value: value.backward(),
            without_sync=torch.enable_grad,
            reduce_max=lambda counts: counts * ranks,  # other ranks have more to do
            world_size=1,
            device=torch.device("cpu"),
            hidden_size=hidden_size,
        )
        result = accumulate_gradients([Term("all", 0.5, ROWS, loss)], budget, passes)
        assert sorted(seen) == list(range(len(ROWS)))
        return result["all"].loss, [p.grad.clone() for p in model.parameters()]

    (loss, shared), (expected, alone) = gradients(32), gradients(None)
    assert float(loss) == pytest.approx(float(expected), abs=1e-10)
    assert_alike(shared, alone)


@given(
    prompts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=12),
    hidden=st.sampled_from([1, 16, 128, 4096]),
)
@settings(max_examples=80, deadline=None)
def test_every_row_is_in_one_tree_of_its_prompt_and_trees_save_work(prompts, hidden):
    rows = [TokenRow([prompt] * (10 * prompt), [1] * length) for prompt, length in prompts]
    trees = share_prompts(rows, hidden)
    assert sorted(i for tree in trees for i in tree) == list(range(len(rows)))
    assert all(len({tuple(rows[i].prompt_ids) for i in tree}) == 1 for tree in trees)

    def work(cut):
        return sum(24 * hidden**2 * len(plant(rows, tree)) + 4 * hidden * len(plant(rows, tree)) ** 2 for tree in cut)

    assert work(trees) <= work([[i] for i in range(len(rows))])
    together = {}
    for i, row in enumerate(rows):
        together.setdefault(tuple(row.prompt_ids), []).append(i)
    assert work(trees) <= work(together.values())


def test_long_responses_stay_apart_and_short_ones_come_together():
    short = [TokenRow([1] * 100, [2] * 30)] * 8
    long = [TokenRow([1] * 100, [2] * 4000)] * 8
    assert share_prompts(short, 128) == [list(range(8))]
    assert share_prompts(long, 128) == [[i] for i in range(8)]
