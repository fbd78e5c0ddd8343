"""The in-process engine against transformers' own generate and forward pass, and against exact probabilities."""

import gc
import itertools
import math
import weakref
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from elite_lightning.attention import FAMILIES
from elite_lightning.rollout.cache import SlotCache
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.rollout.sampling import draw, prompt_digest, row_uniforms
from elite_lightning.types import FinishReason, RolloutEngine, Sampling

VOCABULARY, EOS, LIMIT = 48, 2, 96
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": LIMIT, "head_dim": 8}
ENDS = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0, "initializer_range": 0.3}


class Codec:
    """Ids as text; only what the engine asks for."""

    def __init__(self, eos=EOS):
        self.eos = eos

    def encode_response(self, text):
        return [*map(int, text.split()), self.eos]

    def decode(self, token_ids):
        return " ".join(str(token) for token in token_ids if token != self.eos)


def build(name, **changes):
    torch.manual_seed(0)
    if name == "gpt2":
        size = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LIMIT}
        return GPT2LMHeadModel(GPT2Config(**size, **(ENDS | changes))).eval()
    kinds = {
        "llama": (LlamaConfig, LlamaForCausalLM, {}),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
        "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
        "sliding": (MistralConfig, MistralForCausalLM, {"sliding_window": 6}),
        "eager": (LlamaConfig, LlamaForCausalLM, {"attn_implementation": "eager"}),
    }
    config, model, own = kinds[name]
    return model(config(**(SHAPE | HEADS | ENDS | own | changes))).eval()


pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = ["llama", "qwen3", "gpt2", "sliding", "eager"]
_CACHED = {}


@pytest.fixture(params=MODELS)
def model(request):
    return _CACHED.setdefault(request.param, build(request.param))


@pytest.fixture
def llama():
    return _CACHED.setdefault("llama", build("llama"))


def chi_square_p(statistic, degrees_of_freedom):
    """Chance of a statistic at least this large: the regularised upper incomplete gamma function."""
    half = torch.tensor([degrees_of_freedom / 2, statistic / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


def prompts_of(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


PROMPTS = prompts_of(4, 1, 9, 9, 17, 2, 30)


def tokens(groups):
    return [[completion.token_ids for completion in group] for group in groups]


def until_eos(ids):
    return tuple(ids[: ids.index(EOS) + 1] if EOS in ids else ids)


def reference_greedy(model, prompts, new_tokens):
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    output = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=new_tokens)
    return [until_eos(row) for row in output[:, longest:].tolist()]


def test_it_is_an_engine(llama):
    assert isinstance(InProcessEngine(llama, Codec()), RolloutEngine)


@pytest.mark.parametrize("max_rows", [3, 64])
def test_greedy_equals_generate(model, max_rows):
    engine = InProcessEngine(model, Codec(), max_rows=max_rows, prefill_tokens=40)
    groups = engine.generate(PROMPTS, 1, Sampling(temperature=0.0, max_new_tokens=24), seed=0)
    assert [group[0] for group in tokens(groups)] == reference_greedy(model, PROMPTS, 24)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.5])
@torch.no_grad()
def test_logprobs_equal_a_fresh_forward_pass(model, temperature):
    engine = InProcessEngine(model, Codec(), max_rows=5, prefill_tokens=40)
    groups = engine.generate(PROMPTS, 3, Sampling(temperature, 20), seed=3)
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            logits = model(torch.tensor([prompt + list(completion.token_ids)])).logits[0, len(prompt) - 1 : -1]
            expected = (logits.double() / (temperature or 1.0)).log_softmax(-1)
            expected = expected.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(completion.logprobs).double(), expected, atol=1e-5, rtol=0)


def test_a_sample_does_not_depend_on_its_neighbours(model):
    sampling = Sampling(1.0, 16)

    def run(prompts, max_rows=64, n=3, seed=5, **options):
        return tokens(
            InProcessEngine(model, Codec(), max_rows=max_rows, **options).generate(prompts, n, sampling, seed)
        )

    together = run(PROMPTS)
    assert run(PROMPTS) == together
    assert run(PROMPTS, max_rows=5, prefill_tokens=8) == together
    assert run(PROMPTS, max_rows=1) == together
    assert [run([prompt])[0] for prompt in PROMPTS] == together
    assert run(PROMPTS[::-1])[::-1] == together
    assert [group[:2] for group in together] == run(PROMPTS, n=2)
    assert run(PROMPTS, seed=6) != together


def test_a_longer_limit_only_goes_on(llama):
    engine = InProcessEngine(llama, Codec())
    short = tokens(engine.generate(PROMPTS, 4, Sampling(1.0, 6), seed=5))
    long = tokens(engine.generate(PROMPTS, 4, Sampling(1.0, 20), seed=5))
    assert [[row[:6] for row in group] for group in long] == short


def test_a_prompt_that_occurs_twice_gets_other_samples(llama):
    engine = InProcessEngine(llama, Codec(), max_rows=3)
    first, second = tokens(engine.generate([PROMPTS[0], PROMPTS[0]], 4, Sampling(1.0, 12), seed=0))
    assert len({*first, *second}) == 8
    assert first + second == tokens(engine.generate([PROMPTS[0]], 8, Sampling(1.0, 12), seed=0))[0]


def test_rows_end_at_the_end_of_sequence_or_at_the_limit(llama):
    groups = InProcessEngine(llama, Codec(), max_rows=7).generate(PROMPTS, 20, Sampling(1.0, 30), seed=0)
    rows = [completion for group in groups for completion in group]
    reasons = Counter(row.finish_reason for row in rows)
    assert min(reasons[FinishReason.STOP], reasons[FinishReason.LENGTH]) > 10
    for row in rows:
        assert EOS not in row.token_ids[:-1]
        assert len(row.logprobs) == len(row.token_ids)
        stopped = row.token_ids[-1] == EOS
        assert row.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert len(row.token_ids) == 30 or stopped
        assert row.text == " ".join(str(token) for token in row.token_ids if token != EOS)


def test_padding_that_is_the_end_of_sequence_changes_nothing():
    other = build("llama", pad_token_id=EOS)
    other.load_state_dict(build("llama").state_dict())
    sampling = Sampling(1.0, 24)
    expected = tokens(InProcessEngine(build("llama"), Codec()).generate(PROMPTS, 2, sampling, seed=0))
    assert tokens(InProcessEngine(other, Codec()).generate(PROMPTS, 2, sampling, seed=0)) == expected


def test_no_prompts_and_one_token(llama):
    engine = InProcessEngine(llama, Codec())
    assert engine.generate([], 4, Sampling(), seed=0) == []
    assert [len(row) for row in tokens(engine.generate(PROMPTS, 1, Sampling(0.0, 1), seed=0))] == [1] * len(PROMPTS)


@pytest.mark.parametrize("max_rows", [2, 256])
@pytest.mark.parametrize("share", [True, False])
def test_each_distinct_prompt_is_prefilled_once_and_ended_rows_leave(llama, max_rows, share):
    passes = []

    def note(_module, _args, kwargs):
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        passes.append((len(kwargs["input_ids"]), kwargs["attention_mask"] is None and type(cache) is SlotCache))

    hook = llama.register_forward_pre_hook(note, with_kwargs=True)
    prompts = [*PROMPTS, PROMPTS[0], PROMPTS[2]]
    engine = InProcessEngine(llama, Codec(), max_rows=max_rows, share_prefixes=share)
    groups = engine.generate(prompts, 5, Sampling(1.0, 40), seed=0)
    hook.remove()
    prefilled = [rows for rows, prefill in passes if prefill]
    assert sum(prefilled) == sum(len(prompt) > 1 for prompt in PROMPTS)  # a one-token prompt has nothing to prefill
    decoded = [rows for rows, prefill in passes if not prefill]
    assert max(decoded) == min(max_rows, 5 * len(prompts))
    written = sum(len(row) for group in tokens(groups) for row in group)
    # Each pass writes one token for every living row, and at most a quarter of its rows is dead weight.
    assert sum(decoded) <= written / 0.75
    assert max_rows == 2 or len(decoded) <= 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_shared_prefixes_are_what_copies_are(family, dtype):
    model = build(family).to(dtype)
    prompts, sampling = [*PROMPTS, PROMPTS[1]], Sampling(1.0, 20)

    def run(share, max_rows):
        engine = InProcessEngine(model, Codec(), max_rows=max_rows, prefill_tokens=40, share_prefixes=share)
        return engine.generate(prompts, 6, sampling, seed=1)

    copies, *shared = run(False, 64), run(True, 64), run(None, 5)
    for groups in shared:
        if dtype is torch.float32:
            assert tokens(groups) == tokens(copies)
        for got, expected in zip(itertools.chain(*groups), itertools.chain(*copies), strict=True):
            same = [a == b for a, b in zip(got.token_ids, expected.token_ids, strict=False)]
            alike = same.index(False) if False in same else len(same)
            tolerance = 1e-5 if dtype is torch.float32 else 0.3  # a bfloat16 has 8 bits, and logits here reach 10
            assert got.logprobs[:alike] == pytest.approx(expected.logprobs[:alike], abs=tolerance)


@pytest.mark.parametrize("share", [True, False])
def test_keys_are_freed_when_sampling_ends(llama, share):
    caches = []

    def note(_module, _args, kwargs):
        caches.append(weakref.ref(kwargs.get("cache", kwargs.get("past_key_values"))))

    hook = llama.register_forward_pre_hook(note, with_kwargs=True)
    gc.disable()  # what waits for the collector adds up, call by call
    try:
        InProcessEngine(llama, Codec(), share_prefixes=share).generate(PROMPTS, 2, Sampling(1.0, 4), seed=0)
        assert caches
        assert [cache() for cache in caches] == [None] * len(caches)
    finally:
        gc.enable()
        hook.remove()


def test_the_prompts_own_caches_are_freed_when_rows_have_a_copy(llama):
    prefilled, alive = [], []

    def note(_module, _args, kwargs):
        cache = kwargs.get("cache", kwargs.get("past_key_values"))
        if type(cache) is SlotCache:
            prefilled.append(weakref.ref(cache))
        else:
            alive.append(sum(reference() is not None for reference in prefilled))

    hook = llama.register_forward_pre_hook(note, with_kwargs=True)
    gc.disable()
    try:
        InProcessEngine(llama, Codec(), prefill_tokens=40).generate(PROMPTS, 2, Sampling(1.0, 4), seed=0)
    finally:
        gc.enable()
        hook.remove()
    assert alive[0] == len(prefilled) > 1
    assert len(alive) > 2
    assert set(alive[1:]) == {0}


def test_a_model_that_cannot_share_prefixes_is_named():
    with pytest.raises(ValueError, match="gpt2"):
        InProcessEngine(build("gpt2"), Codec(), share_prefixes=True)


def test_the_attention_is_the_models_own_again_after_sampling(llama):
    before = llama.config._attn_implementation
    InProcessEngine(llama, Codec(), share_prefixes=True).generate(PROMPTS, 2, Sampling(1.0, 4), seed=0)
    assert llama.config._attn_implementation == before


def test_ended_rows_stay_within_the_models_positions():
    # Rows end at the limit while rows that were admitted later go on beside them.
    model = build("gpt2")
    prompts, sampling = prompts_of(*[LIMIT - 8] * 50), Sampling(1.0, 8)
    written = itertools.chain(*tokens(InProcessEngine(model, Codec()).generate(prompts, 1, sampling, seed=0)))
    common = Counter(itertools.chain(*written)).most_common(2)[1][0]  # ends rows at many different steps
    groups = InProcessEngine(model, Codec(common), max_rows=5).generate(prompts, 1, sampling, seed=0)
    lengths = Counter(len(group[0].token_ids) for group in groups)
    assert lengths[8] > 5
    assert sum(lengths.values()) - lengths[8] > 5


def test_it_leaves_the_model_as_it_was():
    model = build("llama", attention_dropout=0.5)
    model.train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    engine = InProcessEngine(model, Codec())
    first = tokens(engine.generate(PROMPTS, 2, Sampling(1.0, 8), seed=0))
    assert tokens(engine.generate(PROMPTS, 2, Sampling(1.0, 8), seed=0)) == first  # no dropout
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    with pytest.raises(ValueError, match="empty"):
        engine.generate([[]], 1, Sampling(), seed=0)
    assert [module.training for module in model.modules()] == modes


def test_the_model_trains_on_after_generating_under_autocast_and_checkpointing():
    # Dynamic rotary frequencies are recomputed, and kept on the module, when sequences grow past the limit.
    rotary = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    model = build("llama", rope_parameters=rotary, max_position_embeddings=16)
    model.config.max_position_embeddings = LIMIT  # so that the engine lets a prompt of 30 pass
    model.gradient_checkpointing_enable()
    model.train()
    ids = torch.tensor(PROMPTS[2:4])
    with torch.autocast("cpu", torch.bfloat16):
        InProcessEngine(model, Codec()).generate(PROMPTS, 2, Sampling(1.0, 8), seed=0)
        model(ids, labels=ids).loss.backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_a_frozen_model_may_be_sampled_under_inference_mode(llama):
    engine = InProcessEngine(llama, Codec())
    expected = tokens(engine.generate(PROMPTS, 2, Sampling(1.0, 8), seed=0))
    with torch.inference_mode():
        assert tokens(engine.generate(PROMPTS, 2, Sampling(1.0, 8), seed=0)) == expected


def test_an_adapter_is_sampled_from():
    model = get_peft_model(build("llama"), LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    groups = InProcessEngine(model, Codec()).generate(PROMPTS, 1, Sampling(0.0, 12), seed=0)
    assert [group[0] for group in tokens(groups)] == reference_greedy(model.eval(), PROMPTS, 12)
    with model.disable_adapter():
        base = InProcessEngine(model, Codec()).generate(PROMPTS, 1, Sampling(0.0, 12), seed=0)
    assert tokens(base) != tokens(groups)


@pytest.mark.parametrize("steps", [1, 2])
@torch.no_grad()
def test_frequencies_are_the_models_probabilities(steps):
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**(SHAPE | {"vocab_size": 6}), **HEADS, **(ENDS | {"initializer_range": 0.5})))
    model.eval()
    prompt, temperature, count = [1, 4, 3], 1.3, 6000
    group = InProcessEngine(model, Codec(), max_rows=1000).generate([prompt], count, Sampling(temperature, steps), 9)[0]
    exact = {}
    for path in itertools.product(range(6), repeat=steps):
        if EOS not in path[:-1]:
            logprobs = (model(torch.tensor([prompt + list(path)])).logits[0].double() / temperature).log_softmax(-1)
            exact[path] = math.exp(sum(logprobs[len(prompt) - 1 + i, token] for i, token in enumerate(path)))
    exact |= {(EOS,): (model(torch.tensor([prompt])).logits[0, -1].double() / temperature).softmax(-1)[EOS].item()}
    assert sum(exact.values()) == pytest.approx(1.0)
    seen = Counter(completion.token_ids for completion in group)
    statistic = sum((seen[path] - count * p) ** 2 / (count * p) for path, p in exact.items())
    assert set(seen) <= set(exact)
    assert chi_square_p(statistic, len(exact) - 1) > 0.01


def test_samples_of_one_prompt_are_independent_of_each_other(llama):
    # The first token of neighbouring sample indices: joint frequencies factorise.
    group = InProcessEngine(llama, Codec()).generate([PROMPTS[4]], 4000, Sampling(2.0, 1), seed=1)[0]
    firsts = [completion.token_ids[0] for completion in group]
    common = [token for token, _ in Counter(firsts).most_common(4)]
    pairs = Counter(zip(firsts[::2], firsts[1::2], strict=True))
    marginal = Counter(firsts)
    statistic = 0.0
    for a, b in itertools.product(common, repeat=2):
        expected = marginal[a] * marginal[b] / len(firsts) ** 2 * len(firsts) / 2
        statistic += (pairs[a, b] - expected) ** 2 / expected
    assert chi_square_p(statistic, 16) > 0.01


def test_a_prompt_beyond_the_models_positions_is_named(llama):
    engine = InProcessEngine(llama, Codec())
    fits = prompts_of(LIMIT - 8)
    engine.generate(fits, 1, Sampling(1.0, 8), seed=0)
    with pytest.raises(ValueError, match=rf"prompt 1 has {LIMIT - 8} tokens; with max_new_tokens=9 .*={LIMIT}"):
        engine.generate([[1], *fits], 1, Sampling(1.0, 9), seed=0)


def test_a_model_that_keeps_no_cache_is_named():
    mamba = MambaForCausalLM(MambaConfig(vocab_size=16, hidden_size=8, num_hidden_layers=1, state_size=2))
    with pytest.raises(ValueError, match="MambaForCausalLM has no plain key/value cache"):
        InProcessEngine(mamba, Codec())


def test_broken_weights_are_an_error_and_not_a_sample():
    model = build("llama")
    model.model.norm.weight.data.fill_(math.nan)
    with pytest.raises(FloatingPointError, match="NaN"):
        InProcessEngine(model, Codec()).generate(PROMPTS, 1, Sampling(1.0, 4), seed=0)


def test_ranks_of_a_sharded_model_do_the_same_number_of_passes(llama):
    passes = [0]
    hook = llama.register_forward_pre_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    calls = []

    def until(others):
        """What an any-reduce answers on a rank whose peers make `others` passes."""

        def keep_stepping(mine):
            calls.append(mine)
            return mine or len(calls) <= others

        return keep_stepping

    for others in (0, 50):
        passes[0] = 0
        calls.clear()
        engine = InProcessEngine(llama, Codec(), keep_stepping=until(others))
        groups = engine.generate(PROMPTS, 1, Sampling(1.0, 8), seed=0)
        assert calls == sorted(calls, reverse=True)
        assert passes[0] == len(calls) - 1  # one for each pass, and one that says that nobody has work left
        assert passes[0] >= others
        assert len(groups) == len(PROMPTS)
    hook.remove()


@settings(max_examples=50, deadline=None)
@given(
    logits=st.lists(st.floats(-30, 30), min_size=1, max_size=12),
    temperature=st.floats(0.05, 5.0),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_a_token_is_where_the_cumulative_distribution_passes_the_uniform(logits, temperature, uniform):
    token, logprob = draw(torch.tensor([logits]), temperature, torch.tensor([uniform], dtype=torch.float64))
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    below, through = sum(weights[: token.item()]), sum(weights[: token.item() + 1])
    slack = 1e-5 * sum(weights)
    assert below - slack <= uniform * sum(weights) <= through + slack
    assert logprob.item() == pytest.approx(math.log(weights[token.item()] / sum(weights)), abs=1e-4)


def test_tokens_rarer_than_float32_resolves_are_drawn_as_often_as_they_should():
    # After one token of probability almost 1, a float32 sum would not move for a thousand tokens of 1e-8 each.
    logits = torch.full((1, 1001), math.log(1e-8))
    logits[0, 0] = 0.0
    uniforms = torch.linspace(1 - 1.1e-5, 1 - 1e-7, 1000, dtype=torch.float64)
    drawn, _ = draw(logits.expand(1000, -1), 1.0, uniforms)
    rare = drawn[drawn > 0]
    assert len(rare) == pytest.approx(1000 * (1e-5 - 1e-7) / 1.09e-5, abs=5)
    assert len(set(rare.tolist())) > 0.95 * len(rare)


def test_no_uniform_reaches_a_token_without_probability():
    logits = torch.tensor([[0.0, 0.0, -math.inf]])
    uniforms = torch.tensor([1 - 2.0**-50], dtype=torch.float64)
    assert draw(logits, 1.0, uniforms)[0].item() == 1
    assert draw(torch.tensor([[-math.inf, 0.0]]), 1.0, torch.zeros(1, dtype=torch.float64))[0].item() == 1


def test_a_tiny_temperature_is_greedy():
    logits = torch.tensor([[3.0, 5.0, 4.0]])
    token, logprob = draw(logits, 1e-40, torch.tensor([0.999], dtype=torch.float64))
    assert (token.item(), logprob.item()) == (1, 0.0)


def test_uniforms_are_a_rows_own_and_uniform():
    digest = prompt_digest([5, 6])
    row = row_uniforms(0, digest, 0, 5000)
    assert torch.equal(row_uniforms(0, digest, 0, 10), row[:10])
    others = [
        row_uniforms(1, digest, 0, 10),
        row_uniforms(0, digest, 1, 10),
        row_uniforms(0, prompt_digest([6]), 0, 10),
    ]
    assert all(not torch.equal(other, row[:10]) for other in others)
    assert prompt_digest([1, 23]) != prompt_digest([12, 3])
    counts = torch.histc(row.float(), 20, 0.0, 1.0)
    assert chi_square_p(((counts - 250) ** 2 / 250).sum().item(), 19) > 0.01
