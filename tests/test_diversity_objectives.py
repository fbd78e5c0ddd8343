"""SetPO and DARLING: figures by hand, brute force, edge cases, and a real training step."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_module import GROUP, FixedEngine, assert_equal, logprobs_of, module_of, step_once
from toy import LetterDomain, letter_problems
from transformers import AutoModelForCausalLM

from elite_lightning.objectives import Darling, Grpo, Objective, SetPo
from elite_lightning.objectives.darling import rarity
from elite_lightning.objectives.setpo import diversity_marginals
from elite_lightning.types import FinishReason

F64 = torch.float64
# (strategy or -1 where wrong, whether counted); a few strategies, so that they repeat.
GROUPS = st.lists(st.tuples(st.integers(-1, 3), st.booleans()), min_size=1, max_size=8)


def tensors(group):
    """Rewards, counted and strategies of one group; what was not counted has a reward that must not matter."""
    strategies, counted = zip(*group, strict=True)
    rewards = [(float(s >= 0) if c else math.nan) for s, c in group]
    return torch.tensor([rewards], dtype=F64), torch.tensor([counted]), torch.tensor([strategies])


def brute_diversity(members, alike):
    """D(S) straight from its definition."""
    if len(members) < 2:
        return 0.0
    masses = [sum(alike(i, j) for j in members if j != i) / (len(members) - 1) for i in members]
    return math.fsum(-math.log(1 + mass) for mass in masses) / len(members)


def brute_marginals(members, alike, size):
    if len(members) < 3:
        return [0.0] * size
    whole = brute_diversity(members, alike)
    rest = {i: [j for j in members if j != i] for i in members}
    return [whole - brute_diversity(rest[i], alike) if i in rest else 0.0 for i in range(size)]


def test_both_are_objectives_over_the_same_loss():
    for objective in (SetPo(), Darling(), SetPo(Darling()), Darling(SetPo(Grpo(kl_coefficient=0.1)))):
        assert isinstance(objective, Objective)
        assert objective.needs_strategies
    assert not SetPo().needs_reference
    assert Darling(SetPo(Grpo(kl_coefficient=0.1))).needs_reference


def test_marginals_of_a_split_of_five_two_and_one_by_hand():
    strategies = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 2]])
    alike = (strategies[:, :, None] == strategies[:, None, :]).to(F64)
    actual = diversity_marginals(alike, torch.ones(1, 8, dtype=torch.bool))[0].tolist()
    # Masses 4/7 and 1/7 and 0 in the whole; without one of them they are over 6.
    whole = (5 * math.log(11 / 7) + 2 * math.log(8 / 7)) / -8
    fewer_common = (4 * math.log(9 / 6) + 2 * math.log(7 / 6)) / -7
    fewer_paired = (5 * math.log(10 / 6) + math.log(1)) / -7
    fewer_alone = (5 * math.log(10 / 6) + 2 * math.log(7 / 6)) / -7
    expected = [whole - fewer_common] * 5 + [whole - fewer_paired] * 2 + [whole - fewer_alone]
    assert actual == pytest.approx(expected, abs=1e-12)
    assert actual == pytest.approx([-0.0401] * 5 + [0.0490] * 2 + [0.0930], abs=5e-5)  # the reference's figures


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(0, 10**6), st.lists(st.booleans(), min_size=7, max_size=7))
def test_marginals_of_any_kernel_equal_brute_force(size, seed, inside):
    kernel = torch.rand(1, size, size, dtype=F64, generator=torch.Generator().manual_seed(seed))
    kernel = (kernel + kernel.mT) / 2
    members = torch.tensor([inside[:size]])
    expected = brute_marginals([i for i in range(size) if inside[i]], lambda i, j: kernel[0, i, j].item(), size)
    assert diversity_marginals(kernel, members)[0].tolist() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3, 1 / 3])
@pytest.mark.parametrize("size", range(1, 12))
def test_where_all_pairs_are_equally_alike_nobody_adds_anything(size, value):
    for dtype in (torch.float32, F64):
        kernel = torch.full((2, size, size), value, dtype=dtype)
        assert diversity_marginals(kernel, torch.ones(2, size, dtype=torch.bool)).eq(0).all()


# Wrong, right in one of two ways, or right but not counted.
KINDS = [(-1, True), (0, True), (1, True), (0, False)]


@pytest.mark.parametrize("gate", ["none", "correct_only", "mixed_groups_only"])
@pytest.mark.parametrize("size", range(1, 6))
def test_setpo_adds_the_weighted_marginals_of_whom_its_gate_lets_in(size, gate):
    groups = list(itertools.product(KINDS, repeat=size))
    rewards, counted, strategies = (torch.cat(parts) for parts in zip(*map(tensors, groups), strict=True))
    actual = SetPo(weight=0.7, gate=gate).advantages(rewards, counted, strategies=strategies).tolist()
    base = Grpo().advantages(rewards, counted).tolist()
    for group, row, plain in zip(groups, actual, base, strict=True):
        present = [i for i, (_, is_counted) in enumerate(group) if is_counted]
        right = [i for i in present if group[i][0] >= 0]
        members = right if gate == "correct_only" else present
        if gate == "mixed_groups_only" and len(right) in (0, len(present)):
            members = []
        added = brute_marginals(members, lambda i, j, group=group: float(group[i][0] == group[j][0]), size)
        assert row == pytest.approx([a + 0.7 * s for a, s in zip(plain, added, strict=True)], abs=1e-10)
        assert all(row[i] == 0 for i in range(size) if i not in present)


@pytest.mark.parametrize("gate", ["none", "correct_only", "mixed_groups_only"])
@pytest.mark.parametrize("strategies", [[-1] * 7, [2] * 7])
def test_all_wrong_and_all_right_in_one_way_are_exact_zeros(gate, strategies):
    rewards, counted, keys = tensors([(s, True) for s in strategies])
    for objective in (SetPo(gate=gate), SetPo(Darling(), gate=gate)):
        assert objective.advantages(rewards.float(), counted, strategies=keys).eq(0).all()


def test_all_right_in_different_ways_is_told_apart_only_where_the_gate_allows():
    rewards, counted, keys = tensors([(0, True), (0, True), (1, True)])
    common, rare = math.log(1.5) * -2 / 3, math.log(2.0)
    # Without a common one two are left that differ, D = 0; without the rare one two that are alike, D = -log 2.
    expected = [0.5 * common, 0.5 * common, 0.5 * (common + rare)]
    for gate in ("none", "correct_only"):
        actual = SetPo(weight=0.5, gate=gate).advantages(rewards, counted, strategies=keys)[0]
        assert actual.tolist() == pytest.approx(expected, abs=1e-12)
    assert SetPo(weight=0.5, gate="mixed_groups_only").advantages(rewards, counted, strategies=keys).eq(0).all()


def brute_rarity(group, floor):
    """Exact fractions."""
    right = [s for s, is_counted in group if is_counted and s >= 0]
    out = []
    for strategy, is_counted in group:
        if not is_counted or strategy < 0 or len(right) < 2:
            out.append(floor)
        else:
            out.append(max(floor, float(Fraction(len(right) - right.count(strategy), len(right) - 1))))
    return out


@settings(max_examples=80, deadline=None)
@given(GROUPS, st.sampled_from([0.0, 0.1, 1.0]), st.booleans())
def test_darling_is_its_base_on_rewards_times_rarity(group, floor, by_std):
    rewards, counted, strategies = tensors(group)
    assert rarity(strategies, counted, floor)[0].tolist() == pytest.approx(brute_rarity(group, floor), abs=1e-12)
    scaled = [r * d for r, d in zip(rewards[0].tolist(), brute_rarity(group, floor), strict=True)]
    values = [r for r, (_, is_counted) in zip(scaled, group, strict=True) if is_counted]
    mean = math.fsum(values) / len(values) if values else 0.0
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)) + 1e-4 if by_std else 1.0
    has_signal = len(values) > 1 and max(values) - min(values) > 1e-12
    expected = [
        (r - mean) / std if is_counted and has_signal else 0.0 for r, (_, is_counted) in zip(scaled, group, strict=True)
    ]
    objective = Darling(Grpo(normalise_by_std=True) if by_std else None, floor)
    assert objective.advantages(rewards, counted, strategies=strategies)[0].tolist() == pytest.approx(
        expected, abs=1e-10
    )


def test_darling_by_hand():
    # Three right, two of them alike: factors 1/2, 1/2 and 1. Mean reward (1/2 + 1/2 + 1) / 4 = 1/2.
    rewards, counted, keys = tensors([(0, True), (0, True), (1, True), (-1, True)])
    actual = Darling().advantages(rewards, counted, strategies=keys)[0].tolist()
    assert actual == pytest.approx([0.0, 0.0, 0.5, -0.5], abs=1e-12)
    # A lone right one has nobody to differ from: its reward is the floor, 0.1, and the mean 0.025.
    rewards, counted, keys = tensors([(0, True), (-1, True), (-1, True), (-1, True)])
    actual = Darling().advantages(rewards, counted, strategies=keys)[0].tolist()
    assert actual == pytest.approx([0.075, -0.025, -0.025, -0.025], abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(GROUPS.filter(lambda group: len(group) > 1), st.randoms(use_true_random=False))
def test_order_and_names_of_strategies_do_not_matter(group, draws):
    order = draws.sample(range(len(group)), len(group))
    names = {-1: -1, **dict(zip(range(4), draws.sample(range(9), 4), strict=True))}
    moved = [(names[group[i][0]], group[i][1]) for i in order]
    for objective in (SetPo(weight=1.0), SetPo(gate="correct_only"), Darling()):
        (r, c, s), (r2, c2, s2) = tensors(group), tensors(moved)
        before = objective.advantages(r, c, strategies=s)[0][order]
        torch.testing.assert_close(objective.advantages(r2, c2, strategies=s2)[0], before, atol=1e-12, rtol=0)


@pytest.mark.parametrize("objective", [SetPo(weight=1.0), Darling(), Darling(SetPo(Grpo(kl_coefficient=0.1)))])
def test_the_loss_is_that_of_the_base_and_passes_finite_differences(objective):
    generator = torch.Generator().manual_seed(3)
    old, gap, ref = (torch.randn(4, 5, generator=generator, dtype=F64) for _ in range(3))
    mask = torch.arange(5)[None] < torch.tensor([[5], [2], [3], [1]])
    rewards, counted, keys = tensors([(0, True), (0, True), (1, True), (-1, True)])
    advantages = objective.advantages(rewards, counted, strategies=keys)[0]
    assert not advantages.requires_grad
    logprobs = (old + 0.05 * gap).requires_grad_()

    def loss(values, of=objective):
        return of.loss(values, old, advantages, mask, of.denominator(mask), ref_logprobs=ref).loss

    assert torch.autograd.gradcheck(loss, logprobs, eps=1e-6, atol=1e-8)
    coefficient = 0.1 if objective.needs_reference else 0.0
    assert torch.equal(loss(logprobs), loss(logprobs, Grpo(kl_coefficient=coefficient)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SetPo(weight=-0.1), "weight must be at least 0, got -0.1"),
        (lambda: SetPo(weight=math.nan), "weight must be at least 0"),
        (lambda: SetPo(gate="some"), "gate must be one of none, correct_only, mixed_groups_only, got 'some'"),
        (lambda: Darling(floor=1.5), r"floor must lie in \[0, 1\], got 1.5"),
        (lambda: SetPo().advantages(torch.zeros(1, 2), torch.ones(1, 2).bool()), "SetPo compares strategies"),
        (lambda: Darling().advantages(torch.zeros(1, 2), torch.ones(1, 2).bool()), "Darling compares strategies"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def expected_advantages(name, group):
    """Of one group of (strategy or -1) by the brute force above."""
    everyone = [(strategy, True) for strategy in group]
    if name == "darling":
        rewards = [float(s >= 0) * d for s, d in zip(group, brute_rarity(everyone, 0.1), strict=True)]
        return [r - sum(rewards) / len(rewards) for r in rewards]
    rewards = [float(s >= 0) for s in group]
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    added = brute_marginals(list(range(len(group))), lambda i, j: float(group[i] == group[j]), len(group))
    return [(r - mean) / (std + 1e-4) + 0.5 * s for r, s in zip(rewards, added, strict=True)]


@pytest.mark.parametrize("name", ["setpo", "darling"])
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_a_real_step_has_the_gradient_of_the_formula(tiny_policy, name, mu, monkeypatch):
    # With eight responses to a problem some strategies come twice.
    monkeypatch.setattr(FixedEngine, "generate", lambda self, p, n, s, seed: generated(self, p, n))
    objective = SetPo(weight=0.5) if name == "setpo" else Darling()
    module = module_of(tiny_policy, mu=mu, objective=objective, responses_per_problem=2 * GROUP)
    gradient, logged, engine = step_once(module, replay_per_step=5 if mu else 0)
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    domain = LetterDomain()
    problems = {tuple(module.codec.encode_prompt(domain.prompt(p))): p for p in letter_problems("train", 8)}
    groups = {}
    for prompt, completion in engine.given:
        groups.setdefault(prompt, []).append(completion)
    loss, repeats = 0.0, 0
    for prompt, completions in groups.items():
        right = [
            c.finish_reason is FinishReason.STOP and domain.verify(problems[prompt], c.text).correct
            for c in completions
        ]
        keys = [
            domain.strategy(problems[prompt], c.text) if ok else -1 for c, ok in zip(completions, right, strict=True)
        ]
        names = {key: i for i, key in enumerate(sorted(set(keys) - {-1}))} | {-1: -1}
        repeats += len(completions) - right.count(False) - len(names) + 1
        advantages = expected_advantages(name, [names[key] for key in keys])
        for completion, advantage in zip(completions, advantages, strict=True):
            ratio = (logprobs_of(policy, prompt, completion.token_ids) - torch.tensor(completion.logprobs)).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = loss - surrogate.mean() / len(engine.given)
    assert repeats > 3
    assert logged["train/loss_policy"] == pytest.approx(loss.item(), abs=1e-6)
    if mu == 0:
        loss.backward()
        assert_equal(gradient, policy)
    else:
        assert logged["train/loss"] == pytest.approx(0.7 * loss.item() + 0.3 * logged["train/loss_replay"], abs=1e-6)


def generated(engine, prompts, n):
    """Half the samples once more, so that strategies repeat."""
    return [[engine._completion(prompt, j // 2) for j in range(n)] for prompt in prompts]


@pytest.mark.parametrize(
    "options",
    [
        ("elite_lightning.objectives.SetPo", "--model.objective.gate", "correct_only"),
        (
            "elite_lightning.objectives.Darling",
            "--model.objective.base",
            "elite_lightning.objectives.Grpo",
            "--model.objective.base.clip_high",
            "0.28",
        ),
    ],
)
def test_an_objective_is_a_value_of_config_and_takes_replay_on_top(cli, tmp_path, options):
    code, err = cli("fit", "--model.objective", *options, "--trainer.max_steps", "2", "--evaluation.baseline", "false")
    assert (code, err) == (0, "")
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert options[0] in saved
    assert options[-1] in saved
    rows = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "train/loss_policy" in rows
    assert "train/loss_replay" in rows


def test_a_wrong_value_in_the_config_is_one_line(cli):
    options = ("--model.objective", "elite_lightning.objectives.SetPo", "--model.objective.weight", "-1")
    code, err = cli("fit", *options)
    assert code == 2
    assert "weight must be at least 0, got -1" in err
