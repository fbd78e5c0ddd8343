"""SetPO with a similarity of trees or embeddings: brute force, a real training step, and the command line."""

import itertools
import math
import random
from collections import Counter

import pytest
import test_module
import torch
import yaml
from test_diversity_objectives import KINDS, brute_marginals, tensors
from test_module import GROUP, FixedEngine, assert_equal, logprobs_of, module_of, step_once
from test_similarity import by_hand, cosine, encoder  # noqa: F401 - a fixture
from toy import LetterDomain
from transformers import AutoModelForCausalLM

from datamodules.arithmetic import ArithmeticSource
from elite_lightning.domains.arithmetic import ArithmeticDomain
from elite_lightning.errors import UsageError
from elite_lightning.objectives import ComparingObjective, Darling, Grpo, SetPo, bound, kernel_of
from elite_lightning.objectives.darling import rarity
from elite_lightning.similarity import SentenceEmbeddings, SyntaxTrees
from elite_lightning.types import Completion, FinishReason

TREES = SyntaxTrees()


def any_similarity(problems, size, seed=0):
    kernel = torch.rand(problems, size, size, generator=torch.Generator().manual_seed(seed))
    kernel = (kernel + kernel.mT) / 2
    kernel.diagonal(dim1=1, dim2=2).fill_(1.0)
    return kernel


@pytest.mark.parametrize("gate", ["none", "correct_only", "mixed_groups_only"])
@pytest.mark.parametrize("size", range(1, 6))
def test_right_and_wrong_have_their_own_similarity_and_the_gate_decides_whose_counts(size, gate):
    groups = list(itertools.product(KINDS, repeat=size))
    rewards, counted, strategies = (torch.cat(parts) for parts in zip(*map(tensors, groups), strict=True))
    kernel = any_similarity(len(groups), size)
    objective = SetPo(weight=0.7, gate=gate, kernel=TREES).with_similarity(kernel)
    actual = objective.advantages(rewards, counted, strategies=strategies).tolist()
    base = Grpo().advantages(rewards, counted).tolist()
    for row, plain, group, likeness in zip(actual, base, groups, kernel.tolist(), strict=True):
        present = [i for i, (_, is_counted) in enumerate(group) if is_counted]
        right = [i for i in present if group[i][0] >= 0]
        members = right if gate == "correct_only" else present
        if gate == "mixed_groups_only" and len(right) in (0, len(present)):
            members = []
        added = brute_marginals(members, lambda i, j, likeness=likeness: likeness[i][j], size)
        assert row == pytest.approx([a + 0.7 * s for a, s in zip(plain, added, strict=True)], abs=1e-10)


def test_diverse_wrong_answers_are_rewarded_as_in_the_paper_and_not_behind_a_gate():
    """By hand: three wrong ones; two are alike by 1/2, the third is like neither."""
    rewards, counted, keys = tensors([(-1, True)] * 3)
    kernel = torch.tensor([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    whole = -2 * math.log(1.25) / 3  # masses 1/4, 1/4 and 0
    expected = [whole, whole, whole + math.log(1.5)]  # left are two unlike ones, or two with masses of 1/2
    actual = SetPo(weight=1.0, kernel=TREES).with_similarity(kernel).advantages(rewards, counted, strategies=keys)
    assert actual[0].tolist() == pytest.approx(expected, abs=1e-7)
    for gate in ("correct_only", "mixed_groups_only"):
        objective = SetPo(weight=1.0, gate=gate, kernel=TREES).with_similarity(kernel)
        assert objective.advantages(rewards, counted, strategies=keys).eq(0).all()


def test_a_similarity_reaches_the_one_who_has_the_kernel_however_deep():
    rewards, counted, keys = tensors([(0, True), (1, True), (1, True), (-1, True), (-1, False)])
    kernel = any_similarity(1, 5)
    inner = SetPo(weight=0.5, kernel=TREES)
    scaled = rewards * rarity(keys, counted, 0.1)
    scaled = torch.where(counted, scaled, 0.0)
    expected = inner.with_similarity(kernel).advantages(scaled, counted, strategies=keys)
    outer = Darling(inner)
    assert kernel_of(outer) is TREES
    assert torch.equal(bound(outer, kernel).advantages(rewards, counted, strategies=keys), expected)
    # Around it once more, by strategies.
    twice = bound(SetPo(outer, weight=0.5), kernel).advantages(rewards, counted, strategies=keys)
    plain = SetPo(Grpo(), weight=0.5).advantages(rewards, counted, strategies=keys)
    added = plain - Grpo().advantages(rewards, counted)
    torch.testing.assert_close(twice, expected + added, atol=1e-12, rtol=0)


def test_an_objective_without_a_kernel_is_left_as_it_is():
    kernel = any_similarity(1, 4)
    for objective in (Grpo(), SetPo(), Darling(), Darling(SetPo())):
        assert kernel_of(objective) is None
        assert bound(objective, kernel) is objective
    assert isinstance(SetPo(kernel=TREES), ComparingObjective)
    assert not isinstance(Grpo(), ComparingObjective)


def test_one_step_does_not_leave_its_similarity_to_the_next():
    rewards, counted, keys = tensors([(0, True), (1, True), (-1, True)])
    for objective in (SetPo(kernel=TREES), Darling(SetPo(kernel=TREES))):
        objective.with_similarity(any_similarity(1, 3)).advantages(rewards, counted, strategies=keys)
        with pytest.raises(ValueError, match="kernel SyntaxTrees: call with_similarity first"):
            objective.advantages(rewards, counted, strategies=keys)


def test_two_kernels_are_one_too_many():
    with pytest.raises(ValueError, match="SetPo and its base Darling both have a kernel"):
        SetPo(Darling(SetPo(kernel=TREES)), kernel=SentenceEmbeddings("x"))


# A real step.

# Of `a * (b + c + d)`: {0} is a, {1} is b, {2} is c + d.
CANDIDATES = (
    "{0} * ({1} + {2})",
    "({1} + {2}) * {0}",
    "{0} * ({2}) + {1} * {0}",
    "{0} + {1} + {2}",
    "{0} * {1}",
    "{0} + ({1}",
    " ",
)


class ExpressionEngine(FixedEngine):
    """Right, wrong, broken and missing answers to arithmetic problems; some are cut off."""

    def _completion(self, prompt, sample):
        draws = random.Random(f"{prompt} {sample}")
        a, terms = self.codec.decode(prompt).split("\n")[0].removeprefix("rewrite: ").split(" * ")
        text = draws.choice(CANDIDATES).format(a, *terms.strip("()").split(" + ", 1))
        ids = self.codec.encode_response(text)
        reason = FinishReason.LENGTH if draws.random() < 0.15 else FinishReason.STOP
        completion = Completion(tuple(ids), tuple(-1.4 + draws.uniform(-0.5, 0.5) for _ in ids), reason, text)
        self.given.append((tuple(prompt), completion))
        return completion


SOURCE = ArithmeticSource(8, 2, 2)


def reference_similarity(kernel, solutions, folder):
    domain = ArithmeticDomain()

    def between(one, other):
        if one == other or None in (one, other):
            return float(one == other)
        if kernel == "embeddings":
            return cosine(by_hand(folder, one, "mean"), by_hand(folder, other, "mean"))
        trees = [Counter(domain.tree_features(text) or {}) for text in (one, other)]
        return sum((trees[0] & trees[1]).values()) / max(1, sum((trees[0] | trees[1]).values()))

    return lambda i, j: between(solutions[i], solutions[j])


def one_step(tiny_policy, objective, mu):
    """Gradient, log, responses of each problem, and the module."""
    module = module_of(
        tiny_policy, domain=ArithmeticDomain(), mu=mu, objective=objective, responses_per_problem=2 * GROUP
    )
    gradient, logged, engine = step_once(module, replay_per_step=5 if mu else 0)
    domain, groups = module.domain, []
    problems = {tuple(module.codec.encode_prompt(domain.prompt(p))): p for p in SOURCE.train()}
    for prompt, pairs in itertools.groupby(engine.given, key=lambda pair: pair[0]):
        completions = [completion for _, completion in pairs]
        solutions = [None if c.finish_reason is FinishReason.LENGTH else domain.extract(c.text) for c in completions]
        rewards = [float(s is not None and domain.verify(problems[prompt], s).correct) for s in solutions]
        groups.append((prompt, completions, solutions, rewards))
    return gradient, logged, groups


@pytest.fixture
def arithmetic(monkeypatch):
    """Lets `step_once` train on arithmetic."""
    monkeypatch.setattr(test_module, "LetterSource", lambda _: SOURCE)
    monkeypatch.setattr(test_module, "FixedEngine", ExpressionEngine)


@pytest.mark.parametrize(
    ("kernel", "gate", "mu"), [("trees", "none", 0.0), ("trees", "correct_only", 0.3), ("embeddings", "none", 0.0)]
)
def test_a_real_step_has_the_gradient_of_the_formula(tiny_policy, encoder, arithmetic, kernel, gate, mu):  # noqa: F811
    made = TREES if kernel == "trees" else SentenceEmbeddings(str(encoder), "mean", batch_size=3)
    gradient, logged, groups = one_step(tiny_policy, SetPo(weight=2.0, gate=gate, kernel=made), mu)
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    loss, size, seen = 0.0, 2 * GROUP, Counter()
    for prompt, completions, solutions, rewards in groups:
        members = [i for i, reward in enumerate(rewards) if reward or gate == "none"]
        added = brute_marginals(members, reference_similarity(kernel, solutions, encoder), size)
        mean = sum(rewards) / size
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (size - 1))
        seen.update(right=int(sum(rewards)), missing=solutions.count(None), moved=sum(abs(s) > 1e-3 for s in added))
        seen.update(wrong_gained=sum(s > 0.01 and not r for r, s in zip(rewards, added, strict=True)))
        for completion, reward, marginal in zip(completions, rewards, added, strict=True):
            advantage = (reward - mean) / (std + 1e-4) + 2.0 * marginal
            ratio = (logprobs_of(policy, prompt, completion.token_ids) - torch.tensor(completion.logprobs)).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = loss - surrogate.mean() / (size * len(groups))
    assert min(seen["right"], seen["missing"], seen["moved"]) > 3  # else the comparison would show little
    assert (seen["wrong_gained"] > 2) == (gate == "none")
    assert logged["train/loss_policy"] == pytest.approx(loss.item(), abs=2e-6)
    if mu == 0:
        loss.backward()
        assert_equal(gradient, policy)


def test_the_same_step_again_is_the_same_to_the_last_bit(tiny_policy, encoder, arithmetic):  # noqa: F811
    used = SentenceEmbeddings(str(encoder), batch_size=3)
    used.of([["1", "2 + 3", "4"]], ArithmeticDomain(), torch.device("cpu"))
    first, second = (
        one_step(tiny_policy, SetPo(weight=2.0, kernel=kernel), 0.0)[0]
        for kernel in (used, SentenceEmbeddings(str(encoder), batch_size=3))
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_domain_without_trees_is_refused_when_the_module_is_made(tiny_policy):
    with pytest.raises(UsageError, match="'letters' has none"):
        module_of(tiny_policy, objective=SetPo(kernel=TREES))
    module_of(tiny_policy, objective=SetPo(kernel=TREES), mu=1.0)  # samples nothing, so compares nothing


def test_the_embedding_model_is_in_neither_module_nor_optimizer(tiny_policy, encoder):  # noqa: F811
    kernel = SentenceEmbeddings(str(encoder))
    plain, module = (module_of(tiny_policy, objective=o) for o in (SetPo(), SetPo(kernel=kernel)))
    for each in (plain, module):
        each.configure_model()
    kernel.of([["a", "b"]], LetterDomain(), torch.device("cpu"))
    assert module.state_dict().keys() == plain.state_dict().keys()
    assert len(list(module.parameters())) == len(list(plain.parameters()))


# The command line.


def write_objective(folder, kernel, init_args):
    path = folder / "objective.yaml"
    kernel = {"class_path": f"elite_lightning.similarity.{kernel}", "init_args": init_args}
    objective = {"class_path": "elite_lightning.objectives.SetPo", "init_args": {"gate": "none", "kernel": kernel}}
    path.write_text(yaml.safe_dump({"model": {"objective": objective}}))
    return path


# Nothing is measured and nothing searched: that is not what this is about.
SHORT = ("--search", "null", "--data.source.test_problems", "0", "--trainer.max_steps", "2")


def test_embeddings_are_a_value_of_config_and_in_no_checkpoint(cli, tmp_path, encoder):  # noqa: F811
    config = write_objective(tmp_path, "SentenceEmbeddings", {"model": str(encoder), "pooling": "mean"})
    demonstrations = ("--data.demonstrations", "toy.LetterDemonstrations")
    assert cli("fit", "--config", str(config), *SHORT, *demonstrations) == (0, "")
    assert "train/loss_policy" in (tmp_path / "run" / "metrics.jsonl").read_text()
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"]["objective"]["init_args"]["kernel"]
    assert saved["class_path"] == "elite_lightning.similarity.SentenceEmbeddings"
    assert saved["init_args"]["pooling"] == "mean"
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert {name.split(".")[0] for name in checkpoint["state_dict"]} == {"policy"}


def test_trees_train_on_a_domain_that_has_them(cli, tmp_path, toy_config):
    config = yaml.safe_load(toy_config.read_text())
    config["data"]["source"] = {"class_path": "datamodules.arithmetic.ArithmeticSource"}
    config["data"]["demonstrations"] = {"class_path": "datamodules.arithmetic.ArithmeticDemonstrations"}
    toy_config.write_text(yaml.safe_dump(config))
    objective = write_objective(tmp_path, "SyntaxTrees", {})
    assert cli("fit", "--config", str(objective), *SHORT) == (0, "")
    assert "train/loss_policy" in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_what_cannot_work_is_one_line_before_the_search(cli, tmp_path):
    code, err = cli("fit", "--config", str(write_objective(tmp_path, "SyntaxTrees", {})))
    assert code == 2
    assert "the domain 'letters' has none" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run" / "search.sqlite").exists()
