"""Sampling in this process, from any causal language model of transformers that has a key/value cache.

Each distinct prompt is run through the model once, and all of its samples read that one cache, or copies of it where
the model's attention cannot be chosen; finished rows make room for waiting ones. Not here: other processes and
machines, and anything that would change the distribution (top-p, top-k, penalties).
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from transformers.cache_utils import Cache

from elite_lightning.attention import attends_to_everything
from elite_lightning.errors import UsageError
from elite_lightning.rollout.batch import DecodingBatch, FinishedRow
from elite_lightning.rollout.cache import SlotCache
from elite_lightning.rollout.lean import LeanDecoder, is_known
from elite_lightning.rollout.memory import ExpandedMemory, Prefilled, RowMemory
from elite_lightning.rollout.sampling import prompt_digest, row_uniforms
from elite_lightning.rollout.shared_prefix import SharedMemory, shared_attention
from elite_lightning.types import Codec, Completion, FinishReason, Sampling

# Ended rows are taken out once they are a quarter of the batch: moving rows costs about as much as some steps.
_RELEASE_BELOW = 0.75
_CACHED_ATTENTION = {"full_attention", "sliding_attention"}


class InProcessEngine:
    """Samples responses from a model in this process; implements `elite_lightning.types.RolloutEngine`.

    A row's randomness comes from the seed, the prompt's content and which of the prompt's samples it is. So it does
    not depend on the other prompts, on their order or on `max_rows`, apart from what the batch's shape does to the
    last bits of the model's arithmetic. A prompt that occurs twice in a call gets different samples.

    Gradients are off by `torch.no_grad`, not by `inference_mode`: a module may keep what it computed in a forward
    pass (sharded wrappers keep gathered weights), and autograd and in-place updates refuse an inference tensor for
    good. Around a frozen model the caller may add `inference_mode`.

    Args:
        model: A causal language model of transformers, with or without a PEFT adapter, not in a DDP wrapper.
        codec: Text to ids and back; its end-of-sequence token ends a response.
        max_rows: Most responses that are written at once; the key/value cache holds this many.
        prefill_tokens: Most prompt tokens, padding included, in one forward pass; None takes 8,192, or 1,024 on a CPU,
            whose caches hold no more.
        share_prefixes: Let all samples of a prompt read one copy of its keys and values; faster, the same up to
            rounding. None does it for the families of models that are known to allow it (`attention.FAMILIES`).
        lean: Where prefixes are shared, leave out what a model's own forward pass does besides computing, if the model
            is exactly one that is known (`lean.is_known`); faster, the same up to rounding.
        keep_stepping: For sharded models, whose ranks must all do the same number of forward passes. Called before
            each pass with True and after the last one with False; returns whether any rank still has work, for
            example by an all-reduce. A rank that is done then passes a single token and ignores the result.

    Raises:
        ValueError: If the model keeps no key/value cache, or one that rows cannot be copied into.
    """

    def __init__(
        self,
        model: nn.Module,
        codec: Codec,
        max_rows: int = 256,
        prefill_tokens: int | None = None,
        share_prefixes: bool | None = None,
        lean: bool = True,
        keep_stepping: Callable[[bool], bool] | None = None,
    ) -> None:
        if max_rows < 1 or (prefill_tokens is not None and prefill_tokens < 1):
            raise ValueError(f"max_rows and prefill_tokens must be at least 1, got {max_rows} and {prefill_tokens}")
        self.model, self.codec = model, codec
        self.max_rows, self._prefill_tokens, self.keep_stepping = max_rows, prefill_tokens, keep_stepping
        self.eos_id = codec.encode_response("")[-1]
        self._takes = _forward_arguments(model)
        possible = attends_to_everything(_config(model))
        if share_prefixes and not possible:
            raise ValueError(
                f"share_prefixes: models of type {_config(model).model_type!r} in this configuration are not known to "
                "allow it: leave it out"
            )
        self.share_prefixes = possible if share_prefixes is None else share_prefixes
        self.lean, self._lean = lean, cast(LeanDecoder | None, None)

    def generate(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int
    ) -> list[list[Completion]]:
        """Draw `n` responses to each prompt.

        Args:
            prompts: Token ids of each prompt, as the codec writes them.
            n: Responses per prompt.
            sampling: Temperature and longest response. At temperature 0 the log-probabilities are the model's own,
                at temperature 1.
            seed: Same seed, same machine: same tokens.

        Returns:
            A list of `n` completions per prompt, in the order of the prompts.

        Raises:
            ValueError: If a prompt is empty.
            UsageError: If a prompt leaves no room for `max_new_tokens` in the model's positions.
            FloatingPointError: If the model's logits are NaN.
        """
        self._check(prompts, n, sampling)
        with _evaluating(self.model), torch.no_grad():
            if self.lean and self.share_prefixes and self.keep_stepping is None and is_known(self.model):
                self._lean = LeanDecoder(self.model)
            try:
                rows = _Rollout(self, prompts, n, sampling, seed).run()
            finally:
                self._lean = None  # it refers to weights that may be exchanged before the next call
        return [[self._completion(rows[i * n + j]) for j in range(n)] for i in range(len(prompts))]

    def prefill(self, prompts: Sequence[Sequence[int]]) -> SlotCache:
        """Run prompts through the model, all but their last token; row `i` of the cache belongs to prompt `i`.

        Padding is on the right, where causal attention never looks: no mask is needed and the fast kernels apply.
        """
        longest = max(len(prompt) for prompt in prompts) - 1
        device = self.device
        ids = torch.full((len(prompts), longest), self.eos_id, device=device)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt) - 1] = torch.tensor(prompt[:-1], device=device)
        cache = SlotCache(len(prompts), longest)
        self._forward(ids, None, torch.arange(longest, device=device).expand_as(ids), cache)
        if not cache.layers or cache.get_seq_length() != longest:
            raise ValueError(f"{type(self.model).__name__} does not write its keys and values to the cache it is given")
        return cache

    def new_memory(self, slots: int, longest: int, max_new_tokens: int, replaced: bool) -> RowMemory:
        """A memory for `slots` rows.

        Args:
            slots: Most rows at once.
            longest: Length of the longest prompt.
            max_new_tokens: Longest response.
            replaced: Whether other rows will follow on the first ones.
        """
        if self.share_prefixes:
            return SharedMemory(max_new_tokens, self.device)
        # Rows that are admitted later start further right; with room for one more response the cache shifts seldom.
        return ExpandedMemory(slots, longest - 1 + (2 if replaced else 1) * max_new_tokens, self.device)

    def decode(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, memory: RowMemory
    ) -> torch.Tensor:
        """Logits `[rows, vocabulary]` of the token after `ids` `[rows, 1]`."""
        if not isinstance(memory, SharedMemory):
            return self._forward(ids, mask, positions, memory.cache)
        if self._lean is not None:
            return self._lean(ids, positions, memory)
        with shared_attention(_config(self.model), memory):
            return self._forward(ids, mask, positions, memory.cache)

    @property
    def prefill_tokens(self) -> int:
        """Most prompt tokens in one forward pass; a property, because a model moves to its device late."""
        return self._prefill_tokens or (1024 if self.device.type == "cpu" else 8192)

    @property
    def device(self) -> torch.device:
        """Where the model's parameters are."""
        return next(self.model.parameters()).device

    def finish(self) -> None:
        """Take part in other ranks' forward passes until all are done."""
        token = torch.tensor([[self.eos_id]], device=self.device)
        while self.keep_stepping is not None and self.keep_stepping(False):
            self.model(input_ids=token)

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Cache
    ) -> torch.Tensor:
        if self.keep_stepping is not None:
            self.keep_stepping(True)
        offered = {"attention_mask": mask, "position_ids": positions, "use_cache": True, "logits_to_keep": 1}
        # Later releases of transformers 5 renamed the argument, and drop the old name in time.
        name = "cache" if "cache" in self._takes else "past_key_values"
        arguments: dict[str, Any] = {key: value for key, value in offered.items() if key in self._takes}
        logits: torch.Tensor = self.model(input_ids=ids, **arguments, **{name: cache}).logits
        return logits[:, -1]

    def _check(self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        limit = getattr(_config(self.model), "max_position_embeddings", None)
        for index, prompt in enumerate(prompts):
            if not len(prompt):
                raise ValueError(f"prompt {index} is empty: a response needs at least one token in front")
            if limit is not None and len(prompt) + sampling.max_new_tokens > limit:
                raise UsageError(
                    f"prompt {index} has {len(prompt)} tokens; with max_new_tokens={sampling.max_new_tokens} that is "
                    f"more than the model's max_position_embeddings={limit}: shorten the one or lower the other"
                )

    def _completion(self, row: FinishedRow) -> Completion:
        if any(math.isnan(logprob) for logprob in row.logprobs):
            raise FloatingPointError("the model's logits are NaN: its weights have diverged or are not loaded")
        reason = FinishReason.STOP if row.token_ids[-1] == self.eos_id else FinishReason.LENGTH
        return Completion(row.token_ids, row.logprobs, reason, self.codec.decode(row.token_ids))


class _Rollout:
    """One call of `generate`: which rows wait, which prompts are prefilled, which rows are done."""

    def __init__(
        self, engine: InProcessEngine, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int
    ) -> None:
        self.engine, self.max_new_tokens, self.seed = engine, sampling.max_new_tokens, seed
        owners: dict[tuple[int, ...], list[int]] = {}
        for index, prompt in enumerate(prompts):
            owners.setdefault(tuple(prompt), []).extend(range(index * n, (index + 1) * n))
        # Longest first: what comes later always fits behind the columns that are in use, and the batch ends short.
        self.prompts = sorted(owners, key=lambda prompt: (-len(prompt), prompt))
        self.digests = [prompt_digest(prompt) for prompt in self.prompts]
        self.waiting = deque(
            (index, sample, owner)
            for index, prompt in enumerate(self.prompts)
            for sample, owner in enumerate(owners[prompt])
        )
        self.prefilled: dict[int, Prefilled] = {}
        self.batch = self._new_batch(sampling.temperature) if self.waiting else None

    def _new_batch(self, temperature: float) -> DecodingBatch:
        slots = min(self.engine.max_rows, len(self.waiting))
        engine = self.engine
        memory = engine.new_memory(slots, len(self.prompts[0]), self.max_new_tokens, len(self.waiting) > slots)
        return DecodingBatch(memory, slots, self.max_new_tokens, engine.eos_id, temperature, engine.device)

    def run(self) -> dict[int, FinishedRow]:
        """Write all rows; returns them by owner."""
        done: dict[int, FinishedRow] = {}
        while (batch := self.batch) is not None and (batch.alive_count or self.waiting):
            if batch.alive_count <= _RELEASE_BELOW * batch.size:
                done.update((row.owner, row) for row in batch.release())
                self._admit(batch)
            batch.step(self.engine.decode)
        if self.batch is not None:
            done.update((row.owner, row) for row in self.batch.release())
        self.engine.finish()
        return done

    def _admit(self, batch: DecodingBatch) -> None:
        taken = [self.waiting.popleft() for _ in range(min(batch.free, len(self.waiting)))]
        samples: dict[int, list[tuple[int, int]]] = {}
        for index, sample, owner in taken:
            samples.setdefault(index, []).append((sample, owner))
        self._prefill([index for index in samples if index not in self.prefilled])
        for index, rows in samples.items():
            prompt, digest = self.prompts[index], self.digests[index]
            uniforms = torch.stack([row_uniforms(self.seed, digest, s, self.max_new_tokens) for s, _ in rows])
            owners = torch.tensor([owner for _, owner in rows])
            batch.admit(owners, uniforms, prompt[-1], len(prompt), self.prefilled.get(index))
        still_needed = self.waiting[0][0] if self.waiting else len(self.prompts)
        self.prefilled = {index: place for index, place in self.prefilled.items() if index >= still_needed}

    def _prefill(self, indices: list[int]) -> None:
        """Prefill prompts of falling length, in batches within the token budget."""
        todo = [index for index in indices if len(self.prompts[index]) > 1]
        while todo:
            count = max(1, self.engine.prefill_tokens // (len(self.prompts[todo[0]]) - 1))
            now, todo = todo[:count], todo[count:]
            cache = self.engine.prefill([self.prompts[index] for index in now])
            self.prefilled.update((index, (cache, row)) for row, index in enumerate(now))


def _config(model: Any) -> Any:
    """The language model's configuration, also of a model that takes pictures besides."""
    return model.config.get_text_config()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each module's own mode again."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
        # Within one autocast region, older torch versions hand the weights that were cast here, without gradients, to
        # the training forward that follows.
        torch.clear_autocast_cache()


def _forward_arguments(model: nn.Module) -> frozenset[str]:
    """Names that the model's forward pass takes, of a model whose cache rows can be copied."""
    base: Any = cast(Any, model).get_base_model() if hasattr(model, "get_base_model") else model
    takes = frozenset(inspect.signature(base.forward).parameters)
    layers = set(getattr(_config(base), "layer_types", None) or _CACHED_ATTENTION)
    if getattr(base, "_is_stateful", False) or not takes & {"cache", "past_key_values"} or layers - _CACHED_ATTENTION:
        raise ValueError(
            f"{type(base).__name__} has no plain key/value cache (recurrent or chunked layers, or none at all): "
            "the in-process engine cannot sample from it"
        )
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise ValueError("prompt-learning adapters are not supported by the in-process engine: use LoRA or the like")
    return takes
