"""What the base policy thought of the replay items: their log-probabilities, computed once and kept in a file.

They are the trainer's own, not the sampler's, so that an untrained policy agrees with them to rounding. With them a
replay term can compare to the base policy (`objectives/dph.py`) without a second model in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elite_lightning.batching import TokenBatch, TokenRow, collate, micro_batches
from elite_lightning.errors import UsageError


def score_rows(
    rows: Sequence[TokenRow],
    score: Callable[[TokenBatch], Tensor],
    token_budget: int,
    device: torch.device,
    rank: int = 0,
    world_size: int = 1,
) -> dict[int, list[float]]:
    """Log-probabilities of this rank's share of rows, without gradient.

    Every rank runs equally many forward passes, the last ones maybe in vain: with sharded weights they need each other.

    Args:
        rows: All rows, the same on every rank.
        score: From a micro-batch to log-probabilities `[batch, response_time]`.
        token_budget: Most tokens of a micro-batch, padding included.
        device: Where batches go.
        rank: This rank.
        world_size: Ranks that share the rows.

    Returns:
        Row index to its response's log-probabilities; together over all ranks, each row.
    """
    batches = micro_batches(rows, token_budget)
    passes = -(-len(batches) // world_size)
    own = [(batches[i] if i < len(batches) else []) for i in range(rank, passes * world_size, world_size)]
    found: dict[int, list[float]] = {}
    for indices in own:
        batch = collate([rows[i] for i in indices]).to(device)
        with torch.no_grad():
            logprobs = score(batch).float().cpu()
        found |= {i: logprobs[j, : len(rows[i].response_ids)].tolist() for j, i in enumerate(indices)}
    return found


def write_base_logprobs(path: Path, logprobs: Sequence[Sequence[float]], belongs_to: dict[str, str]) -> None:
    """Write log-probabilities of all items, whole or not at all.

    Args:
        path: The safetensors file: `logprobs` of all items' tokens on end, float32, and `lengths`, int64.
        logprobs: Of each item, in the archive's order.
        belongs_to: What they were computed from, by name.
    """
    tensors = {
        "logprobs": torch.tensor([value for item in logprobs for value in item], dtype=torch.float32),
        "lengths": torch.tensor([len(item) for item in logprobs], dtype=torch.int64),
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    save_file(tensors, temporary, metadata={"belongs_to": json.dumps(belongs_to, sort_keys=True)})
    os.replace(temporary, path)


def read_base_logprobs(path: Path, belongs_to: dict[str, str]) -> list[tuple[float, ...]]:
    """Read what `write_base_logprobs` wrote.

    Args:
        path: The file.
        belongs_to: What they must have been computed from.

    Returns:
        Log-probabilities of each item.

    Raises:
        UsageError: If the file is broken or belongs to something else.
    """
    try:
        with safe_open(path, framework="pt") as file:
            there = json.loads((file.metadata() or {}).get("belongs_to", "{}"))
            values, lengths = file.get_tensor("logprobs").tolist(), file.get_tensor("lengths").tolist()
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is broken ({error}): train in another --run_dir") from error
    if there != belongs_to:
        differing = ", ".join(sorted(name for name in there | belongs_to if there.get(name) != belongs_to.get(name)))
        raise UsageError(f"{path} was computed from something else ({differing}): train in another --run_dir")
    return [tuple(values[start:end]) for start, end in pairwise(accumulate(lengths, initial=0))]
