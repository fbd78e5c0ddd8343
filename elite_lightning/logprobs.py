"""Log-probabilities of response tokens under a policy, within a memory bound.

Logits of a whole batch are the largest tensor of a training step: 8,000 tokens times a vocabulary of 150,000 are 5 GB
in float32, several times over. So logits are made only for positions that predict a response token, a chunk of them at
a time, and made again in the backward pass.

All of it happens inside one ordinary call of the model. During that call the output head's `forward` is exchanged for
one that returns log-probabilities where it would have returned logits. Calling decoder and head one after the other
would be shorter, but it bypasses the model's own `forward`: FSDP2 gathers the root's weights in hooks around that
call (and again for the backward pass, through hooks on what the call returns), and whatever an architecture does to
hidden states before the head would be lost. If an architecture does something to the logits AFTER the head, such as
softcapping or scaling, what comes out of the model is not what the exchanged head returned: this is noticed, and the
model's own logits are used instead, at the cost of memory.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from elite_lightning.attention import can_share_prompts
from elite_lightning.batching import TokenBatch
from elite_lightning.linear_logprobs import is_in_one_precision, is_plain_linear, linear_logprobs
from elite_lightning.tree_attention import ARGUMENT

# Logits of one chunk in float32; one copy of them exists at a time, a few if the head is no plain linear layer. On an
# accelerator more, because every chunk reads and writes the head's gradient once.
CHUNK_BYTES, CHUNK_BYTES_ON_CPU = 256 * 2**20, 64 * 2**20

# Models that were seen to change their logits after the head. A memo: it saves a forward pass and changes no result.
_changes_logits: WeakSet[nn.Module] = WeakSet()


class TokenLogprobs(NamedTuple):
    """Log-probabilities of response tokens, and the entropy of the distributions that they come from.

    Args:
        logprobs: `[batch, response_time]`, float32 (float64 for float64 logits), in nats; 0 at padding.
        entropy: Like `logprobs`, without gradient; None unless it was asked for.
    """

    logprobs: Tensor
    entropy: Tensor | None


def response_logprobs(
    model: nn.Module, batch: TokenBatch, temperature: float = 1.0, chunk_tokens: int | None = None
) -> Tensor:
    """Log-probability of each response token; `token_logprobs` without the entropy.

    Args:
        model: See `token_logprobs`.
        batch: See `token_logprobs`.
        temperature: See `token_logprobs`.
        chunk_tokens: See `token_logprobs`.

    Returns:
        `[batch, response_time]`, float32, in nats; 0 at padding.
    """
    return token_logprobs(model, batch, temperature, chunk_tokens).logprobs


def token_logprobs(
    model: nn.Module,
    batch: TokenBatch,
    temperature: float = 1.0,
    chunk_tokens: int | None = None,
    *,
    with_entropy: bool = False,
) -> TokenLogprobs:
    """Log-probability of each response token under the policy, with a graph when gradients are enabled.

    Args:
        model: A transformers causal language model, also inside a PEFT model, FSDP2 or a wrapper with `.module`.
        batch: Padded rows, on the model's device.
        temperature: Softmax temperature, the one that the responses were sampled with: the policy is softmax(logits /
            temperature).
        chunk_tokens: Tokens whose logits exist at a time; by default as many as fit into 256 MiB of float32, or into
            64 MiB on a CPU.
        with_entropy: Also return each distribution's entropy.

    Returns:
        Log-probabilities and, where asked for, entropies.

    Raises:
        ValueError: If `temperature` is not positive, or the model's output does not line up with its input.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive to score responses, got {temperature}")
    causal_lm = _causal_lm(model)
    if causal_lm not in _changes_logits:
        head = causal_lm.get_output_embeddings()
        chunk = chunk_tokens or _default_chunk(causal_lm, batch.input_ids.device)
        scorer = _ScoringHead(head, batch, temperature, chunk, with_entropy)
        with _exchanged_forward(head, scorer):
            output = model(**_inputs(causal_lm, batch))
        if scorer.is_untouched(output.logits):
            return TokenLogprobs(output.logits, scorer.entropy)
        _changes_logits.add(causal_lm)
    return _from_model_logits(model, batch, temperature, with_entropy)


class _ScoringHead:
    """Stands in for the output head during one call: takes hidden states, returns log-probabilities of the targets."""

    def __init__(
        self,
        head: nn.Module,
        batch: TokenBatch,
        temperature: float,
        chunk_tokens: int,
        with_entropy: bool,
    ) -> None:
        self.head = head
        self.head_forward: Callable[..., Tensor] = head.forward
        self.is_plain = is_plain_linear(head)  # asked now: during the call, its `forward` is this object
        self.batch = batch
        self.temperature = temperature
        self.chunk_tokens = chunk_tokens
        self.with_entropy = with_entropy
        self.entropy: Tensor | None = None
        self._returned: tuple[Tensor, int] | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """Score `hidden` `[batch, time, width]`; returns `[batch, response_time]`."""
        if hidden.shape[:2] != self.batch.input_ids.shape:
            raise ValueError(
                f"the output head got hidden states for {tuple(hidden.shape[:2])} positions, the input has "
                f"{tuple(self.batch.input_ids.shape)}: models that add or drop positions cannot be scored"
            )
        predictors = hidden.flatten(0, 1).index_select(0, self.batch.predictor_index.to(hidden.device))
        logprobs, entropy = self._in_chunks(predictors, _targets(self.batch).to(hidden.device))
        if entropy is not None:
            self.entropy = _placed(entropy, self.batch)
        returned = _placed(logprobs, self.batch)
        self._returned = (returned, _version(returned))
        return returned

    def is_untouched(self, logits: Tensor) -> bool:
        """Whether the model handed on exactly what this head returned, neither replaced nor changed in place."""
        return self._returned is not None and logits is self._returned[0] and _version(logits) == self._returned[1]

    def _in_chunks(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Score `hidden` `[tokens, width]`, `chunk_tokens` at a time."""
        if self.is_plain and not self.with_entropy and is_in_one_precision(self.head, hidden):
            return linear_logprobs(hidden, self.head, targets, self.temperature, self.chunk_tokens), None
        if len(targets) <= self.chunk_tokens:
            return self._score(hidden, targets)  # the bound holds without computing anything twice
        pairs = zip(torch.split(hidden, self.chunk_tokens), torch.split(targets, self.chunk_tokens), strict=True)
        scored = [checkpoint(self._score, *pair, use_reentrant=False) for pair in pairs]
        logprobs = torch.cat([logprobs for logprobs, _ in scored])
        return logprobs, torch.cat([entropy for _, entropy in scored]) if self.with_entropy else None

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits of one chunk, used up on the spot."""
        return _score_logits(self.head_forward(hidden), targets, self.temperature, self.with_entropy)


def _from_model_logits(model: nn.Module, batch: TokenBatch, temperature: float, with_entropy: bool) -> TokenLogprobs:
    """The same from the model's own logits, for architectures that change them after the head."""
    causal_lm = _causal_lm(model)
    time = batch.input_ids.shape[1]
    kept, column = torch.unique(batch.predictor_index % time, return_inverse=True)
    inputs = _inputs(causal_lm, batch)
    if _accepts(causal_lm, "logits_to_keep") and len(kept) > 0:
        # Positions that predict a response token in any row; one-dimensional, as every transformers 5 understands it.
        inputs["logits_to_keep"] = kept
    else:
        kept, column = torch.arange(time), batch.predictor_index % time
    logits = model(**inputs).logits
    if logits.shape[:2] != (len(batch.input_ids), len(kept)):
        raise ValueError(
            f"the model returned logits for {tuple(logits.shape[:2])} positions instead of "
            f"{(len(batch.input_ids), len(kept))}: models that add or drop positions cannot be scored"
        )
    wanted = logits[(batch.predictor_index // time).to(logits.device), column.to(logits.device)]
    logprobs, entropy = _score_logits(wanted, _targets(batch).to(logits.device), temperature, with_entropy)
    return TokenLogprobs(_placed(logprobs, batch), None if entropy is None else _placed(entropy, batch))


def _score_logits(
    logits: Tensor, targets: Tensor, temperature: float, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of `targets` `[tokens]` under `logits` `[tokens, vocabulary]`, in float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature != 1.0:
        logits = logits / temperature
    log_softmax = logits.log_softmax(dim=-1)
    logprobs = log_softmax.gather(-1, targets[:, None]).squeeze(-1)
    if not with_entropy:
        return logprobs, None
    fixed = log_softmax.detach()
    return logprobs, -(fixed.exp() * fixed).sum(dim=-1)


def _targets(batch: TokenBatch) -> Tensor:
    """Response tokens without padding, `[tokens]`."""
    return batch.response_ids.flatten().index_select(0, batch.slot_index)


def _placed(values: Tensor, batch: TokenBatch) -> Tensor:
    """Put `[tokens]` into their places in `[batch, response_time]`, 0 elsewhere."""
    rows, columns = batch.response_mask.shape
    slot = batch.slot_index.to(values.device)
    place = (slot // max(columns, 1), slot % max(columns, 1))
    # Not a view of something flat: FSDP2 hangs its backward hooks on what the model returns, and warns about views.
    return values.new_zeros(rows, columns).index_put(place, values)


def _version(tensor: Tensor) -> int:
    """Counter of in-place changes; tensors made under inference_mode have none."""
    return 0 if tensor.is_inference() else tensor._version


def _causal_lm(model: nn.Module) -> Any:
    """The transformers model inside wrappers."""
    while not hasattr(model, "get_output_embeddings"):
        if not isinstance(getattr(model, "module", None), nn.Module):
            raise ValueError(f"{type(model).__name__} is not a transformers causal language model or a wrapper of one")
        model = model.module  # type: ignore[assignment]
    return model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]


def _default_chunk(causal_lm: Any, device: torch.device) -> int:
    """Number of tokens whose float32 logits fit into a chunk."""
    size = CHUNK_BYTES_ON_CPU if device.type == "cpu" else CHUNK_BYTES
    return max(1, size // (4 * int(causal_lm.config.get_text_config().vocab_size)))


def _accepts(causal_lm: nn.Module, name: str) -> bool:
    """Whether the model's forward has an argument of this name."""
    return name in inspect.signature(causal_lm.forward).parameters


def _inputs(causal_lm: nn.Module, batch: TokenBatch) -> dict[str, Any]:
    """What the model is called with; state-space models, for one, take no positions."""
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if batch.tree is not None:
        # A mask of four dimensions is handed on as it is; without it, one would be made that nobody looks at.
        inputs |= {ARGUMENT: batch.tree, "attention_mask": batch.attention_mask[None, None].bool()}
    elif can_share_prompts(causal_lm):
        # Padding comes last, so causal attention alone keeps it out of sight, and without a mask computes half as much.
        inputs["attention_mask"] = None
    optional = {"position_ids": batch.position_ids, "use_cache": False}
    return inputs | {name: value for name, value in optional.items() if _accepts(causal_lm, name)}


@contextmanager
def _exchanged_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Exchange a module's `forward` for the time of the block; its hooks (FSDP2's among them) stay in place."""
    own = module.__dict__.get("forward")  # something else may have set one on this instance already
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
