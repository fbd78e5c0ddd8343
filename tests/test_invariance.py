"""What must not change a step: its order, its padding, its cut, its ranks; and what mu is at its two ends.

Every policy term beside every replay term, in float64, on leaves that stand for the model's log-probabilities.
"""

import itertools
import random

import pytest
import torch
from test_module import WordDemonstrations, module_of, step_once
from transformers import AutoModelForCausalLM

from elite_lightning.objectives import (
    Darling,
    DphForwardKl,
    DphJensenShannon,
    Grpo,
    MaxRl,
    PassAtK,
    Pkpo,
    ReplayNll,
    SetPo,
    UnlikelinessReward,
    mix,
)
from elite_lightning.optim import OptimizerSettings

POLICIES = {
    "GRPO": Grpo,
    "GRPO without std": lambda: Grpo(normalise_by_std=False),
    "GRPO by token, clip higher": lambda: Grpo(aggregation="token", clip_high=0.28),
    "GRPO with KL": lambda: Grpo(kl_coefficient=0.1),
    "GSPO": lambda: Grpo(ratio="sequence", clip_low=3e-4, clip_high=4e-4),
    "CISPO": lambda: Grpo(surrogate="cispo", aggregation="token"),
    "MaxRL": MaxRl,
    "SetPO": SetPo,
    "PKPO": lambda: Pkpo(k=2),
    "pass@k": lambda: PassAtK(k=2),
    "DARLING": Darling,
    "unlikeliness": UnlikelinessReward,
}
REPLAYS = {
    "NLL": ReplayNll(),
    "NLL by token": ReplayNll("token"),
    "DPH-F": DphForwardKl(),
    "DPH-F, log": DphForwardKl("log", "response"),
    "DPH-JS": DphJensenShannon(),
}
PROBLEMS, GROUP, STORED = 3, 4, 5
MU = 0.25


class Step:
    """The numbers of one step: groups, their rows and the stored rows, ragged."""

    def __init__(self, objective):
        draws = random.Random(5)
        self.rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0]]).double()
        strategies = torch.tensor([[0, -1, -1, 1], [0, 0, 1, 2], [-1, -1, 0, -1]])
        lengths = [draws.randint(1, 5) for _ in range(PROBLEMS * GROUP)]
        self.rows = [[(-draws.random(), -draws.random(), -draws.random()) for _ in range(n)] for n in lengths]
        self.stored = [[(-draws.random(), -draws.random()) for _ in range(draws.randint(1, 6))] for _ in range(STORED)]
        self.weights = [1.0, 2.0, 0.5, 1.0, 1.0]
        means = torch.tensor([sum(old for _, old, _ in row) / len(row) for row in self.rows]).double()
        self.advantages = objective.advantages(
            self.rewards,
            torch.ones(PROBLEMS, GROUP, dtype=torch.bool),
            strategies=strategies,
            mean_logprobs=means.view(PROBLEMS, GROUP),
        ).flatten()


def pad(rows, place, side, extra):
    """`[rows, width]` of one of the values of each token, its mask, and where each row begins."""
    width = max(map(len, rows)) + extra
    values = torch.full((len(rows), width), float("nan"), dtype=torch.float64)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        start = width - len(row) if side == "left" else 0
        values[i, start : start + len(row)] = torch.tensor([token[place] for token in row]).double()
        mask[i, start : start + len(row)] = True
    return values, mask


def loss_and_gradients(objective, replay, step, order, cuts, side, extra):
    """The mixed loss of a step, and the gradient at every token, by row of the original order.

    Args:
        order: Permutations of policy rows and stored rows.
        cuts: Number of micro-batches, or rank shares: each is a call with the whole step's denominator.
    """
    row_order, stored_order = order
    policy_parts = [row_order[i::cuts] for i in range(cuts)]
    stored_parts = [stored_order[i::cuts] for i in range(cuts)]
    denominator = sum(
        objective.denominator(pad([step.rows[i] for i in part], 0, side, extra)[1]) for part in policy_parts if part
    )
    weights = torch.tensor(step.weights)
    total = sum(
        replay.denominator(pad([step.stored[i] for i in part], 0, side, extra)[1], weights[part])
        for part in stored_parts
        if part
    )
    gradients, loss = {}, 0.0
    for policy_part, stored_part in itertools.zip_longest(policy_parts, stored_parts):
        rows, stored = [step.rows[i] for i in policy_part], [step.stored[i] for i in stored_part]
        logprobs, mask = pad(rows, 0, side, extra)
        replayed, replay_mask = pad(stored, 0, side, extra)
        logprobs.requires_grad_(), replayed.requires_grad_()
        policy_share = objective.loss(
            logprobs,
            pad(rows, 1, side, extra)[0],
            step.advantages[policy_part],
            mask,
            denominator,
            ref_logprobs=pad(rows, 2, side, extra)[0],
        ).loss
        replay_share = replay.loss(
            replayed, replay_mask, weights[stored_part], total, base_logprobs=pad(stored, 1, side, extra)[0]
        ).loss
        share = mix(policy_share, replay_share, MU)
        share.backward()
        loss += share.item()
        for index, i in enumerate(policy_part):
            gradients["policy", i] = logprobs.grad[index][mask[index]]
        for index, i in enumerate(stored_part):
            gradients["replay", i] = replayed.grad[index][replay_mask[index]]
        assert not logprobs.grad[~mask].any()
        assert not replayed.grad[~replay_mask].any()
    return loss, gradients


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("replayed", REPLAYS)
def test_order_padding_micro_batches_and_ranks_change_nothing(policy, replayed):
    objective, replay = POLICIES[policy](), REPLAYS[replayed]
    step = Step(objective)
    rows, stored = list(range(PROBLEMS * GROUP)), list(range(STORED))
    plain = loss_and_gradients(objective, replay, step, (rows, stored), 1, "right", 0)
    assert any(gradient.any() for (term, _), gradient in plain[1].items() if term == "policy")
    assert any(gradient.any() for (term, _), gradient in plain[1].items() if term == "replay")
    draws = random.Random(1)
    shuffled = (draws.sample(rows, len(rows)), draws.sample(stored, len(stored)))
    for order, cuts, side, extra in (
        (shuffled, 1, "right", 0),
        ((rows, stored), 1, "left", 0),
        ((rows, stored), 1, "right", 7),
        ((rows, stored), 2, "right", 0),
        (shuffled, 5, "left", 3),
    ):
        loss, gradients = loss_and_gradients(objective, replay, step, order, cuts, side, extra)
        assert loss == pytest.approx(plain[0], abs=1e-14)
        assert gradients.keys() == plain[1].keys()
        for key, gradient in gradients.items():
            torch.testing.assert_close(gradient, plain[1][key], rtol=1e-12, atol=1e-15)


def weights_after(module, **settings):
    step_once(module, **settings)
    return {name: parameter.detach().clone() for name, parameter in module.policy.named_parameters()}


def test_mu_0_is_grpo_to_the_last_bit_over_a_whole_training(tiny_policy):
    alone = weights_after(module_of(tiny_policy, mu=0.0), steps=4, engine=False, replay_per_step=0)
    beside = weights_after(module_of(tiny_policy, mu=0.0), steps=4, engine=False, replay_per_step=5)
    unscaled = weights_after(
        module_of(tiny_policy, mu=0.0, policy_weight=1.0), steps=4, engine=False, replay_per_step=0
    )
    before = AutoModelForCausalLM.from_pretrained(tiny_policy).state_dict()
    assert any(not torch.equal(alone[name], before[name]) for name in alone)
    for other in (beside, unscaled):
        assert all(torch.equal(alone[name], other[name]) for name in alone)


def test_mu_1_is_supervised_fine_tuning(tiny_policy):
    """Against transformers' own loss and torch's own optimizer, over several steps."""
    steps, items, rate = 4, 5, 1e-3
    settings = OptimizerSettings(lr=rate, gradient_clip_norm=0, weight_decay=0.0, warmup_steps=0)
    module = module_of(tiny_policy, mu=1.0, optimizer=settings)
    trained = weights_after(module, steps=steps, problems_per_step=0, replay_per_step=items)
    assert not module.engine.given  # nothing is sampled
    plain = AutoModelForCausalLM.from_pretrained(tiny_policy).eval()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=rate, betas=settings.betas, weight_decay=0.0)
    for step in range(steps):
        batch = [WordDemonstrations().demonstration(i, 0) for i in range(step * items, (step + 1) * items)]
        for item in batch:
            prompt, response = module.codec.encode_prompt(item.prompt), module.codec.encode_response(item.response)
            ids = torch.tensor([[*prompt, *response]])
            labels = torch.tensor([[-100] * len(prompt) + list(response)])
            share = item.weight / sum(i.weight for i in batch)
            (share * plain(input_ids=ids, labels=labels).loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(trained[name], parameter.detach(), rtol=1e-4, atol=2e-6, msg=name)
