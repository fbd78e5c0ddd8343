"""Which models let us choose what a token attends to: the condition for sharing prompts in sampling and in training."""

from __future__ import annotations

from typing import Any

FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Values of `model_type` for which tests compare shared prompts with the model's own attention."""


def attends_to_everything(config: Any) -> bool:
    """Whether every layer attends to all tokens before, through the interface that takes masks and functions of ours.

    Args:
        config: The language model's own configuration.
    """
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    slides = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    return getattr(config, "model_type", None) in FAMILIES and layers == {"full_attention"} and slides is None


def can_share_prompts(model: Any) -> bool:
    """Whether a model can be trained on several responses to one prompt in one row.

    Args:
        model: A transformers causal language model, with or without a PEFT adapter.
    """
    config = model.config.get_text_config()
    # Of the attention implementations, this is the one that `tree_attention` takes over; it knows no dropout.
    return attends_to_everything(config) and config._attn_implementation == "sdpa"
