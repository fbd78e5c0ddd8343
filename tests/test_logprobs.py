"""Token log-probabilities against each model's own logits, one unpadded row at a time."""

import contextlib
import gc
import os

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from elite_lightning import logprobs as room
from elite_lightning.batching import TokenRow, collate
from elite_lightning.logprobs import response_logprobs, token_logprobs
from elite_lightning.objectives import length_normalised_nll

VOCABULARY = 61
COMMON = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
SHAPE = COMMON | {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 48,
}
MODELS = {
    "llama": SHAPE,
    "qwen3": SHAPE | {"tie_word_embeddings": True},
    "gpt2": COMMON | {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 48},
    "gemma2": SHAPE | {"final_logit_softcapping": 0.5},
    "cohere": SHAPE | {"logit_scale": 4.0},
    "mamba": COMMON | {"hidden_size": 16, "num_hidden_layers": 2},  # takes no positions
}
CHANGES_LOGITS = {"gemma2", "cohere"}
ROWS = [TokenRow([5, 6, 7], [8, 9, 10, 2]), TokenRow([11], [2]), TokenRow([12] * 9, [13, 14]), TokenRow([3, 4], [])]


def build(name):
    """A random model in eval mode, with weights large enough that its distributions are far from uniform."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **MODELS[name])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def row_by_row(model, rows, temperature=1.0):
    """Each row alone through the model's own logits: a list of `[response tokens]`."""
    scores = []
    for row in rows:
        logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0]
        start = len(row.prompt_ids) - 1
        predictions = (logits[start : start + len(row.response_ids)] / temperature).log_softmax(-1)
        scores.append(
            predictions[torch.arange(len(row.response_ids)), torch.tensor(row.response_ids, dtype=torch.long)]
        )
    return scores


def assert_equal_rows(actual, expected, **tolerance):
    for row, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(row[: len(reference)], reference, **tolerance)
        assert row[len(reference) :].eq(0).all()


@pytest.mark.parametrize("chunk_tokens", [None, 3, 1])
@pytest.mark.parametrize("name", MODELS)
def test_padded_and_chunked_equals_each_row_alone(name, chunk_tokens):
    model = build(name)
    with torch.no_grad():
        actual = response_logprobs(model, collate(ROWS, pad_id=2), 0.7, chunk_tokens)
        expected = row_by_row(model, ROWS, 0.7)
    assert_equal_rows(actual, expected, atol=2e-5, rtol=1e-4)
    assert (model in room._changes_logits) == (name in CHANGES_LOGITS)


@pytest.mark.parametrize("chunk_tokens", [None, 2])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_gradients_equal_plain_autograd(name, chunk_tokens):
    model = build(name)
    plain = sum(score.sum() for score in row_by_row(model, ROWS))
    expected = torch.autograd.grad(plain, list(model.parameters()), materialize_grads=True)
    actual = torch.autograd.grad(
        response_logprobs(model, collate(ROWS), chunk_tokens=chunk_tokens).sum(), list(model.parameters())
    )
    for ours, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, reference, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("chunk_tokens", [None, 2])
def test_float64_agrees_to_rounding(chunk_tokens):
    model = build("gpt2").double()  # Llama's norm computes in float32, GPT-2's does not
    plain = row_by_row(model, ROWS, 1.3)
    actual = response_logprobs(model, collate(ROWS), 1.3, chunk_tokens)
    assert actual.dtype == torch.float64
    assert_equal_rows(actual, plain, atol=1e-12, rtol=1e-12)
    expected = torch.autograd.grad(sum((score**2).sum() for score in plain), list(model.parameters()))
    ours = torch.autograd.grad((actual**2).sum(), list(model.parameters()))
    for one, reference in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, reference, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_amount_and_the_content_of_padding_do_not_matter(name):
    model = build(name)
    with torch.no_grad():
        alone = response_logprobs(model, collate(ROWS[:2], pad_id=0))
        beside_a_long_row = response_logprobs(model, collate([*ROWS[:2], TokenRow([7] * 20, [8] * 9)], pad_id=33))
    torch.testing.assert_close(beside_a_long_row[:2, :4], alone, atol=1e-5, rtol=1e-5)
    assert beside_a_long_row[:2, 4:].eq(0).all()


def test_logits_exist_for_response_tokens_only_and_a_chunk_at_a_time():
    model = build("llama")
    seen = []

    class Counting(nn.Linear):
        def forward(self, hidden):
            seen.append(hidden.shape[:-1].numel())
            return super().forward(hidden)

    model.lm_head.__class__ = Counting
    response_logprobs(model, collate(ROWS), chunk_tokens=3).sum().backward()
    assert seen == [3, 3, 1] * 2 or seen == [3, 3, 1, 1, 3, 3]  # seven response tokens, and again in the backward pass


def test_a_model_that_changes_its_logits_is_called_twice_only_the_first_time():
    model, calls = build("gemma2"), []
    model.register_forward_hook(lambda *_: calls.append(1))
    for expected in (2, 3, 4):
        response_logprobs(model, collate(ROWS))
        assert len(calls) == expected


def test_logits_changed_in_place_after_the_head_are_noticed():
    def halve(module, inputs, output):
        output.logits.mul_(0.5)

    model = build("llama")
    model.register_forward_hook(halve)
    with torch.no_grad():
        assert_equal_rows(response_logprobs(model, collate(ROWS)), row_by_row(model, ROWS), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_entropy_is_that_of_the_tempered_distribution_and_carries_no_gradient(name):
    model = build(name)
    scored = token_logprobs(model, collate(ROWS[:1]), 0.7, 2, with_entropy=True)
    logits = model(input_ids=torch.tensor([[5, 6, 7, 8, 9, 10, 2]])).logits[0, 2:6].double() / 0.7
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(scored.entropy[0].double(), expected, atol=1e-5, rtol=1e-4)
    assert not scored.entropy.requires_grad
    assert scored.logprobs.requires_grad
    assert token_logprobs(model, collate(ROWS)).entropy is None


def test_half_precision_models_are_normalised_in_float32():
    model = build("llama").to(torch.bfloat16)
    with torch.inference_mode():
        actual = response_logprobs(model, collate(ROWS[:1]))
        logits = model(input_ids=torch.tensor([[5, 6, 7, 8, 9, 10, 2]])).logits[0, 2:6]
    assert actual.dtype == torch.float32
    expected = logits.float().log_softmax(-1)[torch.arange(4), torch.tensor([8, 9, 10, 2])]
    torch.testing.assert_close(actual[0], expected, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_without_response_tokens_there_is_a_zero_with_a_gradient_for_every_parameter(name):
    model = build(name)
    batch = collate([])
    length_normalised_nll(response_logprobs(model, batch), batch.response_mask, 0).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.eq(0).all()


@pytest.mark.filterwarnings("ignore")  # PEFT's and transformers' own, about tied heads and renamed functions
@pytest.mark.parametrize(
    "lora",
    [
        {"target_modules": ["c_attn"]},
        {"target_modules": ["c_attn", "lm_head"]},
        {"target_modules": ["c_attn"], "modules_to_save": ["lm_head"]},
    ],
    ids=["body", "head adapted", "head trained"],
)
def test_a_peft_model_is_scored_with_its_adapter_and_without(lora):
    from peft import LoraConfig, get_peft_model

    base = build("gpt2").double()
    with torch.no_grad():
        plain = row_by_row(base, ROWS)
    settings = LoraConfig(task_type="CAUSAL_LM", r=2, fan_in_fan_out=True, **lora)
    model = get_peft_model(base, settings).eval().double()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(torch.randn_like(parameter))
    actual, expected = response_logprobs(model, collate(ROWS), chunk_tokens=2), row_by_row(model, ROWS)
    assert_equal_rows(actual, expected, atol=1e-11, rtol=1e-11)
    assert (actual[0] - plain[0]).abs().max() > 1e-2
    ours = torch.autograd.grad(actual.sum(), trained)
    for one, reference in zip(ours, torch.autograd.grad(sum(map(torch.sum, expected)), trained), strict=True):
        torch.testing.assert_close(one, reference, atol=1e-10, rtol=1e-10)
    with model.disable_adapter(), torch.no_grad():
        assert_equal_rows(response_logprobs(model, collate(ROWS)), plain, atol=1e-11, rtol=1e-11)


@pytest.mark.filterwarnings("ignore")
def test_gradient_checkpointing_of_the_layers_changes_nothing():
    model = build("llama").train()
    plain = torch.autograd.grad(response_logprobs(model, collate(ROWS)).sum(), list(model.parameters()))
    model.gradient_checkpointing_enable()
    again = torch.autograd.grad(response_logprobs(model, collate(ROWS), chunk_tokens=2).sum(), list(model.parameters()))
    for one, other in zip(again, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_the_models_head_is_its_own_again_even_after_an_error():
    model = build("gpt2")
    too_long = collate([TokenRow([1] * 40, [2] * 40)])
    with contextlib.suppress(IndexError):
        response_logprobs(model, too_long)
    assert "forward" not in model.lm_head.__dict__
    response_logprobs(model, collate(ROWS))
    assert model(input_ids=torch.tensor([[1, 2]])).logits.shape == (1, 2, VOCABULARY)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_defines_no_distribution_is_refused(temperature):
    with pytest.raises(ValueError, match="temperature"):
        response_logprobs(build("llama"), collate(ROWS), temperature)


def test_a_model_without_a_head_is_refused():
    with pytest.raises(ValueError, match="Linear is not a transformers causal language model"):
        response_logprobs(nn.Linear(2, 2), collate(ROWS))


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_tuned_model_is_refused_because_its_positions_shift():
    from peft import PromptTuningConfig, get_peft_model

    model = get_peft_model(build("llama"), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    with pytest.raises(ValueError, match="positions"):
        response_logprobs(model, collate(ROWS))


def sharded_worker(rank, folder):
    """One of two ranks: FSDP2 in three layouts and DDP, each against the whole batch on a plain model."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    compare_sharded(rank)
    gc.collect()
    torch.distributed.destroy_process_group()
    (folder / f"done{rank}").touch()


def compare_sharded(rank):
    from torch.distributed.fsdp import fully_shard

    plain = build("qwen3")
    batch = collate(ROWS)
    whole = length_normalised_nll(response_logprobs(plain, batch), batch.response_mask, 3)
    whole.backward()

    def assert_same(model):
        share = collate(ROWS[2 * rank : 2 * rank + 2])
        loss = length_normalised_nll(response_logprobs(model, share, chunk_tokens=2), share.response_mask, 3)
        (2 * loss).backward()  # both wrappers average gradients over ranks
        total = loss.detach().clone()
        torch.distributed.all_reduce(total)
        torch.testing.assert_close(total, whole.detach(), atol=1e-6, rtol=1e-6)
        for one, reference in zip(model.parameters(), plain.parameters(), strict=True):
            gradient = one.grad.full_tensor() if hasattr(one.grad, "full_tensor") else one.grad
            torch.testing.assert_close(gradient, reference.grad, atol=1e-6, rtol=1e-5)

    for untie_head in (False, True):
        model = build("qwen3")
        if untie_head:
            model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
            fully_shard(model.lm_head)
            plain = build("qwen3")
            plain.lm_head.weight = nn.Parameter(plain.lm_head.weight.detach().clone())
            length_normalised_nll(response_logprobs(plain, batch), batch.response_mask, 3).backward()
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model, reshard_after_forward=True)
        assert_same(model)
        assert model not in room._changes_logits  # the memory bound held: no fallback
    plain = build("qwen3")
    length_normalised_nll(response_logprobs(plain, batch), batch.response_mask, 3).backward()
    assert_same(nn.parallel.DistributedDataParallel(build("qwen3")))


def test_two_ranks_with_sharded_or_copied_weights_equal_one(tmp_path):
    torch.multiprocessing.spawn(sharded_worker, (tmp_path,), nprocs=2)
    assert sorted(os.listdir(tmp_path))[:2] == ["done0", "done1"]
