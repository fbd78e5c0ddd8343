"""The policy's loading: tokenizer, model, adapters, and hashes that say which ones they were.

Nothing here generates, trains or knows what a problem is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]

_MESSAGE = "the prompt of 5f0c1d2e"  # stands for the prompt while the template is cut in two at its place


@dataclass(frozen=True)  # no slots: the command line reads a default's values from its __dict__
class ChatFormat:
    """Whether and how prompts go into the tokenizer's chat template.

    Args:
        template: Whether the template is used; null uses it where the tokenizer has one. Some base models have one as
            well, as Qwen's do: false asks them in plain text.
        options: Further values for the template, such as `{"enable_thinking": false}` for Qwen3.
    """

    template: bool | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def around(self, tokenizer: PreTrainedTokenizerFast) -> tuple[str, str] | None:
        """The template's text before and after the user's message; None for plain prompts.

        Args:
            tokenizer: Where the template comes from.

        Raises:
            ValueError: If there is no template, or it does not show the message once, as it is.
        """
        wanted = bool(getattr(tokenizer, "chat_template", None)) if self.template is None else self.template
        if not wanted:
            return None
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError(f"model.chat.template is true, but {tokenizer.name_or_path!r} has no chat template")
        message = [{"role": "user", "content": _MESSAGE}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True, **self.options)
        before, *after = str(text).split(_MESSAGE)
        if len(after) != 1:
            raise ValueError(
                f"the chat template of {tokenizer.name_or_path!r} shows a message {len(after)} times: "
                "set model.chat.template to false"
            )
        return before, after[0]


class TokenCodec:
    """Text to token ids and back; implements `elite_lightning.types.Codec`.

    Prompts start with the beginning-of-sequence token where the tokenizer has one; responses end with the
    end-of-sequence token. Text is only ever text: a response that contains the characters of a special token is
    split into ordinary tokens, so that no database value or model output can end a sequence by accident.

    A chat model is asked in its own form: the tokenizer's chat template around the prompt as the user's one message, up
    to where the answer begins. The template's own tokens are special then, the prompt's text still is not.

    Args:
        tokenizer: A fast tokenizer with an end-of-sequence token.
        chat: The form of prompts, see `ChatFormat`.

    Raises:
        ValueError: If the tokenizer is not a fast one, has no end-of-sequence token, or its chat template is asked for
            and missing, or changes the message.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, chat: ChatFormat | None = None) -> None:
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise ValueError(f"tokenizer {name!r} is not a fast tokenizer: save it with a tokenizer.json")
        if tokenizer.eos_token_id is None:
            raise ValueError(f"tokenizer {name!r} has no end-of-sequence token: set tokenizer.eos_token")
        self.tokenizer = tokenizer
        self._around = (chat or ChatFormat()).around(tokenizer)

    @property
    def eos_id(self) -> int:
        """Id of the end-of-sequence token."""
        return int(self.tokenizer.eos_token_id)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all that decides ids: normaliser, vocabulary, merges, added and special tokens, chat form."""
        state = json.loads(self.tokenizer.backend_tokenizer.to_str())
        # Truncation and padding are settings of the last call, not of the tokenizer.
        content = {key: value for key, value in state.items() if key not in ("truncation", "padding")}
        ends = {"bos": self.tokenizer.bos_token_id, "eos": self.tokenizer.eos_token_id}
        chat = {} if self._around is None else {"chat": self._around}
        canonical = json.dumps({"tokenizer": content, "ends": ends, **chat}, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a prompt: within the chat template, else behind the beginning-of-sequence token if any."""
        if self._around is not None:
            before, after = self._around
            return self._encode(before, special=True) + self._encode(text) + self._encode(after, special=True)
        start = self.tokenizer.bos_token_id
        return ([] if start is None else [int(start)]) + self._encode(text)

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response and the end-of-sequence token."""
        return [*self._encode(text), self.eos_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; spaces are left as they are."""
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def _encode(self, text: str, special: bool = False) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=not special))


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerFast:
    """Load a fast tokenizer from a folder, or by its name on the Hugging Face hub.

    Args:
        path: Folder with a `tokenizer.json`, or a hub name such as `Qwen/Qwen3-0.6B`.

    Raises:
        FileNotFoundError: If there is no such folder or hub name, or it holds no tokenizer.
        ValueError: If what the folder holds is damaged.
    """
    name = _checked(path, "tokenizer", needs=("tokenizer.json", "tokenizer_config.json"))
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(name)
    except Exception as error:  # the loader's compiled parts raise bare Exceptions
        raise _not_loadable(name, "tokenizer", error) from error
    return cast(PreTrainedTokenizerFast, tokenizer)


def load_model(
    path: str | Path,
    dtype: Dtype = "float32",
    attn_implementation: Attention = "sdpa",
    peft: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Load a causal language model from a folder or the Hugging Face hub, with an adapter if asked for.

    Args:
        path: Folder with a `config.json`, or a hub name such as `Qwen/Qwen3-0.6B`.
        dtype: Type of the weights; `auto` takes the checkpoint's own.
        attn_implementation: Attention kernel of transformers.
        peft: Arguments of a PEFT configuration, such as `{"r": 16, "target_modules": "all-linear"}`; LoRA unless
            `peft_type` says otherwise. The base weights are then frozen and the adapter alone is trained.

    Raises:
        FileNotFoundError: If there is no such folder or hub name, or it holds no model.
        ValueError: If the checkpoint is damaged or lacks weights of its architecture, or `peft` is not a valid
            configuration.
    """
    name = _checked(path, "model", needs=("config.json",))
    options = {"dtype": dtype, "attn_implementation": attn_implementation, "output_loading_info": True}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, **options)
    except Exception as error:  # the loader's compiled parts raise bare Exceptions
        raise _not_loadable(name, "model", error) from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        # transformers would fill them with random numbers and go on.
        raise ValueError(f"model {name!r} lacks {len(missing)} weights, the first is {missing[0]}: wrong checkpoint?")
    return model if peft is None else add_adapter(model, peft)


def add_adapter(model: nn.Module, peft: Mapping[str, Any]) -> nn.Module:
    """Freeze a model and put a trainable PEFT adapter on it.

    Args:
        model: A causal language model of transformers; changed in place.
        peft: Arguments of a PEFT configuration; LoRA unless `peft_type` says otherwise.

    Raises:
        ValueError: If `peft` is not a valid configuration for this model.
    """
    from peft import get_peft_config, get_peft_model

    try:
        config = get_peft_config({"peft_type": "LORA", "task_type": "CAUSAL_LM", **peft})
        return get_peft_model(model, config)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"peft={dict(peft)!r} is not a valid adapter for this model: {_first_line(error)}") from error


def checkpoint_layers(model: nn.Module) -> None:
    """Let a model make its layers' activations again in the backward pass instead of keeping them.

    Args:
        model: A causal language model of transformers, with or without a PEFT adapter; changed in place.

    Raises:
        ValueError: If its layers cannot do that.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    layers = [module for module in base.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers or not base.supports_gradient_checkpointing:
        raise ValueError(f"{type(base).__name__} cannot make its activations again: leave out gradient_checkpointing")
    enable = getattr(base, "activation_checkpointing_enable", None) or base.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    for layer in layers:
        # They do so in training mode only. What is inside of them, dropout for one, stays in evaluation mode.
        layer.training = True


def model_fingerprint(model: nn.Module, base_only: bool = False) -> str:
    """SHA-256 over a model's names, dtypes, shapes and bytes, one tensor in host memory at a time.

    Equal for equal weights on any device, and whether or not the model sits in a DDP or `torch.compile` wrapper.
    Sharded tensors are gathered, so every rank has to call it.

    Args:
        model: Any module; its `state_dict` is hashed.
        base_only: Leave PEFT adapters out and undo PEFT's renaming, so that the result is the fingerprint of the
            model before the adapter was put on it.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(_named_weights(model, base_only)):
        value = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _named_weights(model: nn.Module, base_only: bool) -> Iterator[tuple[str, torch.Tensor]]:
    prefix = getattr(getattr(model, "base_model", None), "prefix", None)  # "lora_" and the like on a PEFT model
    for full_name, tensor in model.state_dict().items():
        name = full_name.removeprefix("_orig_mod.").removeprefix("module.")
        if base_only and isinstance(prefix, str):
            if prefix in name or ".modules_to_save." in name:
                continue
            name = name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".original_module.", ".")
        yield name, tensor


def _checked(path: str | Path, what: str, needs: tuple[str, ...]) -> str:
    """Refuse what can only be a local path and is not there, before the hub is asked for a model of that name."""
    name = str(path)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not any((folder / needed).is_file() for needed in needs):
            raise FileNotFoundError(f"{what} folder {name!r} holds no {' or '.join(needs)}")
        return str(folder)
    if isinstance(path, Path) or _only_local(name):
        raise FileNotFoundError(f"{what} folder {name!r} does not exist (working directory {Path.cwd()})")
    return name


def _only_local(name: str) -> bool:
    """Whether a name cannot be a hub name, which is `name` or `owner/name`, or starts with a folder that is here."""
    first, _, rest = name.partition("/")
    return first in ("", ".", "..") or first.startswith("~") or "/" in rest or "\\" in name or Path(first).is_dir()


def _not_loadable(name: str, what: str, error: Exception) -> Exception:
    if Path(name).is_dir():
        return ValueError(f"{what} folder {name!r} cannot be loaded: {_first_line(error)}")
    return FileNotFoundError(f"{what} {name!r} is neither a folder nor on the Hugging Face hub: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
