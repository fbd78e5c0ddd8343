"""The part of the LightningModule that owns the policy: its loading, its engine, its verifier, its checkpoints.

What it is trained with is in `module.py`.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from elite_lightning.batching import TokenBatch
from elite_lightning.errors import UsageError
from elite_lightning.factory import PolicyFactory
from elite_lightning.logprobs import response_logprobs
from elite_lightning.policy import (
    ChatFormat,
    Dtype,
    TokenCodec,
    add_adapter,
    checkpoint_layers,
    load_model,
    load_tokenizer,
    model_fingerprint,
)
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.types import Domain, RolloutEngine, TokenBudget
from elite_lightning.verify import VerificationPool


@dataclass(frozen=True)
class VerificationSettings:
    """How responses are judged.

    Args:
        workers: Worker processes beside generation, per rank; 0 judges in this process.
        timeout_s: Seconds after which a verdict's worker is killed and the verdict tried again.
        retries: How often a verdict is tried again before it counts as our failure.
    """

    workers: int = 1
    timeout_s: float = 30.0
    retries: int = 2


class PolicyModule(pl.LightningModule):
    """A policy, and what samples from it and judges it.

    Args:
        domain: See `EliteModule`, also for the others.
        path: Folder or hub name.
        factory: Makes the policy instead of `path`.
        peft: Arguments of a PEFT configuration.
        dtype: Type of the weights.
        rollout_rows: Most responses that are generated at once.
        verification: How responses are judged.
        seed: Seed of all draws.
        chat: Whether and how prompts go into the tokenizer's chat template.
        gradient_checkpointing: Whether activations are made again in the backward pass.

    Raises:
        ValueError: If not exactly one of `path` and `factory` is given.
        FileNotFoundError: If `path` holds no tokenizer.
    """

    def __init__(
        self,
        domain: Domain,
        path: str | None,
        factory: PolicyFactory | None,
        peft: dict[str, Any] | None,
        dtype: Dtype,
        rollout_rows: int,
        verification: VerificationSettings,
        seed: int,
        chat: ChatFormat | None = None,
        gradient_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if (path is None) == (factory is None):
            raise ValueError("give the policy either as model.path or as model.factory, and not both")
        self.domain = domain
        self.seed = seed
        self.codec = TokenCodec(factory.tokenizer() if factory is not None else load_tokenizer(str(path)), chat)
        if isinstance(domain, TokenBudget):
            codec = self.codec  # without a reference to the module
            domain.count_tokens_with(lambda text: len(codec.encode_prompt(text)))
        self.policy: nn.Module | None = None
        self.base_fingerprint = ""
        self.trained_steps = 0
        self.seconds = dict.fromkeys(("train", "rollout", "verify", "update", "evaluate"), 0.0)
        self._path, self._factory, self._peft, self._dtype_name = path, factory, peft, dtype
        self._rollout_rows, self._verification = rollout_rows, verification
        self._gradient_checkpointing = gradient_checkpointing
        # In a tuple, where neither the checkpoint nor a wrapper such as DDP looks for weights.
        self._reference: tuple[nn.Module, ...] = ()

    @property
    def needs_reference(self) -> bool:
        """Whether a copy of the policy as it was before training is kept."""
        return False

    def configure_model(self) -> None:
        """Load the policy, once, however often Lightning calls.

        Raises:
            UsageError: If there is no such policy, or it cannot be loaded.
        """
        if self.policy is not None:
            return
        try:
            self.policy = self._load_policy().eval()
            if self._gradient_checkpointing:
                checkpoint_layers(self.policy)
        except (OSError, ValueError) as error:
            raise UsageError(str(error)) from error
        # Now, because a resumed run restores trained weights next.
        self.base_fingerprint = model_fingerprint(self.policy, base_only=True)
        if self.needs_reference:
            self._reference = (copy.deepcopy(self.policy).requires_grad_(False),)

    def _load_policy(self) -> nn.Module:
        if self._factory is None:
            return load_model(str(self._path), dtype=self._dtype_name, peft=self._peft)
        policy = self._factory.model(self.seed)
        return policy if self._peft is None else add_adapter(policy, self._peft)

    @property
    def loaded_policy(self) -> nn.Module:
        """The policy, from `configure_model` on."""
        if self.policy is None:
            raise RuntimeError("the policy is not loaded yet: it is there from configure_model on")
        return self.policy

    @cached_property
    def engine(self) -> RolloutEngine:
        """What samples responses."""
        return InProcessEngine(self.loaded_policy, self.codec, max_rows=self._rollout_rows)

    @cached_property
    def verifier(self) -> VerificationPool:
        """The one pool that search, training and evaluation share; workers start at the first use."""
        settings = self._verification
        return VerificationPool(self.domain, settings.workers, settings.timeout_s, settings.retries)

    def score_reference(self, batch: TokenBatch, temperature: float) -> Tensor:
        """Log-probabilities `[batch, response_time]` of a micro-batch under the policy as it was before training.

        Args:
            batch: The micro-batch.
            temperature: Softmax temperature.
        """
        with torch.no_grad():
            return response_logprobs(self._reference[0].to(self.device), batch, temperature)

    def export(self, folder: Path) -> None:
        """Write policy and tokenizer for `from_pretrained`.

        Args:
            folder: Where they go.
        """
        self.loaded_policy.save_pretrained(folder)  # type: ignore[operator]
        self.codec.tokenizer.save_pretrained(folder)

    def close(self) -> None:
        """Stop the verification workers; they start again when needed."""
        pool = self.__dict__.pop("verifier", None)
        if pool is not None:
            pool.close()

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the seconds spent so far; with an adapter, leave the base weights out."""
        checkpoint["seconds"] = dict(self.seconds)
        if self._peft is not None:
            trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
            checkpoint["state_dict"] = {k: v for k, v in checkpoint["state_dict"].items() if k in trained}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the seconds and the step over; with an adapter, expect no base weights."""
        self.seconds = dict(checkpoint["seconds"])
        self.trained_steps = int(checkpoint["global_step"])
        self.strict_loading = self._peft is None
