"""The seam for policies that are made and not loaded, such as a small model that is trained from scratch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn
from transformers import PreTrainedTokenizerFast


class PolicyFactory(ABC):
    """Makes a policy and its tokenizer."""

    @abstractmethod
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer; a pure function of the factory's arguments."""

    @abstractmethod
    def model(self, seed: int) -> nn.Module:
        """An untrained causal language model of transformers; a pure function of the arguments and the seed."""
