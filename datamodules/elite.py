"""The DataModule: on-policy problems beside replay items, and the problems to evaluate.

Replay items are elites of the frozen archive, drawn evenly over problems and then over their cells (over what is kept
of plain samples where those stand for a search, `elite_lightning/samples.py`) unless `balancing` says otherwise, or
demonstrations made on the fly. The archive comes from the pre-search (`callbacks/`) through `use_archive`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

import lightning.pytorch as pl
from lightning_utilities.core.rank_zero import rank_zero_warn

from datamodules.balancing import Balancing, FrozenElites, groups_of, made_from
from datamodules.loaders import EvalLoader, StepLoader, deal, deal_rounds
from datamodules.sources import DemonstrationSource, ProblemSource
from elite_lightning.errors import UsageError
from elite_lightning.sampler import BalancedSampler
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Domain, Problem
from elite_lightning.work import ReplayItem, StepBatch

BaseLogprobs = Mapping[str, Sequence[tuple[float, ...]]]
"""By problem, of each of its elites in the archive's order, log-probabilities of the tokens under the base policy."""


class EliteDataModule(pl.LightningDataModule):
    """Problems, replay items and evaluation problems.

    Args:
        source: The problems and their domain, as `class_path` and `init_args`.
        demonstrations: Replay demonstrations made on the fly instead of elites; null replays the archive.
        problems_per_step: On-policy problems in one optimizer step, over all ranks; 0 for supervised fine-tuning. With
            `model.dynamic_sampling`, those that a step is trained on, and those of one round of sampling.
        replay_per_step: Replay items in one optimizer step, over all ranks; 0 for none.
        problems_per_rollout: Problems that are sampled together in training; verification of one such chunk runs
            beside the next one's generation, and chunks are what is dealt to ranks.
        problems_per_evaluation_rollout: Problems that are sampled together in evaluation.
        seed: Seed of the draws; the CLI sets it from `seed_everything`.
        root: The data set's folder, for sources that read one, such as BIRD's; the same as `source.init_args.root`.
        exclude_replayed: Whether problems of the archive are left out of the on-policy problems, as in DPH-RL; false
            samples all.
        balancing: Over what draws from the archive are even, at any time. `problem_and_cell`, as in EliteReplay: over
            problems, then over each one's elites, of which a search has one a cell; a problem with many cells has no
            more say than another. `cell`: over the distinct cells of the whole archive, then over the elites of each;
            a rare cell is drawn as often as a common one, and a problem with many cells more often than one with few.
            `none`: over all elites alike. Demonstrations do not go by it.

    Raises:
        ValueError: If a count is out of range, `balancing` is none of these, there is nothing to train on, or `root`
            does not go with the source.
    """

    def __init__(
        self,
        source: ProblemSource,
        demonstrations: DemonstrationSource | None = None,
        problems_per_step: int = 16,
        replay_per_step: int = 16,
        problems_per_rollout: int = 8,
        problems_per_evaluation_rollout: int = 8,
        seed: int = 0,
        root: str | None = None,
        exclude_replayed: bool = False,
        balancing: Balancing = "problem_and_cell",
    ) -> None:
        super().__init__()
        _check_at_least(0, problems_per_step=problems_per_step, replay_per_step=replay_per_step)
        _check_at_least(
            1,
            problems_per_rollout=problems_per_rollout,
            problems_per_evaluation_rollout=problems_per_evaluation_rollout,
        )
        if problems_per_step + replay_per_step == 0:
            raise ValueError("data.problems_per_step and data.replay_per_step are both 0: there is nothing to train on")
        if balancing not in get_args(Balancing):
            raise ValueError(f"data.balancing must be one of {', '.join(get_args(Balancing))}, got {balancing!r}")
        self.source = source if root is None else source.at(root)
        self.demonstrations = demonstrations
        self.problems_per_step = problems_per_step
        self.replay_per_step = replay_per_step
        self.problems_per_rollout = problems_per_rollout
        self.problems_per_evaluation_rollout = problems_per_evaluation_rollout
        self.seed = seed
        self.exclude_replayed = exclude_replayed
        self.balancing: Balancing = balancing
        self._archive: FrozenElites | None = None
        self._base_logprobs: BaseLogprobs | None = None

    @property
    def domain(self) -> Domain:
        """The source's domain: one object for search, training and evaluation."""
        return self.source.domain

    @cached_property
    def train_problems(self) -> Mapping[str, Problem]:
        """Training problems by id, in the source's order."""
        return {problem.id: problem for problem in self.source.train()}

    @property
    def needs_archive(self) -> bool:
        """Whether replay draws from an archive."""
        return self.replay_per_step > 0 and self.demonstrations is None

    def use_archive(self, archive: FrozenElites, base_logprobs: BaseLogprobs | None = None) -> None:
        """Replay from this archive.

        Args:
            archive: A frozen archive over (some of) the training problems.
            base_logprobs: By problem, of each of its elites, log-probabilities of the tokens under the base policy;
                None if the replay term has no use for them.

        Raises:
            UsageError: If replay needs elites and there are none, or they belong to unknown problems.
        """
        if self.needs_archive and not archive.problem_ids:
            raise UsageError(
                "the archive is empty: the search found no verified solution to replay; take a stronger model, easier "
                "problems or more search.settings.attempts_per_problem, in another --run_dir"
            )
        if unknown := set(archive.problem_ids) - self.train_problems.keys():
            raise UsageError(f"the archive holds elites of {len(unknown)} unknown problems, such as {min(unknown)!r}")
        if self.exclude_replayed and set(archive.problem_ids) == self.train_problems.keys():
            raise UsageError(
                "data.exclude_replayed leaves no problem to sample: all of them are in the archive; "
                "set it to false, or keep fewer problems (search.init_args.min_correct_share)"
            )
        self._archive, self._base_logprobs = archive, base_logprobs

    def train_dataloader(self) -> StepLoader:
        """One global batch of problems and replay items a step.

        Raises:
            UsageError: If replay needs an archive and nobody handed one over.
        """
        rank, world_size = self._place()
        self._warn_of_idle_ranks(world_size)
        self._warn_of_idle_balancing()
        problems = ProblemStream(self._sampled_problems(), self.seed) if self.problems_per_step else None
        replay = self._replay_stream()

        def draw_problems() -> list[Problem]:
            return problems.take(self.problems_per_step) if problems else []

        def draw() -> StepBatch:
            rounds = deal_rounds(draw_problems, self.problems_per_rollout, rank, world_size)
            items = replay.take(self.replay_per_step)[rank::world_size] if replay else []
            return StepBatch(next(rounds), items, self.problems_per_step, rounds)

        streams = {name: s for name, s in (("problems", problems), ("replay", replay)) if s is not None}
        return StepLoader(self._steps_per_epoch(), draw, streams)

    def val_dataloader(self) -> EvalLoader:
        """The source's validation problems."""
        return self._evaluation(self.source.validation())

    def test_dataloader(self) -> EvalLoader:
        """The source's test problems."""
        return self._evaluation(self.source.test())

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:  # noqa: ARG002
        """Leave batches as they are: they hold text, and tensors are made on the device."""
        return batch

    def _warn_of_idle_ranks(self, world_size: int) -> None:
        chunks = -(-self.problems_per_step // self.problems_per_rollout)
        if 0 < chunks < world_size:
            rank_zero_warn(
                f"data.problems_per_step={self.problems_per_step} makes {chunks} chunks for {world_size} ranks: some "
                f"sample nothing; lower data.problems_per_rollout={self.problems_per_rollout}"
            )

    def _warn_of_idle_balancing(self) -> None:
        if self.balancing != "problem_and_cell" and not self.needs_archive:
            rank_zero_warn(f"data.balancing={self.balancing} changes nothing: no elites of an archive are replayed")

    def _evaluation(self, problems: Sequence[Problem]) -> EvalLoader:
        return EvalLoader(deal(problems, self.problems_per_evaluation_rollout, *self._place()))

    def _sampled_problems(self) -> Mapping[str, Problem]:
        if not self.exclude_replayed or self._archive is None:
            return self.train_problems
        replayed = set(self._archive.problem_ids)
        return {problem_id: p for problem_id, p in self.train_problems.items() if problem_id not in replayed}

    def _replay_stream(self) -> EliteStream | DemonstrationStream | None:
        if self.replay_per_step == 0:
            return None
        if self.demonstrations is not None:
            return DemonstrationStream(self.demonstrations, self.seed)
        if self._archive is None:
            raise UsageError(
                "replay has nothing to draw from: configure `search` (or `data.demonstrations`), "
                "or set both data.replay_per_step and model.mu to 0"
            )
        # A seed of its own: with the problems' one, a step would replay just the problems that it samples.
        seed = derive_seed(self.seed, "replay")
        return EliteStream(self._archive, self.train_problems, self.domain, seed, self._base_logprobs, self.balancing)

    def _place(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _steps_per_epoch(self) -> int:
        """The whole run where it is counted in steps, else one pass over the problems."""
        if self.trainer is not None and self.trainer.max_steps > 0:
            return int(self.trainer.max_steps)
        return max(1, -(-len(self.train_problems) // max(1, self.problems_per_step)))


class ProblemStream:
    """Problems in a balanced random order, without end.

    Args:
        problems: Training problems by id.
        seed: Seed of the order.
    """

    def __init__(self, problems: Mapping[str, Problem], seed: int) -> None:
        self._problems = problems
        self._sampler = BalancedSampler(dict.fromkeys(problems, 1), seed=seed)

    def take(self, n: int) -> list[Problem]:
        """The next `n` problems."""
        return [self._problems[problem_id] for problem_id, _ in self._sampler.take(n)]

    def state_dict(self) -> dict[str, Any]:
        """The sampler's counters."""
        return dict(self._sampler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was saved."""
        self._sampler.load_state_dict(state)


class EliteStream:
    """Elites as replay items, balanced at any time: groups evenly, and the elites of each group evenly.

    Args:
        archive: The frozen archive.
        problems: Training problems by id.
        domain: Writes the plain prompt, without target or parent, that elites are replayed under.
        seed: Seed of the draws.
        base_logprobs: See `EliteDataModule.use_archive`.
        balancing: What makes a group; see `EliteDataModule`.
    """

    def __init__(
        self,
        archive: FrozenElites,
        problems: Mapping[str, Problem],
        domain: Domain,
        seed: int,
        base_logprobs: BaseLogprobs | None = None,
        balancing: Balancing = "problem_and_cell",
    ) -> None:
        self._archive, self._problems, self._domain = archive, problems, domain
        self._base_logprobs = base_logprobs
        self._groups = groups_of(archive, balancing)
        sizes = {group: len(places) for group, places in self._groups.items()}
        self._sampler = BalancedSampler(sizes, seed, made_from(archive, balancing))

    def take(self, n: int) -> list[ReplayItem]:
        """The next `n` items."""
        return [self._item(*self._groups[group][index]) for group, index in self._sampler.take(n)]

    def _item(self, problem_id: str, cell: int) -> ReplayItem:
        elite = self._archive.elites(problem_id)[cell]
        prompt = self._domain.prompt(self._problems[problem_id])
        base = None if self._base_logprobs is None else self._base_logprobs[problem_id][cell]
        return ReplayItem(prompt, elite.response, elite.weight, elite.token_ids, base, problem_id, elite.cell)

    def state_dict(self) -> dict[str, Any]:
        """The sampler's counters."""
        return dict(self._sampler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was saved."""
        self._sampler.load_state_dict(state)


class DemonstrationStream:
    """Demonstrations as replay items, by number.

    Args:
        source: Makes the demonstration of a number.
        seed: Seed of the demonstrations.
    """

    def __init__(self, source: DemonstrationSource, seed: int) -> None:
        self._source, self._seed, self._position = source, seed, 0

    def take(self, n: int) -> list[ReplayItem]:
        """The next `n` items."""
        start, self._position = self._position, self._position + n
        made = [self._source.demonstration(i, self._seed) for i in range(start, self._position)]
        return [ReplayItem(item.prompt, item.response, item.weight) for item in made]

    def state_dict(self) -> dict[str, Any]:
        """The next number."""
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the saved number."""
        self._position = state["position"]


def _check_at_least(least: int, **values: int) -> None:
    for name, value in values.items():
        if value < least:
            raise ValueError(f"data.{name} must be at least {least}, got {value}")
