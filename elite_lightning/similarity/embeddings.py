"""The kernel of sentence embeddings: how near a frozen embedding model puts two solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from elite_lightning.errors import UsageError
from elite_lightning.policy import Dtype, load_tokenizer
from elite_lightning.similarity.base import Similarity
from elite_lightning.types import Domain

Pooling = Literal["last", "mean"]

_WEIGHTS = ("*.safetensors", "*.bin")


class SentenceEmbeddings(Similarity):
    """Cosine of two solutions' sentence embeddings, clamped to [0, 1].

    `k_ij = clamp(cos(e_i, e_j), 0, 1)`, with `e_i` the embedding of the solution that was extracted from response i, by
    a model that is never trained. The model is no part of the policy's module: it is in no checkpoint and no optimizer.
    It is loaded, onto the policy's device, when the first groups are compared, after the search; that it is there is
    checked at the start.

    Each different text of a step is embedded once, and nothing is remembered from step to step: which texts share a
    batch changes the last digits, and a run that goes on after a stop would otherwise meet other digits than one that
    was not stopped.

    Source: SetPO, Li 2026, arXiv 2602.01062, where it is the output answer's embedding by Qwen3-Embedding-0.6B. The
    last token's hidden state is that model's own way to pool.

    Args:
        model: Folder, or name on the Hugging Face hub, of an encoder or decoder of transformers and its tokenizer.
        pooling: What stands for a text: `last`, the last token's hidden state (Qwen3-Embedding and other decoders), or
            `mean`, the mean over its tokens (most encoders).
        batch_size: Most texts that are embedded at once.
        max_tokens: Longest text in tokens, special tokens included, or less where the model takes less; the rest is
            cut off.
        dtype: Type of the weights; `auto` takes the checkpoint's own.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(
        self,
        model: str = "Qwen/Qwen3-Embedding-0.6B",
        pooling: Pooling = "last",
        batch_size: int = 32,
        max_tokens: int = 512,
        dtype: Dtype = "float32",
    ) -> None:
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling must be one of {', '.join(get_args(Pooling))}, got {pooling!r}")
        if batch_size < 1 or max_tokens < 1:
            raise ValueError(f"batch_size and max_tokens must be at least 1, got {batch_size} and {max_tokens}")
        folder = Path(model).expanduser()
        self.model = str(folder) if folder.is_dir() else model
        self.pooling: Pooling = pooling
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.dtype: Dtype = dtype

    def check(self, domain: Domain) -> None:  # noqa: ARG002 - solutions of any domain are texts
        """See `Similarity.check`: whether tokenizer, configuration and, in a folder, weights are there."""
        try:
            _, config = self._tokenizer, self._config
        except (OSError, ValueError) as error:
            raise UsageError(f"kernel SentenceEmbeddings: {error}") from error
        if config.is_encoder_decoder:
            raise UsageError(
                f"kernel SentenceEmbeddings: {self.model!r} is an encoder with a decoder; choose a model of one"
            )
        folder = Path(self.model)
        if folder.is_dir() and not any(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
            raise UsageError(f"kernel SentenceEmbeddings: model folder {self.model!r} holds no weights")

    def compare(self, groups: Sequence[Sequence[str]], domain: Domain, device: torch.device) -> list[Tensor]:  # noqa: ARG002
        """See `Similarity.compare`."""
        # A text that is alone in its group has nothing to be compared with.
        vectors = self.embed((text for texts in groups if len(texts) > 1 for text in texts), device)
        return [_cosines([vectors[text] for text in texts if len(texts) > 1], len(texts)) for texts in groups]

    def embed(self, texts: Iterable[str], device: torch.device) -> dict[str, Tensor]:
        """Embed each different text once.

        Args:
            texts: In any order; the result does not depend on it.
            device: Where the model computes.

        Returns:
            Text to its vector `[hidden]`, float32 on the CPU, not normalised.
        """
        # Of like length together, so that little is padded.
        rows = sorted((self._token_ids(text), text) for text in set(texts))
        rows.sort(key=lambda row: len(row[0]))
        vectors: dict[str, Tensor] = {}
        for start in range(0, len(rows), self.batch_size):
            batch = rows[start : start + self.batch_size]
            pooled = self._pooled([ids for ids, _ in batch], device)
            vectors |= {text: vector for (_, text), vector in zip(batch, pooled, strict=True)}
        return vectors

    @torch.no_grad()
    def _pooled(self, rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
        """`[batch, hidden]` of token ids, right-padded here: not every tokenizer has a padding token."""
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
        ids = torch.zeros(mask.shape, dtype=torch.int64)
        ids[mask] = torch.tensor([token for row in rows for token in row])
        model = self._model.to(device)
        # A trainer in mixed precision would compute this in another type than was asked for.
        with torch.autocast(device.type, enabled=False):
            output = model(input_ids=ids.to(device), attention_mask=mask.long().to(device))
        hidden: Tensor = output.last_hidden_state.float().cpu()
        if self.pooling == "last":
            return hidden[torch.arange(len(rows)), lengths - 1]
        return torch.where(mask[:, :, None], hidden, 0.0).sum(dim=1) / lengths[:, None]

    def _token_ids(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, truncation=True, max_length=self._most_tokens)
        return list(ids) or [0]  # a tokenizer may drop all there is

    @cached_property
    def _most_tokens(self) -> int:
        positions = getattr(self._config, "max_position_embeddings", None) or self.max_tokens
        return int(min(self.max_tokens, positions, self._tokenizer.model_max_length))

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.model)

    @cached_property
    def _config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(self.model)

    @cached_property
    def _model(self) -> nn.Module:
        """The model, loaded at the first use.

        Raises:
            UsageError: If it cannot be loaded, or lacks weights.
        """
        from transformers import AutoModel

        try:
            # A pooler that is missing is drawn at random, and must not move the draws of anything else.
            with torch.random.fork_rng(devices=[]):
                model, report = AutoModel.from_pretrained(self.model, dtype=self.dtype, output_loading_info=True)
        except Exception as error:  # the loader's compiled parts raise bare Exceptions
            raise UsageError(f"kernel SentenceEmbeddings: {self.model!r} cannot be loaded: {error}") from error
        # Pooling is done here, so an encoder's own pooler, which many checkpoints lack, does not matter.
        if missing := sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")):
            raise UsageError(
                f"kernel SentenceEmbeddings: {self.model!r} lacks {len(missing)} weights, the first is {missing[0]}"
            )
        loaded: nn.Module = model.eval().requires_grad_(False)
        return loaded


def _cosines(vectors: Sequence[Tensor], size: int) -> Tensor:
    """`[size, size]`, float64, exactly symmetric; ones where there are no vectors."""
    if not vectors:
        return torch.ones(size, size, dtype=torch.float64)
    unit = torch.nn.functional.normalize(torch.stack([*vectors]).double(), dim=-1)
    cosines = (unit @ unit.mT).clamp(0.0, 1.0)
    return (cosines + cosines.mT) / 2
