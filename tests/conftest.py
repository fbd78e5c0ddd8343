"""Shared fixtures: a tiny policy with a byte tokenizer, made in a second and loaded through the real path."""

import random

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and an end-of-sequence token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<eos>": 0, "<bos>": 1, **{symbol: i for i, symbol in enumerate(alphabet, start=2)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", bos_token="<bos>", pad_token="<eos>")


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Some 30 thousand random parameters."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=0,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def teach_letters(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int = 60) -> None:
    """Teach it to answer with words of a few letters, whatever is asked; plain torch, nothing of the project."""
    draws = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        words = ["".join(draws.choice("abcd") for _ in range(draws.randint(1, 3))) for _ in range(16)]
        rows = [[1, *tokenizer.encode("tr0a - -:")[:9], *tokenizer.encode(word), 0] for word in words]
        width = max(map(len, rows))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        labels = torch.tensor([[-100] * 10 + row[10:] + [-100] * (width - len(row)) for row in rows])
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory):
    """Folder of a tiny policy, with its tokenizer, that answers with words of a few letters."""
    folder = tmp_path_factory.mktemp("policy")
    model, tokenizer = tiny_model(), byte_tokenizer()
    teach_letters(model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
