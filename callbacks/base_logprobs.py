"""Before training, what the base policy thinks of the archive's elites, for replay terms that compare to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl

from elite_lightning.archive import FrozenArchive
from elite_lightning.base_logprobs import read_base_logprobs, score_rows, write_base_logprobs
from elite_lightning.batching import TokenRow
from elite_lightning.distributed import gather_to_first, on_every_rank, on_first_rank
from elite_lightning.errors import UsageError
from elite_lightning.logprobs import response_logprobs
from elite_lightning.run_folder import RunFolder


def base_logprobs_of(
    archive: FrozenArchive, folder: RunFolder, trainer: pl.Trainer, pl_module: Any
) -> dict[str, list[tuple[float, ...]]]:
    """Log-probabilities of the elites' tokens: from the run's file, or computed and written there.

    Args:
        archive: The run's archive.
        folder: The run.
        trainer: Knows the ranks and the data.
        pl_module: Its policy is the base policy until the first step.

    Returns:
        By problem, of each of its elites in the archive's order, one value a token.

    Raises:
        UsageError: If the file is missing after training has begun, broken, or computed from something else.
    """
    belongs_to = {
        "archive": hashlib.sha256(folder.archive.read_bytes()).hexdigest(),
        "base_model": pl_module.base_fingerprint,
        "temperature": repr(pl_module.sampling.temperature),
    }
    if on_first_rank(lambda: not folder.base_logprobs.is_file()):
        if trainer.ckpt_path is not None:
            raise UsageError(
                f"{folder.base_logprobs} is missing, and the policy is trained already: train in another --run_dir"
            )
        shares = gather_to_first(_score(archive, trainer, pl_module))
        scored = {i: values for share in shares or [] for i, values in share.items()}
        on_first_rank(
            lambda: write_base_logprobs(folder.base_logprobs, [scored[i] for i in range(len(archive))], belongs_to)
        )
    values: Iterator[tuple[float, ...]] = iter(
        on_every_rank(lambda: read_base_logprobs(folder.base_logprobs, belongs_to))
    )
    return {problem_id: [next(values) for _ in archive.elites(problem_id)] for problem_id in archive.problem_ids}


def _score(archive: FrozenArchive, trainer: pl.Trainer, pl_module: Any) -> dict[int, list[float]]:
    """This rank's share of the elites, by their number in the archive's order."""
    problems = trainer.datamodule.train_problems  # type: ignore[attr-defined]
    rows = []
    for problem_id in archive.problem_ids:
        if problem_id not in problems:  # `use_archive` says so in one line
            continue
        prompt = pl_module.codec.encode_prompt(pl_module.domain.prompt(problems[problem_id]))
        rows += [TokenRow(prompt, elite.token_ids) for elite in archive.elites(problem_id)]
    return score_rows(
        rows,
        lambda batch: response_logprobs(pl_module.loaded_policy, batch, pl_module.sampling.temperature),
        pl_module.micro_batch_tokens,
        pl_module.device,
        trainer.global_rank,
        trainer.world_size,
    )
