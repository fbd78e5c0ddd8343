"""The lean forward pass of sampling against the model's own, and the models that it is not for."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_rollout import LIMIT, PROMPTS, Codec, build, prompts_of, tokens
from transformers import LlamaForCausalLM
from transformers.activations import ACT2FN
from transformers.models.llama import modeling_llama

from elite_lightning.attention import FAMILIES
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.rollout.lean import LeanDecoder, _norm, is_known
from elite_lightning.types import Sampling

ROTARY = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 1e4,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 24,
    },
}
VARIANTS = [
    *[(family, {}) for family in sorted(FAMILIES)],
    *[(family, {"tie_word_embeddings": True}) for family in sorted(FAMILIES)],
    *[("llama", {"rope_parameters": parameters}) for parameters in ROTARY.values()],
    ("llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}),
    ("qwen3", {"attention_bias": True, "num_key_value_heads": 1, "head_dim": 12}),
    ("llama", {"rms_norm_eps": 0.1}),
]


pytestmark = pytest.mark.usefixtures("one_thread")


def randomised(model):
    """Biases and norms start at 0 and 1, where mistakes do not show."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)
    return model


@torch.no_grad()
def lean_logits(model, prompts, responses):
    """Logits `[rows, tokens, vocabulary]` of the tokens after prompts, each with two samples, fed one by one."""
    engine = InProcessEngine(model, Codec())
    steps = len(responses[0])
    memory = engine.new_memory(len(responses), max(map(len, prompts)), steps, False)
    cache = engine.prefill([prompt for prompt in prompts if len(prompt) > 1])
    places = iter(range(len(prompts)))
    for index, prompt in enumerate(prompts):
        place = (cache, next(places)) if len(prompt) > 1 else None
        memory.admit(slice(2 * index, 2 * index + 2), len(prompt), place)
    pending = torch.tensor([prompt[-1] for prompt in prompts]).repeat_interleave(2)
    positions = torch.tensor([len(prompt) - 1 for prompt in prompts]).repeat_interleave(2)
    decoder, logits = LeanDecoder(model), []
    for step in range(steps):
        memory.advance(len(responses), torch.full_like(pending, step), torch.ones(len(responses), dtype=torch.bool))
        logits.append(decoder(pending[:, None], positions[:, None] + step, memory))
        pending = torch.tensor([row[step] for row in responses])
    return torch.stack(logits, 1)


@torch.no_grad()
def own_logits(model, prompts, responses):
    rows = []
    for index, response in enumerate(responses):
        prompt = prompts[index // 2]
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0]
        rows.append(logits[len(prompt) - 1 : -1])
    return torch.stack(rows)


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
def test_logits_are_those_of_the_models_own_forward_pass(family, changes):
    model = randomised(build(family, **changes))
    prompts, responses = prompts_of(9, 4, 30, 1), prompts_of(*[11] * 8)
    expected = own_logits(model, prompts, responses)
    assert is_known(model)
    assert expected.abs().max() > 1
    difference = lean_logits(model, prompts, responses) - expected
    assert difference.abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("how", ["bfloat16", "float64", "autocast", "bfloat16 under autocast"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_other_precisions_are_the_models_own(family, how):
    model = randomised(build(family))
    prompts, responses = prompts_of(9, 4), prompts_of(*[11] * 4)
    exact = own_logits(model, prompts, responses)
    if how != "autocast":
        model.to(getattr(torch, how.split()[0]))
    with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in how):
        expected, got = own_logits(model, prompts, responses), lean_logits(model, prompts, responses)
    assert got.dtype is expected.dtype
    rounding = (expected.double() - exact.double()).abs().max()  # what the precision itself costs
    assert (got.double() - expected.double()).abs().max() <= max(1.5 * rounding, 1e-5)


def test_it_is_what_samples_and_a_switch_turns_it_off(monkeypatch):
    passes, forward = [], modeling_llama.LlamaAttention.forward

    def counting(self, hidden_states, *args, **kwargs):
        passes.append(hidden_states.shape[1])
        return forward(self, hidden_states, *args, **kwargs)

    model = randomised(build("llama"))
    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", counting)
    prompts = prompts_of(9, 4, 30)
    sampled = {}
    for lean in (True, False):
        passes.clear()
        engine = InProcessEngine(model, Codec(), max_rows=7, lean=lean)
        sampled[lean] = tokens(engine.generate(prompts, 5, Sampling(1.0, 20), seed=0))
        assert (passes.count(1) == 0) is lean  # only prompts go through the model's own layers
        assert any(length > 1 for length in passes)
    assert sampled[True] == sampled[False]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_tokens_are_those_of_the_models_own_forward_pass(family):
    model, sampled = randomised(build(family)), []
    for lean in (True, False):
        engine = InProcessEngine(model, Codec(), max_rows=7, lean=lean)
        sampled.append(tokens(engine.generate(PROMPTS, 3, Sampling(1.0, 20), seed=0)))
    assert sampled[0] == sampled[1]
    assert len({ids for group in sampled[0] for ids in group}) > len(PROMPTS)


@pytest.mark.parametrize("size", [8, 100, 896])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_a_norm_is_the_models_own(size, scale):
    own = modeling_llama.LlamaRMSNorm(size, eps=1e-5)
    values = torch.randn(5, size, generator=torch.Generator().manual_seed(0)) * scale
    with torch.no_grad():
        own.weight.uniform_(0.5, 1.5)
        torch.testing.assert_close(_norm(own)(values), own(values), rtol=3e-7, atol=0)


def test_a_rotary_embedding_that_changes_with_the_length_still_trains_afterwards():
    """A prompt of one token is not prefilled, so that nothing is kept but by the lean pass."""
    longrope = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 24}
    longrope |= {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
    model, prompts, sampling = build("llama", rope_parameters=longrope), prompts_of(1), Sampling(1.0, 40)
    for seed in range(2):
        got = tokens(InProcessEngine(model, Codec()).generate(prompts, 2, sampling, seed=seed))
        rotary = model.model.rotary_emb
        kept = [value for value in [*vars(rotary).values(), *rotary.buffers()] if isinstance(value, torch.Tensor)]
        assert len(kept) > 2
        assert not any(tensor.is_inference() for tensor in kept)
        assert got == tokens(InProcessEngine(model, Codec(), lean=False).generate(prompts, 2, sampling, seed=seed))
    ids = torch.tensor(prompts_of(40))
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.model.embed_tokens.weight.grad.abs().sum() > 0


def test_weights_are_those_of_the_moment():
    model, other = build("llama"), randomised(build("llama"))
    engine, sampling = InProcessEngine(model, Codec()), Sampling(0.0, 12)
    first = tokens(engine.generate(PROMPTS, 1, sampling, seed=0))
    model.load_state_dict(other.state_dict(), assign=True)
    assert tokens(engine.generate(PROMPTS, 1, sampling, seed=0)) != first
    expected = tokens(InProcessEngine(other, Codec(), lean=False).generate(PROMPTS, 1, sampling, seed=0))
    assert tokens(engine.generate(PROMPTS, 1, sampling, seed=0)) == expected


class Scaled(LlamaForCausalLM):
    """A model of a known type that does something else."""

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, **kwargs):
        rest = {"attention_mask": attention_mask, "position_ids": position_ids, "past_key_values": past_key_values}
        output = super().forward(input_ids, **rest, **kwargs)
        output.logits = output.logits * 0.5
        return output


def hooked(model):
    model.model.layers[1].mlp.register_forward_hook(lambda _module, _args, output: output * 2)
    return model


def patched(model):
    norm = model.model.norm
    norm.forward = lambda hidden: 2 * hidden
    return model


def exchanged(model):
    class Half(torch.nn.Linear):
        def forward(self, hidden):
            return super().forward(hidden) / 2

    model.model.layers[0].mlp.up_proj.__class__ = Half
    return model


def adapted(model):
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    return get_peft_model(model, config)


def inner_of_an_adapter(model):
    return adapted(model).get_base_model()


def with_another_activation(model):
    model.model.layers[1].mlp.act_fn = ACT2FN["gelu"]
    return model


def with_limited_embeddings(model):
    model.model.embed_tokens.max_norm = 0.5
    return model


def compiled(model):
    model.model.layers[0].compile(backend="eager")
    return model


UNKNOWN = {
    "another class": lambda: Scaled(build("llama").config).eval(),
    "a hook": lambda: hooked(build("llama")),
    "a patched forward": lambda: patched(build("llama")),
    "another layer": lambda: exchanged(build("llama")),
    "an adapter": lambda: inner_of_an_adapter(build("llama")),
    "compiled": lambda: compiled(build("llama")),
    "another activation": lambda: build("llama", hidden_act="gelu"),
    "another activation in one layer": lambda: with_another_activation(build("llama")),
    "embeddings of limited length": lambda: with_limited_embeddings(build("llama")),
    "sliding windows": lambda: build("sliding"),
    "another family": lambda: build("gpt2"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_model_that_differs_goes_its_own_way(what):
    model = UNKNOWN[what]()
    assert not is_known(model)
    prompts, sampling = [p for p in PROMPTS if len(p) < LIMIT - 12], Sampling(0.0, 12)
    got = tokens(InProcessEngine(model, Codec()).generate(prompts, 1, sampling, seed=0))
    assert got == tokens(InProcessEngine(model, Codec(), lean=False).generate(prompts, 1, sampling, seed=0))


def test_an_adapter_around_a_known_model_is_not_known():
    assert not is_known(adapted(build("llama")))


def test_weights_that_are_not_there_are_not_known():
    with torch.device("meta"):
        assert not is_known(build("llama"))


def test_hooks_of_all_modules_are_seen():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda _module, _args, output: output)
    try:
        assert not is_known(build("llama"))
    finally:
        handle.remove()
    assert is_known(build("llama"))
