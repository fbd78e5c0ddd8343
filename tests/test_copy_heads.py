"""The initial circuit copies, at any distance, and is nothing but stock Llama weights."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from elite_lightning.copy_heads import initialise_copy_heads, new_tiny_llama

VOCABULARY = 512


@pytest.fixture(scope="module")
def model():
    model = new_tiny_llama(VOCABULARY)
    initialise_copy_heads(model)
    return model.eval()


def repeated(length, rows=4):
    once = torch.randint(5, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(length))
    return torch.cat([once, once], 1)


@torch.no_grad()
def nll_of_second_copy(model, length):
    ids = repeated(length)
    logprobs = model(ids).logits.log_softmax(-1)
    predicted = logprobs[:, length:-1].gather(2, ids[:, length + 1 :, None])
    return -predicted.mean().item()


@pytest.mark.parametrize("length", [20, 100, 300])
def test_the_second_copy_of_a_random_sequence_is_predicted_from_the_first(model, length):
    assert nll_of_second_copy(model, length) < 0.4 * math.log(VOCABULARY)


def test_without_the_circuit_the_second_copy_is_as_surprising_as_the_first():
    assert nll_of_second_copy(new_tiny_llama(VOCABULARY).eval(), 40) > 0.98 * math.log(VOCABULARY)


@torch.no_grad()
def test_the_heads_look_where_the_docstring_says(model):
    length = 60
    model.set_attn_implementation("eager")
    first, second = model(repeated(length), output_attentions=True).attentions[:2]
    model.set_attn_implementation("sdpa")
    now = torch.arange(length + 2, 2 * length)
    assert first[:, 0, now, now - 1].min() > 0.9
    assert first[:, 1, now, now - 2].min() > 0.9
    assert second[:, :, now, now - length + 1].mean((0, 2)).min() > 0.8  # the token after the earlier occurrence


@torch.no_grad()
def test_heads_that_compare_two_tokens_tell_repeated_tokens_apart(model):
    # 7 is followed by 300 after 50 and by 400 after 60: the pair "60 7" can only be resolved by two tokens.
    filler = torch.randint(100, 200, (1, 12), generator=torch.Generator().manual_seed(0))
    ids = torch.cat(
        [torch.tensor([[60, 7, 400]]), filler, torch.tensor([[50, 7, 300]]), filler, torch.tensor([[60, 7]])], 1
    )
    logits = model(ids).logits[0, -1]
    assert logits[400] > logits[300]


def test_it_is_a_stock_llama_that_trains_and_loads_anywhere(model, tmp_path):
    assert type(model) is LlamaForCausalLM
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).train()
    ids = repeated(20)
    torch.testing.assert_close(again(ids).logits, model(ids).logits)
    again(ids, labels=ids).loss.backward()
    gradients = {name: parameter.grad for name, parameter in again.named_parameters()}
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())


def test_weights_depend_on_the_seed_alone():
    state = torch.get_rng_state()
    one, two, other = (new_tiny_llama(64, seed=seed) for seed in (1, 1, 2))
    for model, seed in ((one, 1), (two, 1), (other, 2)):
        initialise_copy_heads(model, seed=seed)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)


def test_the_default_size_is_what_the_bundled_model_may_have():
    parameters = sum(parameter.numel() for parameter in new_tiny_llama(1024).parameters())
    assert parameters == 1024 * 128 + 4 * (4 * 128 * 128 + 3 * 128 * 384 + 2 * 128) + 128


def config(**changes):
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return LlamaConfig(vocab_size=32, tie_word_embeddings=True, **(shape | changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_key_value_heads": 2}, "grouped queries"),
        ({"num_hidden_layers": 1}, "2 layers"),
        ({"num_attention_heads": 1}, "even head count"),
        ({"hidden_size": 8}, "slowly turning"),
    ],
)
def test_a_shape_without_room_is_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        initialise_copy_heads(LlamaForCausalLM(config(**changes)))
