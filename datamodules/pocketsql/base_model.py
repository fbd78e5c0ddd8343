"""The untrained bundled policy: a tiny Llama that starts with copying heads, and its tokenizer."""

from __future__ import annotations

from functools import cached_property

from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from datamodules.pocketsql.tokenizer import VOCABULARY_SIZE, train_tokenizer
from elite_lightning.copy_heads import initialise_copy_heads, new_tiny_llama
from elite_lightning.factory import PolicyFactory


class PocketBaseModel(PolicyFactory):
    """Makes the policy that `configs/quickstart_base.yaml` trains.

    Args:
        vocabulary_size: Tokens of the byte-level BPE.
        hidden: Width of the residual stream.
        layers: Number of layers.
        heads: Attention heads a layer.
        intermediate: Width of the feed-forward layers.
        max_positions: Longest sequence, in tokens.
        tokenizer_seed: Of the demonstrations that the tokenizer is trained on.
    """

    def __init__(
        self,
        vocabulary_size: int = VOCABULARY_SIZE,
        hidden: int = 128,
        layers: int = 4,
        heads: int = 4,
        intermediate: int = 384,
        max_positions: int = 4096,
        tokenizer_seed: int = 0,
    ) -> None:
        self.vocabulary_size, self.tokenizer_seed = vocabulary_size, tokenizer_seed
        self.shape = {
            "hidden": hidden,
            "layers": layers,
            "heads": heads,
            "intermediate": intermediate,
            "max_positions": max_positions,
        }

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        return train_tokenizer(self.tokenizer_seed, self.vocabulary_size)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """A byte-level BPE trained on demonstrations."""
        return self._tokenizer

    def model(self, seed: int) -> LlamaForCausalLM:
        """A stock Llama, about 1 M parameters, whose first two layers start as copying heads."""
        tokenizer = self._tokenizer
        model = new_tiny_llama(
            len(tokenizer),
            **self.shape,
            bos_id=tokenizer.bos_token_id,
            eos_id=tokenizer.eos_token_id,
            pad_id=tokenizer.pad_token_id,
            seed=seed,
        )
        initialise_copy_heads(model, seed)
        return model
