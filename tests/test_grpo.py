"""GRPO's advantages and loss against figures by hand and a plain Python reference."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.objectives import Grpo, Objective, count_responses, merge_metrics
from elite_lightning.objectives.policy_gradient import log_ratio

ALL = torch.ones(1, 4, dtype=torch.bool)


def reference_advantages(rewards, counted, epsilon):
    """One group in plain Python."""
    values = [r for r, c in zip(rewards, counted, strict=True) if c]
    if len(set(values)) < 2:
        return [0.0] * len(rewards)
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return [(r - mean) / (std + epsilon) if c else 0.0 for r, c in zip(rewards, counted, strict=True)]


def reference_loss(logprobs, old, advantages, mask, total, low=0.2, high=0.2, beta=0.0, ref=None):
    """The whole loss in plain Python: tokens of a response first, responses second."""
    responses = []
    for i, row in enumerate(mask):
        terms = []
        for t, valid in enumerate(row):
            if valid:
                rho = math.exp(logprobs[i][t] - old[i][t])
                clipped = min(max(rho, 1 - low), 1 + high)
                terms.append(-min(rho * advantages[i], clipped * advantages[i]))
                if beta:
                    gap = ref[i][t] - logprobs[i][t]
                    terms[-1] += beta * (math.exp(gap) - gap - 1)
        responses.append(math.fsum(terms) / len(terms) if terms else 0.0)
    return math.fsum(responses) / total


def random_step(seed, rows=6, time=5):
    """Log-probabilities of three policies, advantages and a ragged mask, float64."""
    generator = torch.Generator().manual_seed(seed)
    old, gap, ref_gap = (torch.randn(rows, time, generator=generator, dtype=torch.float64) for _ in range(3))
    lengths = torch.randint(1, time + 1, (rows, 1), generator=generator)
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    return old + 0.3 * gap, old, old + ref_gap, advantages, torch.arange(time)[None] < lengths


def test_grpo_is_an_objective():
    assert isinstance(Grpo(), Objective)
    assert not Grpo().needs_reference
    assert Grpo(kl_coefficient=0.1).needs_reference


def test_one_success_in_four_is_one_and_a_half_standard_deviations():
    advantages = Grpo(std_epsilon=0.0).advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), ALL)
    torch.testing.assert_close(advantages, torch.tensor([[1.5, -0.5, -0.5, -0.5]]))


def test_without_the_standard_deviation_only_the_mean_is_taken_off():
    advantages = Grpo(normalise_by_std=False).advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), ALL)
    torch.testing.assert_close(advantages, torch.tensor([[0.75, -0.25, -0.25, -0.25]]))


def test_rewards_are_compared_within_a_problem_and_not_over_the_batch():
    counted = torch.ones(2, 2, dtype=torch.bool)
    assert Grpo().advantages(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), counted).eq(0).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, 1e6 + 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 1e-4])
def test_equal_rewards_give_exact_zeros_whatever_rounding_does(value, epsilon):
    advantages = Grpo(std_epsilon=epsilon).advantages(torch.full((2, 7), value), torch.ones(2, 7, dtype=torch.bool))
    assert advantages.eq(0).all()


def test_a_failed_verifier_leaves_the_groups_statistics():
    rewards = torch.tensor([[1.0, float("nan"), 0.0, 0.0], [1.0, 0.0, 5.0, -5.0]])
    counted = torch.tensor([[True, False, True, True], [True, False, False, False]])
    advantages = Grpo(std_epsilon=0.0).advantages(rewards, counted)
    third = 1 / math.sqrt(3)
    torch.testing.assert_close(advantages[0], torch.tensor([2 * third, 0.0, -third, -third]))
    assert advantages[1].eq(0).all()  # one counted response is no group


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-10, 10, width=16), st.booleans()), min_size=1, max_size=9))
def test_advantages_equal_the_plain_python_reference(group):
    rewards, counted = zip(*group, strict=True)
    actual = Grpo().advantages(torch.tensor([rewards], dtype=torch.float64), torch.tensor([counted]))
    assert actual[0].tolist() == pytest.approx(reference_advantages(rewards, counted, 1e-4), rel=1e-9, abs=1e-9)


def test_advantages_carry_no_gradient():
    rewards = torch.tensor([[1.0, 0.0, 0.5, 0.0]], requires_grad=True)
    assert not Grpo().advantages(rewards, ALL).requires_grad


@pytest.mark.parametrize(("low", "high", "beta"), [(0.2, 0.2, 0.0), (0.1, 0.28, 0.0), (0.2, 0.2, 0.05)])
@pytest.mark.parametrize("seed", range(4))
def test_loss_equals_the_plain_python_reference(seed, low, high, beta):
    logprobs, old, ref, advantages, mask = random_step(seed)
    objective = Grpo(clip_low=low, clip_high=high, kl_coefficient=beta)
    actual = objective.loss(logprobs, old, advantages, mask, 6.0, ref_logprobs=ref).loss
    lists = [tensor.tolist() for tensor in (logprobs, old, advantages, mask)]
    assert float(actual) == pytest.approx(reference_loss(*lists, 6.0, low, high, beta, ref.tolist()), abs=1e-12)


def test_loss_gradient_passes_a_finite_difference_check():
    logprobs, old, ref, advantages, mask = random_step(1)
    objective = Grpo(kl_coefficient=0.1)

    def loss(values):
        return objective.loss(values, old, advantages, mask, 6, ref_logprobs=ref).loss

    assert torch.autograd.gradcheck(loss, logprobs.requires_grad_(), eps=1e-6, atol=1e-8)


def test_tokens_are_averaged_within_a_response_before_responses():
    logprobs = torch.zeros(2, 4, requires_grad=True)
    mask = torch.tensor([[True, False, False, False], [True] * 4])
    Grpo().loss(logprobs, torch.zeros(2, 4), torch.tensor([1.0, 1.0]), mask, 2).loss.backward()
    # The short response's only token pulls four times as hard as each token of the long one.
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-0.5, 0, 0, 0], [-0.125] * 4]))


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize(("ratio", "cut"), [(1.5, 1.0), (0.5, -1.0), (1.1, None), (0.9, None)])
def test_the_gradient_is_cut_only_on_the_side_that_goes_too_far(advantage, ratio, cut):
    logprobs = torch.full((1, 1), math.log(ratio), requires_grad=True)
    output = Grpo().loss(logprobs, torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1).bool(), 1)
    output.loss.backward()
    expected = 0.0 if cut == advantage else -advantage * ratio
    assert logprobs.grad.item() == pytest.approx(expected)
    assert output.metrics["clip_fraction"].mean.item() == float(cut == advantage)


@pytest.mark.parametrize("garbage", [200.0, float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("where", ["logprobs", "old", "ref"])
def test_padding_never_reaches_loss_gradient_or_metrics(garbage, where):
    logprobs, old, ref, advantages, mask = random_step(2)
    objective = Grpo(kl_coefficient=0.1)
    clean = objective.loss(logprobs, old, advantages, mask, 6, ref_logprobs=ref)
    dirty = {"logprobs": logprobs.clone(), "old": old.clone(), "ref": ref.clone()}
    dirty[where][~mask] = garbage
    given_logprobs = dirty["logprobs"].requires_grad_()
    output = objective.loss(given_logprobs, dirty["old"], advantages, mask, 6, ref_logprobs=dirty["ref"])
    output.loss.backward()
    assert torch.equal(output.loss, clean.loss)
    assert given_logprobs.grad.isfinite().all()
    assert given_logprobs.grad[~mask].eq(0).all()
    for name, value in output.metrics.items():
        assert torch.equal(value.mean, clean.metrics[name].mean), name


def test_padding_is_cleared_before_anything_is_exponentiated():
    ratio = log_ratio(
        torch.tensor([[1.0, torch.inf, torch.nan]]), torch.zeros(1, 3), torch.tensor([[True, False, False]])
    )
    assert ratio.tolist() == [[1.0, 0.0, 0.0]]


def test_a_huge_ratio_on_a_real_token_stays_finite():
    logprobs = torch.zeros(1, 1, requires_grad=True)
    output = Grpo(kl_coefficient=0.1).loss(
        logprobs,
        torch.full((1, 1), -200.0),
        torch.tensor([-1.0]),
        ALL[:, :1],
        1,
        ref_logprobs=torch.full((1, 1), 300.0),
    )
    output.loss.backward()
    assert output.loss.isfinite()
    assert logprobs.grad.isfinite().all()


def test_a_group_without_signal_is_an_exact_zero_with_a_graph():
    logprobs, old, _, _, mask = random_step(3)
    logprobs.requires_grad_()
    advantages = Grpo().advantages(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)).flatten()
    loss = Grpo().loss(logprobs, old, advantages, mask, 6).loss
    loss.backward()
    assert loss.item() == 0
    assert logprobs.grad.eq(0).all()


def test_a_group_without_signal_still_feels_the_kl_penalty():
    logprobs, old, ref, _, mask = random_step(3)
    logprobs.requires_grad_()
    Grpo(kl_coefficient=0.1).loss(logprobs, old, torch.zeros(6), mask, 6, ref_logprobs=ref).loss.backward()
    expected = 0.1 * (1 - (ref - logprobs.detach()).exp()) / mask.sum(1, keepdim=True) / 6
    torch.testing.assert_close(logprobs.grad, torch.where(mask, expected, 0.0))


@pytest.mark.parametrize("total", [0, 4])
def test_all_responses_masked_is_a_zero_and_not_nan(total):
    logprobs = torch.randn(4, 3, requires_grad=True)
    output = Grpo().loss(logprobs, torch.zeros(4, 3), torch.ones(4), torch.zeros(4, 3).bool(), total)
    output.loss.backward()
    assert output.loss.item() == 0
    assert logprobs.grad.eq(0).all()
    assert all(value.mean.item() == 0 for value in output.metrics.values())


def test_masked_responses_leave_the_denominator_too():
    logprobs, old, _, advantages, mask = random_step(4, rows=4)
    mask[1:] = False  # three of four truncated, and left out
    objective = Grpo()
    four = objective.loss(logprobs, old, advantages, mask, objective.denominator(mask)).loss
    one = objective.loss(logprobs[:1], old[:1], advantages[:1], mask[:1], 1).loss
    assert count_responses(mask) == 1
    assert torch.equal(four, one)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.permutations(range(6)), st.lists(st.integers(0, 6), max_size=3), st.integers(0, 4))
def test_loss_gradient_and_metrics_do_not_depend_on_cut_order_or_padding(seed, order, cuts, padding):
    logprobs, old, ref, advantages, mask = random_step(seed)
    objective = Grpo(kl_coefficient=0.1)
    whole = logprobs.clone().requires_grad_()
    expected = objective.loss(whole, old, advantages, mask, objective.denominator(mask), ref_logprobs=ref)
    expected.loss.backward()
    leaf = logprobs.clone().requires_grad_()
    edges = [0, *sorted(cuts), 6]
    pieces = [order[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    total = sum(objective.denominator(mask[piece]) for piece in pieces)
    outputs = []
    for piece in pieces:
        padded = [torch.nn.functional.pad(tensor[piece], (0, padding)) for tensor in (leaf, old, ref, mask)]
        outputs.append(
            objective.loss(padded[0], padded[1], advantages[piece], padded[3], total, ref_logprobs=padded[2])
        )
        outputs[-1].loss.backward()
    torch.testing.assert_close(sum(output.loss for output in outputs), expected.loss, atol=1e-13, rtol=1e-12)
    torch.testing.assert_close(leaf.grad, whole.grad, atol=1e-13, rtol=1e-12)
    merged = merge_metrics(output.metrics for output in outputs)
    for name, value in expected.metrics.items():
        torch.testing.assert_close(merged[name].mean, value.mean)


def test_metrics_by_hand():
    logprobs = torch.tensor([[0.5, -0.1], [0.0, 9.0]]).log1p()  # ratios 1.5, 0.9, 1.0 and padding
    mask = torch.tensor([[True, True], [True, False]])
    ref = logprobs + torch.tensor([[math.log(2.0), 0.0], [0.0, 0.0]])
    output = Grpo(kl_coefficient=0.1).loss(
        logprobs.requires_grad_(), torch.zeros(2, 2), torch.ones(2), mask, 2, ref_logprobs=ref
    )
    means = {name: value.mean.item() for name, value in output.metrics.items()}
    assert means == pytest.approx(
        {
            "clip_fraction": 1 / 3,
            "log_ratio_gap": (math.log(1.5) - math.log(0.9)) / 3,
            "reference_kl": (2 - math.log(2) - 1) / 3,
        }
    )
    assert not any(value.total.requires_grad for value in output.metrics.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"kl_coefficient": float("nan")}, "kl_coefficient"),
        ({"std_epsilon": -1.0}, "std_epsilon"),
    ],
)
def test_settings_out_of_range_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Grpo(**arguments)


def test_a_kl_penalty_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="ref_logprobs"):
        Grpo(kl_coefficient=0.1).loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1), ALL[:, :1], 1)
