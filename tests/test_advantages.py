"""Advantages of MaxRL, PKPO, pass@k training and the unlikeliness reward: by hand, by brute force, by enumeration."""

import itertools
import math
from statistics import mean, pstdev

import pytest
import torch
from test_module import GROUP, assert_equal, logprobs_of, module_of, step_once
from torch import Tensor
from toy import LetterDomain, letter_problems
from transformers import AutoModelForCausalLM

from elite_lightning.objectives import Grpo, MaxRl, Objective, PassAtK, Pkpo, PolicyGradient, UnlikelinessReward
from elite_lightning.types import FinishReason

EVERY = [MaxRl(), MaxRl(order=3), Pkpo(3), PassAtK(3), UnlikelinessReward(), UnlikelinessReward(penalty=0.5)]
SILENT = [MaxRl(), Pkpo(3), PassAtK(3)]


def name(objective):
    return f"{type(objective).__name__}-{getattr(objective, 'order', '') or getattr(objective, 'penalty', '')}"


def maxrl(rewards, order):
    n, right = len(rewards), sum(rewards)
    if order is None:
        return [r * n / right - 1 if right else 0.0 for r in rewards]
    # A wrong response loses, for each k, the chance that k - 1 others are wrong as well: all subsets, one by one.
    return [
        1.0 if r else -sum(all_wrong_with(i, rewards, k) for k in range(2, order + 1)) for i, r in enumerate(rewards)
    ]


def all_wrong_with(i, rewards, k):
    others = rewards[:i] + rewards[i + 1 :]
    return (
        mean(float(not any(subset)) for subset in itertools.combinations(others, k - 1)) if k <= len(rewards) else 0.0
    )


def pkpo(rewards, k):
    gains = []
    for i, reward in enumerate(rewards):
        subsets = itertools.combinations(rewards[:i] + rewards[i + 1 :], k - 1)
        gains.append(k * mean(max(reward, *subset) - max(subset) for subset in subsets))
    return gains


def pass_at_k(rewards, k):
    """Subsets are the group, each with GRPO's advantage; a response has the mean over the subsets it is in."""
    subsets = list(itertools.combinations(range(len(rewards)), k))
    scores = [float(any(rewards[i] for i in subset)) for subset in subsets]
    if len(set(scores)) == 1:
        return [0.0] * len(rewards)
    standard = [(score - mean(scores)) / pstdev(scores) for score in scores]
    return [mean(a for a, s in zip(standard, subsets, strict=True) if i in s) for i in range(len(rewards))]


def unlikeliness(rewards, logprobs, penalty):
    ordered = sorted(logprobs)
    ranks = [mean(j for j, value in enumerate(ordered) if value == logprob) for logprob in logprobs]
    lowered = [r * (1 - penalty * rank / len(rewards)) for r, rank in zip(rewards, ranks, strict=True)]
    deviation = math.sqrt(sum((r - mean(lowered)) ** 2 for r in lowered) / (len(lowered) - 1))
    return [(r - mean(lowered)) / (deviation + 1e-4) if len(set(lowered)) > 1 else 0.0 for r in lowered]


def brute_force(objective, rewards, logprobs):
    if isinstance(objective, MaxRl):
        return maxrl(rewards, objective.order)
    if isinstance(objective, UnlikelinessReward):
        return unlikeliness(rewards, logprobs, objective.penalty)
    if len(rewards) < objective.k:
        return [0.0] * len(rewards)
    return (pkpo if isinstance(objective, Pkpo) else pass_at_k)(rewards, objective.k)


def advantages_of(objective, rewards, counted=None, logprobs=None):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    counted = torch.ones_like(rewards, dtype=torch.bool) if counted is None else torch.tensor(counted)
    logprobs = torch.zeros_like(rewards) if logprobs is None else torch.tensor(logprobs, dtype=torch.float64)
    return objective.advantages(rewards, counted, mean_logprobs=logprobs)


def groups_of(size):
    """Every group of rewards in {0, 1}, and log-probabilities with ties."""
    rewards = [list(group) for group in itertools.product([0.0, 1.0], repeat=size)]
    generator = torch.Generator().manual_seed(size)
    return rewards, (-torch.randint(1, 4, (len(rewards), size), generator=generator) / 4).tolist()


def test_figures_by_hand():
    assert advantages_of(MaxRl(), [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).tolist() == [
        [3, -1, -1, -1],
        [0] * 4,
        [0] * 4,
    ]
    actual = advantages_of(Pkpo(4), [[1, 1, 1, 0, 0, 0, 0, 0]]) / 8  # the paper's s_i
    assert actual[0].tolist() == pytest.approx([1 / 7] * 3 + [0] * 5, abs=1e-15)
    # Order 2, one right in three: C(1, 1) / C(2, 1) = 1/2. Right: rewards shaped above 0.5.
    assert advantages_of(MaxRl(order=2), [[0.8, 0.2, 0.5]])[0].tolist() == [1, -0.5, -0.5]
    # One right in three, k = 2: R = 2/3, s = sqrt(2)/3.
    actual = advantages_of(PassAtK(2), [[1, 0, 0]])[0].tolist()
    assert actual == pytest.approx([1 / math.sqrt(2), -0.5 / math.sqrt(2), -0.5 / math.sqrt(2)], abs=1e-15)
    # Ranks 1, 0 and 2 of three: the right ones earn 1 - 0.25/3 and 1.
    objective = UnlikelinessReward(normalise_by_std=False)
    actual = advantages_of(objective, [[1, 1, 0]], logprobs=[[-2, -3, -1]])[0].tolist()
    middle = (2 - 0.25 / 3) / 3
    assert actual == pytest.approx([1 - 0.25 / 3 - middle, 1 - middle, -middle], abs=1e-15)


@pytest.mark.parametrize("objective", EVERY, ids=name)
@pytest.mark.parametrize("size", [3, 4, 6])
def test_advantages_equal_brute_force_on_every_group(objective, size):
    rewards, logprobs = groups_of(size)
    actual = advantages_of(objective, rewards, logprobs=logprobs)
    for got, group, likely in zip(actual.tolist(), rewards, logprobs, strict=True):
        assert got == pytest.approx(brute_force(objective, group, likely), abs=1e-12), group


@pytest.mark.parametrize("k", [2, 4, 7])
def test_pkpo_takes_rewards_between_right_and_wrong(k):
    generator = torch.Generator().manual_seed(k)
    rewards = (torch.randint(-3, 4, (20, 7), generator=generator) / 3).tolist()  # with ties, and negative
    for got, group in zip(advantages_of(Pkpo(k), rewards).tolist(), rewards, strict=True):
        assert got == pytest.approx(pkpo(group, k), abs=1e-12)


@pytest.mark.parametrize("objective", EVERY, ids=name)
def test_uncounted_responses_are_as_if_never_sampled(objective):
    rewards, logprobs = groups_of(4)
    for places in itertools.combinations(range(6), 2):
        wide, likely = ([list(group) for group in table] for table in (rewards, logprobs))
        for place in places:
            for row, other in zip(wide, likely, strict=True):
                row.insert(place, math.nan)
                other.insert(place, -0.5)
        counted = [[place not in places for place in range(6)]] * len(wide)
        actual = advantages_of(objective, wide, counted, likely)
        assert actual[:, list(places)].eq(0).all()
        kept = [place for place in range(6) if place not in places]
        assert torch.equal(actual[:, kept], advantages_of(objective, rewards, logprobs=logprobs))


@pytest.mark.parametrize("objective", EVERY, ids=name)
@pytest.mark.parametrize("counted", [0, 1, 2])
def test_groups_too_small_are_finite_and_at_most_noted(objective, counted):
    mask = [[place < counted for place in range(5)]] * 2
    actual = advantages_of(objective, [[1.0] * 5, [0.0] * 5], mask)
    if isinstance(objective, MaxRl) and objective.order:  # it has no baseline: right is right in any group
        assert actual.tolist() == [
            [1.0] * counted + [0.0] * (5 - counted),
            [-max(counted - 1.0, 0)] * counted + [0.0] * (5 - counted),
        ]
    else:
        assert actual.eq(0).all()


@pytest.mark.parametrize("objective", SILENT, ids=name)
@pytest.mark.parametrize("size", [3, 5, 8, 128])
def test_all_right_and_all_wrong_are_exact_zeros(objective, size):
    assert advantages_of(objective, [[1.0] * size, [0.0] * size]).eq(0).all()


def test_unlikeliness_finds_a_signal_among_right_responses_only():
    objective = UnlikelinessReward()
    actual = advantages_of(
        objective, [[1, 1, 1], [0, 0, 0], [1, 1, 1]], logprobs=[[-1, -2, -3], [-1, -2, -3], [-1] * 3]
    )
    assert actual[0, 2] > actual[0, 1] > actual[0, 0]
    assert actual[1:].eq(0).all()  # nothing to lower, and copies of one text


@pytest.mark.parametrize("objective", EVERY, ids=name)
def test_order_within_the_group_does_not_matter(objective):
    rewards, logprobs = groups_of(5)
    rewards[-1] = [0.2, 0.9, 0.9, 0.1, 1.0]
    order = [3, 0, 4, 2, 1]
    shuffled = [[[row[i] for i in order] for row in table] for table in (rewards, logprobs)]
    actual = advantages_of(objective, shuffled[0], logprobs=shuffled[1])
    torch.testing.assert_close(
        actual, advantages_of(objective, rewards, logprobs=logprobs)[:, order], atol=1e-14, rtol=0
    )


def expected_gradient(objective, rewards, logits, n):
    """Mean of the objective's gradient over all n-tuples of answers, each with its probability: no sampling."""
    logits = logits.clone().requires_grad_()
    table = logits.log_softmax(-1)
    tuples = torch.tensor(list(itertools.product(range(len(rewards)), repeat=n)))
    logprobs = table[tuples]
    advantages = objective.advantages(
        torch.tensor(rewards, dtype=torch.float64)[tuples],
        torch.ones_like(tuples, dtype=torch.bool),
        mean_logprobs=logprobs.detach(),
    )
    weighted = advantages * logprobs.detach().sum(-1, keepdim=True).exp()
    rows = logprobs.reshape(-1, 1)
    loss = objective.loss(rows, rows, weighted.flatten(), torch.ones_like(rows, dtype=torch.bool), n).loss
    return -torch.autograd.grad(loss, logits)[0]


def exact_gradient(value, logits):
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(value(logits.softmax(-1)), logits)[0]


def truncated_likelihood(rewards, order):
    wrong = torch.tensor(rewards, dtype=torch.float64) == 0
    return lambda p: -sum(p[wrong].sum() ** k / k for k in range(1, order + 1))


def best_of(rewards, k):
    """Expected best reward of k draws, over all k-tuples."""

    def value(p):
        tuples = list(itertools.product(range(len(rewards)), repeat=k))
        return sum(math.prod(p[i] for i in draws) * max(rewards[i] for i in draws) for draws in tuples)

    return value


LOGITS = torch.tensor([0.3, -0.9, 0.5], dtype=torch.float64)
TASKS = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("rewards", TASKS)
@pytest.mark.parametrize("n", [2, 4, 5])
def test_maxrl_is_the_gradient_of_the_truncated_likelihood(rewards, n):
    for order in range(1, n + 1):
        expected = exact_gradient(truncated_likelihood(rewards, order), LOGITS)
        actual = expected_gradient(MaxRl(order=order), rewards, LOGITS, n)
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=0)
    # What the authors run drops the groups without a right response, and with them one term.
    expected = exact_gradient(truncated_likelihood(rewards, n - 1), LOGITS)
    torch.testing.assert_close(expected_gradient(MaxRl(), rewards, LOGITS, n), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("rewards", [*TASKS, [0.2, 1.0, 0.5], [-1.0, 0.0, 2.0]])
@pytest.mark.parametrize(("n", "k"), [(2, 2), (4, 2), (4, 4), (5, 3)])
def test_pkpo_is_the_gradient_of_the_expected_best_of_k(rewards, n, k):
    expected = exact_gradient(best_of(rewards, k), LOGITS)
    torch.testing.assert_close(expected_gradient(Pkpo(k), rewards, LOGITS, n), expected, atol=1e-12, rtol=0)


def test_the_exact_gradients_are_those_of_finite_differences():
    for value in (truncated_likelihood(TASKS[0], 3), best_of([0.2, 1.0, 0.5], 3)):
        for i, direction in enumerate(torch.eye(3, dtype=torch.float64)):
            ends = [value((LOGITS + sign * 1e-5 * direction).softmax(-1)) for sign in (1, -1)]
            assert exact_gradient(value, LOGITS)[i].item() == pytest.approx((ends[0] - ends[1]).item() / 2e-5, abs=1e-9)


@pytest.mark.parametrize("objective", EVERY, ids=name)
def test_each_is_an_objective_without_gradient_in_its_advantages(objective):
    assert isinstance(objective, Objective)
    rewards = torch.tensor([[1.0, 0.0, 1.0]], requires_grad=True)
    advantages = objective.advantages(rewards, torch.ones(1, 3).bool(), mean_logprobs=torch.zeros(1, 3))
    assert not advantages.requires_grad
    assert advantages.dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaxRl(order=0), "order must be at least 1"),
        (lambda: Pkpo(1), "k must be at least 2"),
        (lambda: PassAtK(1), "k must be at least 2"),
        (lambda: UnlikelinessReward(penalty=1.5), "penalty"),
        (lambda: MaxRl(clip_low=2.0), "clip_low"),
        (lambda: advantages_of(MaxRl(order=4), [[1.0, 0.0]]), "groups have 2 responses"),
        (lambda: advantages_of(Pkpo(4), [[1.0, 0.0]]), "groups have 2 responses"),
        (lambda: advantages_of(PassAtK(4), [[1.0, 0.0]]), "groups have 2 responses"),
        (lambda: UnlikelinessReward().advantages(torch.ones(1, 2), torch.ones(1, 2).bool()), "mean_logprobs"),
    ],
)
def test_settings_out_of_range_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def judged(module, given):
    """Prompt to its responses with their rewards."""
    problems = {tuple(module.codec.encode_prompt(module.domain.prompt(p))): p for p in letter_problems("train", 8)}
    groups = {}
    for prompt, c in given:
        right = c.finish_reason is FinishReason.STOP and LetterDomain().verify(problems[prompt], c.text).correct
        groups.setdefault(prompt, []).append((c, float(right)))
    return groups


STEPS = [MaxRl(aggregation="token"), MaxRl(order=2), Pkpo(2), PassAtK(2), UnlikelinessReward()]


@pytest.mark.parametrize("objective", STEPS, ids=name)
def test_a_training_step_takes_its_gradient(tiny_policy, objective):
    module = module_of(tiny_policy, mu=0.0, objective=objective)
    gradient, logged, engine = step_once(module, replay_per_step=0)
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    loss, tokens = 0.0, sum(len(c.token_ids) for _, c in engine.given)
    for prompt, responses in judged(module, engine.given).items():
        completions, rewards = zip(*responses, strict=True)
        likely = [float(torch.tensor(sum(c.logprobs) / len(c.logprobs))) for c in completions]
        for completion, advantage in zip(completions, brute_force(objective, list(rewards), likely), strict=True):
            ratio = (logprobs_of(policy, prompt, completion.token_ids) - torch.tensor(completion.logprobs)).exp()
            gains = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            per_token = objective.aggregation == "token"
            loss = loss - (gains.sum() / tokens if per_token else gains.mean() / len(engine.given))
    loss.backward()
    assert len(engine.given) == 4 * GROUP
    assert logged["train/groups_without_signal"] < 1
    assert logged["train/loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert_equal(gradient, policy)


CHOICES = {
    "Grpo": {"normalise_by_std": False, "aggregation": "constant", "constant_length": 6, "importance_cap": 2.0},
    "MaxRl": {"order": 2, "surrogate": "cispo", "aggregation": "token"},
    "Pkpo": {"k": 2, "ratio": "sequence"},
    "PassAtK": {"k": 2, "clip_high": 0.28},
    "UnlikelinessReward": {"penalty": 0.5, "std_epsilon": 1e-6},
}


@pytest.mark.parametrize("choice", CHOICES)
def test_the_command_line_takes_it_by_class_path_and_replay_on_top(cli, choice, tmp_path):
    config = tmp_path / "objective.yaml"
    arguments = "".join(f"      {key}: {value}\n" for key, value in CHOICES[choice].items())
    config.write_text(
        f"model:\n  objective:\n    class_path: elite_lightning.objectives.{choice}\n    init_args:\n{arguments}"
    )
    options = ("--trainer.max_steps", "1", "--model.mu", "0.5")
    assert cli("fit", "--config", str(config), *options) == (0, "")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "train/loss_policy" in lines
    assert "train/loss_replay" in lines
    assert ("train/importance_capped" in lines) == (choice == "Grpo")


class Signed(PolicyGradient):
    """A user's own: right is +1, wrong is -1."""

    def advantages(
        self,
        rewards: Tensor,
        counted: Tensor,
        *,
        strategies: Tensor | None = None,
        mean_logprobs: Tensor | None = None,
    ) -> Tensor:
        return torch.where(counted, 2.0 * rewards - 1.0, 0.0)


def test_an_objective_of_ones_own_is_its_advantages(cli, tmp_path):
    options = ("--trainer.max_steps", "1", "--model.objective", "test_advantages.Signed")
    assert cli("fit", *options, "--model.objective.aggregation", "token") == (0, "")
    assert '"train/groups_without_signal": 0.0' in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.parametrize("option", [("MaxRl", "order"), ("Pkpo", "k"), ("PassAtK", "k")])
def test_groups_too_small_are_refused_before_the_search(cli, option, tmp_path):
    code, err = cli(
        "fit", "--model.objective", f"elite_lightning.objectives.{option[0]}", f"--model.objective.{option[1]}", "5"
    )
    assert code == 2
    assert "groups have 4 responses" in err
    assert not (tmp_path / "run" / "archive.jsonl").exists()


def test_grpo_with_an_unknown_setting_is_refused():
    with pytest.raises(TypeError, match="clip_hihg"):
        Grpo(clip_hihg=0.3)
