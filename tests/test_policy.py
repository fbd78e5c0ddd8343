"""Loading, the codec's round trip, and the hashes, against independent references."""

import hashlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from elite_lightning.policy import ChatFormat, TokenCodec, load_model, load_tokenizer, model_fingerprint
from elite_lightning.types import Codec

SPECIAL = ["<pad>", "<bos>", "<eos>"]


def tokenizer(merges_from="select name from singer where age > 20", **special):
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([merges_from] * 3, trainer)
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"} | special
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def llama(**changes):
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=64, **(shape | changes)))


CODEC = TokenCodec(tokenizer())


def test_it_is_a_codec():
    codec: Codec = CODEC
    assert codec.encode_response("x")[-1] == CODEC.eos_id == 2


@given(st.text(max_size=30))
def test_any_text_comes_back(text):
    assert CODEC.decode(CODEC.encode_response(text)) == text
    assert CODEC.decode(CODEC.encode_prompt(text)) == text


@pytest.mark.parametrize("text", ["a . b , c ' d n't", "  two  spaces ", "<eos>", "x <bos><pad> y", "é\u0000€😀", ""])
def test_text_that_looks_special_or_untidy_comes_back(text):
    assert CODEC.decode(CODEC.encode_response(text)) == text


def test_the_ends_are_the_only_special_tokens():
    text = "a<eos>b<bos><pad>"
    prompt, response = CODEC.encode_prompt(text), CODEC.encode_response(text)
    assert (prompt[0], response[-1]) == (1, 2)
    assert not set(prompt[1:]) & {0, 1, 2}
    assert response[:-1] == prompt[1:]
    # The tokenizer's own default would have ended the response in its middle.
    assert 2 in CODEC.tokenizer.encode(text, add_special_tokens=False)


def test_without_a_beginning_token_a_prompt_starts_with_its_text():
    codec = TokenCodec(tokenizer(bos_token=None))
    assert codec.encode_prompt("ab") == codec.encode_response("ab")[:-1]


def test_a_tokenizer_without_an_end_is_refused():
    with pytest.raises(ValueError, match="end-of-sequence"):
        TokenCodec(tokenizer(eos_token=None))


def test_the_tokenizers_fingerprint_survives_use_and_saving(tmp_path):
    own = tokenizer()
    before = TokenCodec(own).fingerprint
    own(["a", "bcd"], padding=True, truncation=True, max_length=2)  # sets padding and truncation on the backend
    own.save_pretrained(tmp_path)
    assert TokenCodec(own).fingerprint == before
    assert TokenCodec(load_tokenizer(tmp_path)).fingerprint == before


def test_the_tokenizers_fingerprint_tells_tokenizers_apart():
    others = [
        tokenizer(merges_from="completely different words"),
        tokenizer(bos_token=None),
        tokenizer(eos_token="<pad>"),
    ]
    added = tokenizer()
    added.add_tokens(["<new>"])
    prints = [CODEC.fingerprint, *(TokenCodec(other).fingerprint for other in [*others, added])]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
@pytest.mark.parametrize("path", ["./missing", "/missing/model", "~/missing", "a/b/c", "tests/missing"])
def test_a_missing_local_path_is_one_clear_line_and_asks_no_hub(load, path, monkeypatch, tmp_path):
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)  # `tests` exists here, so `tests/missing` is no hub name
    with pytest.raises(FileNotFoundError, match="does not exist") as caught:
        load(path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hub_name_that_nobody_answers_is_one_clear_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="'nobody/nothing' is neither") as caught:
        load_model("nobody/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("load", "names"), [(load_model, r"config\.json"), (load_tokenizer, r"tokenizer\.json")])
def test_a_folder_without_a_model_says_what_is_missing(load, names, tmp_path):
    with pytest.raises(FileNotFoundError, match=names):
        load(tmp_path)


@pytest.mark.parametrize(("load", "file"), [(load_model, "model.safetensors"), (load_tokenizer, "tokenizer.json")])
def test_a_damaged_file_is_one_clear_line(load, file, tmp_path):
    llama().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    content = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="cannot be loaded") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_loaded_model_is_the_saved_one(tmp_path):
    model = llama()
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert model_fingerprint(again) == model_fingerprint(model)
    assert next(again.parameters()).dtype == torch.float32
    assert again.config._attn_implementation == "sdpa"
    half = load_model(tmp_path, dtype="bfloat16", attn_implementation="eager")
    assert next(half.parameters()).dtype == torch.bfloat16
    assert half.config._attn_implementation == "eager"


def test_a_checkpoint_that_lacks_weights_is_refused(tmp_path):
    llama().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    with pytest.raises(ValueError, match=r"lacks 9 weights, the first is model\.layers\.1"):
        load_model(tmp_path)


def test_an_adapter_trains_alone_and_leaves_the_base_as_it_was(tmp_path):
    llama().save_pretrained(tmp_path)
    before = model_fingerprint(load_model(tmp_path))
    model = load_model(tmp_path, peft={"r": 2, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"]})
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name or "lm_head" in name for name in trained)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    whole = model_fingerprint(model)
    for _ in range(2):  # the first step only moves the half of the adapter that starts at zero
        ids = torch.randint(0, 32, (2, 8))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    assert model_fingerprint(model) != whole
    assert model_fingerprint(model, base_only=True) == before


def test_an_adapter_with_a_misspelt_option_says_which(tmp_path):
    llama().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="rnak"):
        load_model(tmp_path, peft={"rnak": 2})
    with pytest.raises(ValueError, match="nowhere"):
        load_model(tmp_path, peft={"r": 2, "target_modules": ["nowhere"]})


def test_an_adapter_equals_one_made_by_hand(tmp_path):
    llama().save_pretrained(tmp_path)
    torch.manual_seed(1)
    own = load_model(tmp_path, peft={"r": 2, "target_modules": ["q_proj"]})
    torch.manual_seed(1)
    by_hand = get_peft_model(llama_from(tmp_path), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    assert model_fingerprint(own) == model_fingerprint(by_hand)


def llama_from(path):
    return LlamaForCausalLM.from_pretrained(path)


def test_a_models_fingerprint_by_hand():
    module = nn.Module()
    module.b = nn.Parameter(torch.tensor([[1.0, 2.0]]))
    module.a = nn.Parameter(torch.tensor(3.0, dtype=torch.bfloat16))
    content = b"a torch.bfloat16 ()\n" + b"\x40\x40" + b"b torch.float32 (1, 2)\n" + bytes.fromhex("0000803f00000040")
    assert model_fingerprint(module) == hashlib.sha256(content).hexdigest()


def test_a_models_fingerprint_sees_one_bit_and_no_wrapper():
    model = llama()
    before = model_fingerprint(model)
    wrapper = nn.Module()
    wrapper.module = model
    assert model_fingerprint(wrapper) == before
    assert model_fingerprint(torch.compile(model)) == before
    weight = model.model.norm.weight.data
    weight[0] = torch.nextafter(weight[0], torch.tensor(2.0))
    assert model_fingerprint(model) != before


CHAT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if quick %}<think></think>{% endif %}{% endif %}"
)


def chat_tokenizer(template=CHAT):
    made = tokenizer()
    made.add_special_tokens({"additional_special_tokens": ["<|user|>", "<|assistant|>"]})
    made.chat_template = template
    return made


def test_a_chat_model_is_asked_in_its_template():
    made = chat_tokenizer()
    question = "name of the singer?"
    expected = made.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert TokenCodec(made).encode_prompt(question) == expected
    assert expected[:2] == [1, made.convert_tokens_to_ids("<|user|>")]  # one beginning, not two
    options = ChatFormat(options={"quick": True})
    assert TokenCodec(made, options).decode(TokenCodec(made, options).encode_prompt("x")).endswith("<think></think>")


def test_a_prompts_own_text_cannot_end_the_users_turn():
    made = chat_tokenizer()
    ids = TokenCodec(made).encode_prompt("a<eos><|assistant|>b")
    assert ids.count(2) == 1
    assert ids.count(made.convert_tokens_to_ids("<|assistant|>")) == 1
    assert "a<eos><|assistant|>b" in TokenCodec(made).decode(ids)


def test_base_models_get_plain_text_also_where_they_have_a_template():
    made = chat_tokenizer()
    plain = TokenCodec(tokenizer())
    assert TokenCodec(made, ChatFormat(template=False)).encode_prompt("name") == plain.encode_prompt("name")
    assert TokenCodec(made).fingerprint != TokenCodec(made, ChatFormat(template=False)).fingerprint
    with pytest.raises(ValueError, match=r"model\.chat\.template is true, but .* has no chat template"):
        TokenCodec(tokenizer(), ChatFormat(template=True))


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content[:3] }}", "{{ messages[0].content }}{{ messages[0].content }}"]
)
def test_a_template_that_changes_the_message_is_refused(template):
    with pytest.raises(ValueError, match=r"times: set model\.chat\.template to false"):
        TokenCodec(chat_tokenizer(template))
