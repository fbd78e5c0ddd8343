"""Responses that share a prompt in one row: the same log-probabilities and gradients as one row each."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from test_rollout import build
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from elite_lightning.attention import FAMILIES, can_share_prompts
from elite_lightning.batching import TokenRow, TokenTree, collate
from elite_lightning.logprobs import response_logprobs
from elite_lightning.objectives import LossOutput
from elite_lightning.packing import plant, share_prompts
from elite_lightning.policy import checkpoint_layers
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
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    layout = batch.tree
    assert (layout.longest, layout.counts) == (2, (2, 1))
    assert layout.blocks.found_at.tolist() == [0, 1, 5, 0, 2, 3, 4, 0, 6, 7]  # prompts, then responses
    assert layout.blocks.nowhere.tolist() == [3, 7]
    assert layout.rows.found_at.tolist() == [0, 1, 4, 5, 6, 2, 8, 9, 0, 0]
    assert layout.rows.nowhere.tolist() == [8, 9]
    first, second, third = layout.visible[:, 0].int().tolist()
    assert first == [[1, 1, 1, 0], [1, 1, 1, 1]]  # two tokens of the prompt, then its own two
    assert second[0] == [1, 1, 1, 0]
    assert third == [[1, 0, 1, 0], [1, 0, 1, 1]]  # a prompt of one token


def test_rows_without_company_need_no_layout():
    assert collate([TokenRow([1, 2], [3, 4]), TokenRow([6], [7])]).tree is None


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
    assert can_share_prompts(model)
    trees = share_prompts(ROWS, 1000)
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


def test_a_tree_of_nothing_but_empty_responses_adds_nothing():
    model = build("llama")
    logprobs = response_logprobs(model, collate([TokenTree(A, [[], []])]))
    logprobs.sum().backward()
    assert logprobs.shape == (2, 0)
    assert all(weight.grad.abs().sum() == 0 for weight in model.parameters())


@pytest.mark.parametrize("name", ["gpt2", "sliding", "eager"])
def test_models_that_cannot_share_are_known(name):
    assert not can_share_prompts(build(name))


@pytest.mark.parametrize("budget", [1, 12, 40, 1000])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_step_is_the_same_with_and_without_trees(budget, ranks):
    model = build("llama").double()

    def gradients(shares_prompts):
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
            shares_prompts=shares_prompts,
        )
        result = accumulate_gradients([Term("all", 0.5, ROWS, loss)], budget, passes)
        assert sorted(seen) == list(range(len(ROWS)))
        return result["all"].loss, [p.grad.clone() for p in model.parameters()]

    (loss, shared), (expected, alone) = gradients(True), gradients(False)
    assert float(loss) == pytest.approx(float(expected), abs=1e-10)
    assert_alike(shared, alone)


@given(
    prompts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=12),
    budget=st.integers(1, 500),
)
@settings(max_examples=80, deadline=None)
def test_every_row_is_in_one_tree_of_its_prompt_within_the_budget(prompts, budget):
    rows = [TokenRow([prompt] * (10 * prompt), [1] * length) for prompt, length in prompts]
    trees = share_prompts(rows, budget)
    assert sorted(i for tree in trees for i in tree) == list(range(len(rows)))
    assert all(len({tuple(rows[i].prompt_ids) for i in tree}) == 1 for tree in trees)
    assert all(len(tree) == 1 or len(plant(rows, tree)) <= budget for tree in trees)
    for tree, following in itertools.pairwise(trees):  # and no tree is cut off early
        if rows[tree[0]].prompt_ids == rows[following[0]].prompt_ids:
            assert len(plant(rows, [*tree, following[0]])) > budget


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_attention_without_trees_is_as_it_was(implementation):
    model = build("llama")
    model.config._attn_implementation = implementation
    ids, mask = torch.tensor([[1, 5, 9, 7], [0, 0, 1, 8]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    got = model(input_ids=ids, attention_mask=mask).logits[1, 2:]
    torch.testing.assert_close(got, model(input_ids=ids[1:, 2:]).logits[0], rtol=1e-5, atol=1e-5)


def test_trees_know_no_dropout():
    model = build("llama", attention_dropout=0.5).train()
    with pytest.raises(ValueError, match=r"no dropout, got 0\.5"):
        response_logprobs(model, collate([plant(ROWS, [0, 2])]))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_layers_that_are_made_again_attend_to_trees_too(family):
    batch = collate([plant(ROWS, [0, 2, 3, 5]), plant(ROWS, [1, 4])])
    gradients = []
    for again in (False, True):
        model = build(family).double()
        if again:
            checkpoint_layers(model)
        response_logprobs(model, batch).sum().backward()
        gradients.append([weight.grad for weight in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_an_adapted_model_attends_to_trees():
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    model = get_peft_model(build("llama").double(), config).double().eval()
    logprobs = response_logprobs(model, collate([plant(ROWS, [0, 2, 3, 5])]))
    expected = scored_alone(model, [ROWS[i] for i in (0, 2, 3, 5)])
    for line, wanted in zip(logprobs, expected, strict=True):
        torch.testing.assert_close(line[: len(wanted)], wanted, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("share", [True, False], ids=["trees", "rows"])
def test_no_mask_over_a_whole_row_is_made(share):
    model, sizes = build("llama", max_position_embeddings=4096), []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(part.numel() for part in tree_leaves(out) if isinstance(part, torch.Tensor))
            return out

    tree = plant([TokenRow([5] * 20, [6] * 20)] * 80, range(80))
    rows = [tree] if share else [TokenRow([5], [6] * 799), TokenRow([5], [6] * 700)]
    batch = collate(rows)
    with Sizes():
        response_logprobs(model, batch).sum().backward()
    tokens, widest = batch.input_ids.numel(), 48  # the model's feed-forward width, and its vocabulary
    assert max(sizes) <= 2 * tokens * widest  # a mask would be the square of a row
