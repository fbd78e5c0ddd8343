"""One token of every row through a model, in as few operations as it takes.

A forward pass of transformers runs about 110 operations a layer, most of them views, conversions and masks that one
new token does not need: for a small model, or on a fast device, launching them takes longer than computing. This is
the same arithmetic on the model's own weights, in about 30. It is known to be equal for the families in
`attention.FAMILIES` as transformers ships them; for whatever differs from that there is no `LeanDecoder`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from transformers.activations import ACT2FN

from elite_lightning.attention import attends_to_everything
from elite_lightning.rollout.shared_prefix import SharedMemory

_NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_PLAIN = (nn.Linear, nn.Embedding, nn.ModuleList, type(ACT2FN["silu"]))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


@dataclass(frozen=True, slots=True)
class _Norm:
    """Root mean square norm; as the models do it, in float32, and the weight after the way back.

    Args:
        weight: `[size]`.
        epsilon: Added to the mean square.
        constants: Epsilon and size, float32.
    """

    weight: Tensor
    epsilon: float
    constants: tuple[Tensor, Tensor]

    def __call__(self, values: Tensor) -> Tensor:
        if values.dtype == self.weight.dtype == torch.float32:
            if values.device.type != "cpu":  # elsewhere it is one kernel
                return F.rms_norm(values, self.weight.shape, self.weight, self.epsilon)
            # The model's own bits, from fewer operations than torch's norm takes on a CPU.
            square = (values * values).sum(-1, keepdim=True)
            return (values * torch.addcdiv(self.constants[0], square, self.constants[1]).rsqrt_()).mul_(self.weight)
        exact = values.float()
        exact = exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * exact.to(values.dtype)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's weights; each projection with its bias or None."""

    before: _Norm
    query: tuple[Tensor, Tensor | None]
    key: tuple[Tensor, Tensor | None]
    value: tuple[Tensor, Tensor | None]
    output: tuple[Tensor, Tensor | None]
    head_norms: tuple[_Norm, _Norm] | None
    after: _Norm
    gate: tuple[Tensor, Tensor | None]
    up: tuple[Tensor, Tensor | None]
    down: tuple[Tensor, Tensor | None]
    head_size: int
    scaling: float


class LeanDecoder:
    """A forward pass of one new token a row.

    It refers to the weights as they are when it is made: make one for every call of `generate`.

    Args:
        model: One that `is_known`.
    """

    def __init__(self, model: nn.Module) -> None:
        causal_lm = cast(Any, model)
        decoder = causal_lm.model
        self._embedding: Tensor = decoder.embed_tokens.weight
        self._rotary: nn.Module = decoder.rotary_emb
        self._layers = [_weights(layer) for layer in decoder.layers[: causal_lm.config.num_hidden_layers]]
        self._norm, self._head = _norm(decoder.norm), _projection(causal_lm.lm_head)

    def __call__(self, ids: Tensor, positions: Tensor, memory: SharedMemory) -> Tensor:
        """Write the tokens' keys into the memory and predict the next ones.

        Args:
            ids: `[rows, 1]` int64.
            positions: `[rows, 1]` int64.
            memory: Of the rows, advanced to this token.

        Returns:
            Logits `[rows, vocabulary]`.
        """
        # Not in inference mode: some kinds of it keep new frequencies in the model, which is trained on afterwards.
        cos, sin = self._rotary(self._embedding, positions)  # [rows, 1, head size], which broadcasts over heads
        # What is made here is the memory's or is gone after this token; views cost half in this mode.
        with torch.inference_mode():
            return self._logits(F.embedding(ids.squeeze(1), self._embedding), cos, sin, memory)

    def _logits(self, hidden: Tensor, cos: Tensor, sin: Tensor, memory: SharedMemory) -> Tensor:
        half = sin.shape[-1] // 2
        # With the sign in the sine, turning halves is a roll.
        rotation = cos, torch.cat((-sin[..., :half], sin[..., half:]), -1)
        for index, layer in enumerate(self._layers):
            hidden = hidden + _attention(layer, index, layer.before(hidden), rotation, memory)
            inner = layer.after(hidden)
            inner = F.silu(F.linear(inner, *layer.gate)) * F.linear(inner, *layer.up)
            hidden = hidden + F.linear(inner, *layer.down)
        return F.linear(self._norm(hidden), *self._head)


def is_known(model: nn.Module) -> bool:
    """Whether a `LeanDecoder` computes what the model does: a known family, and nothing about it changed.

    Args:
        model: Any model; one with an adapter, quantised or sharded weights, or hooks is not known.
    """
    config = getattr(model, "config", None)
    family = str(getattr(config, "model_type", None))
    file = f"transformers.models.{family}.modeling_{family}"
    is_family = family in _NAMES and type(model).__module__ == file
    if not is_family or type(model).__name__ != f"{_NAMES[family]}ForCausalLM":
        return False
    if getattr(config, "hidden_act", None) != "silu" or not attends_to_everything(config):
        return False
    if any(getattr(torch_module, hooks) for hooks in _GLOBAL_HOOKS):
        return False
    whole = all(type(weight.data) is Tensor and weight.device.type != "meta" for weight in model.parameters())
    return whole and all(_is_untouched(module, file) for module in model.modules())


def _is_untouched(module: nn.Module, file: str) -> bool:
    ours = type(module) in _PLAIN or type(module).__module__ == file
    changed = "forward" in module.__dict__ or module._compiled_call_impl is not None
    changed |= getattr(module, "max_norm", None) is not None  # of embeddings
    return ours and not changed and not any(getattr(module, hooks) for hooks in _HOOKS)


def _attention(
    layer: _Layer, index: int, hidden: Tensor, rotation: tuple[Tensor, Tensor], memory: SharedMemory
) -> Tensor:
    rows, size = len(hidden), layer.head_size
    query = F.linear(hidden, *layer.query).view(rows, -1, size)
    key = F.linear(hidden, *layer.key).view(rows, -1, size)
    value = F.linear(hidden, *layer.value).view(rows, -1, 1, size)
    if layer.head_norms is not None:
        query, key = layer.head_norms[0](query), layer.head_norms[1](key)
    both = torch.cat((query, key), 1)
    both = both * rotation[0] + both.roll(size // 2, -1) * rotation[1]
    heads = value.shape[1]
    query = both[:, :-heads].reshape(rows, heads, -1, size) * layer.scaling
    attended = memory.attend(index, query, both[:, -heads:, None], value)
    return F.linear(attended.reshape(rows, -1).to(hidden.dtype), *layer.output)


def _weights(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        before=_norm(layer.input_layernorm),
        query=_projection(attention.q_proj),
        key=_projection(attention.k_proj),
        value=_projection(attention.v_proj),
        output=_projection(attention.o_proj),
        head_norms=(_norm(attention.q_norm), _norm(attention.k_norm)) if hasattr(attention, "q_norm") else None,
        after=_norm(layer.post_attention_layernorm),
        gate=_projection(mlp.gate_proj),
        up=_projection(mlp.up_proj),
        down=_projection(mlp.down_proj),
        head_size=attention.head_dim,
        scaling=attention.scaling,
    )


def _projection(linear: Any) -> tuple[Tensor, Tensor | None]:
    return linear.weight, linear.bias


def _norm(module: Any) -> _Norm:
    weight, epsilon = module.weight, module.variance_epsilon
    return _Norm(weight, epsilon, (torch.tensor(epsilon), torch.tensor(float(weight.numel()))))
