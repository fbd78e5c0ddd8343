"""Dynamic sampling against a plain walk through what the engine gave; over ranks and kills in the file beside this."""

import math
import random
import warnings
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from test_datamodule import data_module
from test_module import GROUP, FixedEngine, assert_equal, module_of, reference_loss, step_once
from toy import LetterDomain, letter_problems
from transformers import AutoModelForCausalLM

from datamodules.loaders import deal
from elite_lightning.dynamic_sampling import DynamicSampling, Round, sample_until_full
from elite_lightning.objectives import UnlikelinessReward
from elite_lightning.seeds import derive_seed
from elite_lightning.types import FinishReason, Problem, Reason, Verdict

NEEDED = 6


class HardDomain(LetterDomain):
    """Right is a word of at least three letters that begins with the problem's: most groups are useless."""

    def verify(self, problem: Problem, solution: str) -> Verdict:
        if len(solution) < 3 or solution[0] != problem.data["letter"]:
            return Verdict(False, 0.0, Reason.WRONG_RESULT)
        return Verdict(True, 1.0)


class OneVerdict(LetterDomain):
    """Everything is right, or everything is wrong."""

    def __init__(self, right):
        super().__init__()
        self.right = right

    def verify(self, problem: Problem, solution: str) -> Verdict:
        return Verdict(True, 1.0) if self.right else Verdict(False, 0.0, Reason.WRONG_RESULT)


def groups_of(module, given):
    """What the engine gave, a list a group in the order of sampling: prompt, completions, number of right ones."""
    problems = {tuple(module.codec.encode_prompt(module.domain.prompt(p))): p for p in letter_problems("train", 64)}
    groups = []
    for start in range(0, len(given), GROUP):
        prompt, completions = given[start][0], [completion for _, completion in given[start : start + GROUP]]
        ended = [c for c in completions if c.finish_reason is FinishReason.STOP]
        right = sum(module.domain.verify(problems[prompt], c.text).correct for c in ended)
        groups.append((prompt, completions, right))
    return groups


def kept_of(groups):
    """The first groups that are neither all right nor all wrong, as pairs of prompt and completion."""
    useful = [(prompt, completions) for prompt, completions, right in groups if 0 < right < GROUP]
    return [(prompt, completion) for prompt, completions in useful[:NEEDED] for completion in completions]


@pytest.mark.parametrize(("max_rounds", "is_full"), [(10, True), (2, False)])
def test_a_step_computes_the_loss_of_the_first_groups_with_a_signal(tiny_policy, max_rounds, is_full):
    module = module_of(tiny_policy, domain=HardDomain(), dynamic_sampling=DynamicSampling(max_rounds))
    gradient, logged, engine = step_once(module, problems_per_step=NEEDED, train_problems=64)
    groups = groups_of(module, engine.given)
    rounds = [groups[start : start + NEEDED] for start in range(0, len(groups), NEEDED)]
    useful = [sum(0 < right < GROUP for _, _, right in part) for part in rounds]
    kept = kept_of(groups)

    # Sampling went on until the step was full and no longer; no problem came twice.
    assert (sum(useful) >= NEEDED) == is_full
    assert sum(useful[:-1]) < NEEDED
    assert len(rounds) > 2 and sum(useful) > NEEDED if is_full else len(rounds) == max_rounds
    assert len({prompt for prompt, _, _ in groups}) == len(groups) == NEEDED * len(rounds)

    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    loss = reference_loss(policy, module, kept, 0.3, replayed=5)
    loss.backward()
    assert logged["train/loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert_equal(gradient, policy)

    # Rewards and counts tell of everything that was sampled.
    right = sum(right for _, _, right in groups)
    assert logged["train/rounds"] == len(rounds)
    assert logged["train/generations"] == len(engine.given) == len(groups) * GROUP
    assert logged["train/groups_kept"] == pytest.approx(len(kept) / len(engine.given))
    assert logged["train/groups_missing"] == NEEDED - len(kept) / GROUP
    assert logged["train/groups_without_signal"] == pytest.approx(1 - sum(useful) / len(groups))
    assert logged["train/reward"] == logged["train/correct"] == pytest.approx(right / len(engine.given))
    assert logged["train/generated_tokens"] == sum(len(c.token_ids) for _, c in engine.given)
    assert logged["train/scored_responses"] == len(kept)


class Noting(FixedEngine):
    """Notes the seeds that it is given."""

    def generate(self, prompts, n, sampling, seed):
        self.seeds = [*getattr(self, "seeds", []), seed]
        return super().generate(prompts, n, sampling, seed)


def test_further_rounds_have_seeds_of_their_own_and_the_first_those_of_a_step_without(tiny_policy):
    seeds = {}
    for name, settings in (("off", None), ("on", DynamicSampling())):
        module = module_of(tiny_policy, domain=HardDomain(), dynamic_sampling=settings, seed=7)
        module.engine = Noting(module.codec)
        step_once(module, engine=False, train_problems=64)
        seeds[name] = module.engine.seeds
    # Four problems a round in chunks of three and one, numbered on from round to round.
    firsts = [number for start in range(0, 4 * len(seeds["on"]), 4) for number in (start, start + 3)]
    assert seeds["on"] == [derive_seed(7, "rollout", 0, first) for first in firsts[: len(seeds["on"])]]
    assert seeds["off"] == seeds["on"][:2] != seeds["on"]


def test_where_every_group_has_a_signal_it_changes_no_bit(tiny_policy):
    settings = {"domain": OneVerdict(True), "objective": UnlikelinessReward()}
    off, logged, _ = step_once(module_of(tiny_policy, **settings), steps=3)
    on, dynamic, _ = step_once(module_of(tiny_policy, dynamic_sampling=DynamicSampling(), **settings), steps=3)
    assert logged["train/groups_without_signal"] == 0 < logged["train/gradient_norm"]
    assert all(torch.equal(off[name], on[name]) for name in off)
    same = {name: value for name, value in logged.items() if "seconds" not in name}
    assert {name: dynamic[name] for name in same} == same
    assert dynamic.keys() - logged.keys() == {"train/rounds", "train/groups_kept", "train/groups_missing"}


class Ending(FixedEngine):
    """Cuts nothing off: what is cut off is wrong in any case."""

    def _completion(self, prompt, sample):
        return replace(super()._completion(prompt, sample), finish_reason=FinishReason.STOP)


@pytest.mark.parametrize("right", [False, True])
def test_a_step_without_any_signal_ends_and_moves_nothing(tiny_policy, right):
    module = module_of(tiny_policy, mu=0.0, domain=OneVerdict(right), dynamic_sampling=DynamicSampling(3))
    module.engine = Ending(module.codec)
    gradient, logged, _ = step_once(module, engine=False, replay_per_step=0, train_problems=64)
    assert all(torch.equal(value, torch.zeros_like(value)) for value in gradient.values())
    assert logged["train/loss"] == 0
    assert logged["train/correct"] == float(right)
    assert (logged["train/rounds"], logged["train/groups_kept"], logged["train/groups_missing"]) == (3, 0, 4)
    assert logged["train/generations"] == 3 * 4 * GROUP
    assert logged["train/scored_responses"] == 0
    assert all(math.isfinite(value) for value in logged.values())


def test_the_objective_says_what_a_signal_is(tiny_policy):
    """All right is a signal where right responses compete for how unlikely they are."""
    settings = {"domain": OneVerdict(True), "dynamic_sampling": DynamicSampling(), "objective": UnlikelinessReward()}
    _, logged, _ = step_once(module_of(tiny_policy, **settings), train_problems=64)
    assert (logged["train/rounds"], logged["train/groups_kept"]) == (1, 1)


def test_supervised_fine_tuning_samples_nothing_and_says_that_the_setting_is_ignored(tiny_policy):
    module = module_of(tiny_policy, mu=1.0, dynamic_sampling=DynamicSampling())
    _, logged, engine = step_once(module, problems_per_step=0)
    assert engine.given == []
    assert "train/rounds" not in logged
    with pytest.warns(UserWarning, match="dynamic_sampling"):
        module.check_batches(0, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module_of(tiny_policy, dynamic_sampling=DynamicSampling()).check_batches(4, 5)


def test_a_step_without_a_round_is_refused():
    with pytest.raises(ValueError, match="max_rounds must be at least 1, got 0"):
        DynamicSampling(0)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("density", [0.0, 0.2, 0.9])
def test_ranks_choose_alike_however_groups_are_dealt(world_size, density):
    """Each rank sees its own groups; what all of them choose is the first ones over all."""
    draws = random.Random(f"{density}")
    signals = [[draws.random() < density for _ in range(7)] for _ in range(5)]

    def rounds(rank):
        for number, signal in enumerate(signals):
            chunks = deal(letter_problems("train", 7), 2, rank, world_size, first=7 * number)
            groups = [SimpleNamespace(index=numbered.index) for chunk in chunks for numbered in chunk]
            table = torch.tensor([[0.0, float(signal[g.index - 7 * number])] for g in groups]).reshape(-1, 2)
            yield Round(groups, table, {"rollout": 1.0})

    # What a sum over ranks gives: each mark once, from the rank that has the group.
    marks = [[] for _ in range(world_size)]
    for rank in range(world_size):
        whole = iter(torch.tensor(signals, dtype=torch.float32))

        def add(own, rank=rank, whole=whole):
            marks[rank].append(own)
            return next(whole)

        sampled = sample_until_full(rounds(rank), 7, add)
        first = [i for i in range(35) if signals[i // 7][i % 7]][:7]
        assert sampled.chosen == set(first)
        assert [g.index for g in sampled.kept_groups] == [i for i in first if (i % 7) // 2 % world_size == rank]
        assert (sampled.kept_advantages != 0).any(dim=-1).all()
        assert sampled.missing == 7 - len(first)
        needed = first[-1] // 7 + 1 if len(first) == 7 else 5
        assert len(sampled.rounds) == sampled.seconds["rollout"] == needed
    for part in zip(*marks, strict=True):
        assert sum(part).tolist() in [[float(s) for s in signal] for signal in signals]


def test_further_problems_are_the_next_ones_and_a_later_start_goes_on_behind_them():
    settings = {"problems_per_step": 3, "replay_per_step": 0, "problems_per_rollout": 2}

    def ids(chunks):
        return [numbered.problem.id for chunk in chunks for numbered in chunk]

    straight = data_module(**settings).train_dataloader()
    batches = iter(straight)
    order = [name for _ in range(6) for name in ids(next(batches).chunks)]
    assert sorted(order[:8]) == [f"train-{i}" for i in range(8)]

    loader = data_module(**settings).train_dataloader()
    batch = next(iter(loader))
    drawn = [batch.chunks, *islice(batch.further, 2)]
    assert [name for chunks in drawn for name in ids(chunks)] == order[:9]
    assert [numbered.index for chunks in drawn for chunk in chunks for numbered in chunk] == list(range(9))
    for rank in range(2):
        resumed = data_module(rank, 2, **settings).train_dataloader()
        resumed.load_state_dict(loader.state_dict())
        assert set(ids(next(iter(resumed)).chunks)) <= set(order[9:12])
    assert loader.state_dict()["position"] == 1
