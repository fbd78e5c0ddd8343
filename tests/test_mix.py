"""The mixed loss: its ends to the last bit, and the whole way from weights to loss in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from elite_lightning.batching import TokenRow, collate, micro_batches
from elite_lightning.logprobs import response_logprobs
from elite_lightning.objectives import Grpo, check_mu, length_normalised_nll, mix

finite = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(deadline=None)
@given(finite, finite)
def test_at_its_ends_it_is_one_term_to_the_last_bit(policy, replay):
    for mu, expected in ((0.0, (policy, 1.0, 0.0)), (1.0, (replay, 0.0, 1.0))):
        terms = [torch.tensor(value, requires_grad=True) for value in (policy, replay)]
        loss = mix(*terms, mu)
        loss.backward()
        assert (loss.item(), terms[0].grad.item(), terms[1].grad.item()) == expected


def test_between_it_weighs_both():
    assert mix(torch.tensor(3.0), torch.tensor(5.0), 0.25).item() == 3.5


@pytest.mark.parametrize("mu", [-0.01, 1.01, float("nan"), float("inf")])
def test_a_mu_that_is_no_share_is_refused_by_name(mu):
    for call in (lambda: check_mu(mu), lambda: mix(torch.zeros(()), torch.zeros(()), mu)):
        with pytest.raises(ValueError, match=rf"mu must lie in \[0, 1\], got {mu}"):
            call()


ON_POLICY = [TokenRow([3, 4], [5, 6, 1]), TokenRow([3, 4], [7, 1]), TokenRow([8], [9, 10, 11, 1]), TokenRow([8], [1])]
ELITES = [TokenRow([3, 4], [9, 1]), TokenRow([8], [5, 5, 5, 1]), TokenRow([8, 9, 10], [2, 1])]
ADVANTAGES = torch.tensor([1.3, -0.7, 0.4, -0.9], dtype=torch.float64)
OBJECTIVE = Grpo(kl_coefficient=0.1)


@pytest.fixture(scope="module")
def policy():
    """A tiny float64 GPT-2 (its norms, unlike Llama's, keep float64)."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "gpt2", vocab_size=13, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=1
    )
    model = AutoModelForCausalLM.from_config(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def stored(seed):
    """Log-probabilities of another policy for each on-policy response, ragged."""
    generator = torch.Generator().manual_seed(seed)
    return [
        -2.5 + 0.3 * torch.randn(len(row.response_ids), generator=generator, dtype=torch.float64) for row in ON_POLICY
    ]


OLD, REFERENCE = stored(1), stored(2)


def mixed_loss(model, mu, policy_budget=10_000, replay_budget=10_000, chunk_tokens=None):
    """The training step's loss as the sum of its micro-batches' shares."""
    policy_shares, replay_shares = [], []
    for indices in micro_batches(ON_POLICY, policy_budget):
        batch = collate([ON_POLICY[i] for i in indices], pad_id=1)
        old, ref = (
            torch.nn.utils.rnn.pad_sequence([table[i] for i in indices], batch_first=True, padding_value=math.inf)
            for table in (OLD, REFERENCE)
        )
        logprobs = response_logprobs(model, batch, chunk_tokens=chunk_tokens)
        output = OBJECTIVE.loss(logprobs, old, ADVANTAGES[indices], batch.response_mask, 4.0, ref_logprobs=ref)
        policy_shares.append(output.loss)
    for indices in micro_batches(ELITES, replay_budget):
        batch = collate([ELITES[i] for i in indices], pad_id=1)
        replay_shares.append(length_normalised_nll(response_logprobs(model, batch), batch.response_mask, 3.0))
    return mix(sum(policy_shares), sum(replay_shares), mu)


def reference_mixed_loss(model, mu):
    """The same from whole logits of single rows, with plain Python sums."""

    def scores(row):
        logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0].log_softmax(-1)
        return [logits[len(row.prompt_ids) - 1 + t, token].item() for t, token in enumerate(row.response_ids)]

    policy_means = []
    for i, row in enumerate(ON_POLICY):
        tokens = []
        for logprob, old, ref in zip(scores(row), OLD[i].tolist(), REFERENCE[i].tolist(), strict=True):
            rho, advantage = math.exp(logprob - old), ADVANTAGES[i].item()
            surrogate = min(rho * advantage, min(max(rho, 0.8), 1.2) * advantage)
            tokens.append(-surrogate + 0.1 * (math.exp(ref - logprob) - (ref - logprob) - 1))
        policy_means.append(math.fsum(tokens) / len(tokens))
    replay_means = [-math.fsum(scores(row)) / len(row.response_ids) for row in ELITES]
    return (1 - mu) * math.fsum(policy_means) / 4 + mu * math.fsum(replay_means) / 3


@pytest.mark.parametrize("mu", [0.0, 0.05, 1.0])
def test_the_loss_equals_an_independent_reference(policy, mu):
    assert mixed_loss(policy, mu).item() == pytest.approx(reference_mixed_loss(policy, mu), abs=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0])
def test_the_gradient_equals_finite_differences(policy, mu):
    parameters = list(policy.parameters())
    gradient = torch.autograd.grad(mixed_loss(policy, mu, 8, 8, 2), parameters)
    step = 1e-5
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters]
        values = []
        for sign in (1, -1, 2, -2):
            with torch.no_grad():
                torch._foreach_add_(parameters, direction, alpha=sign * step)
                values.append(mixed_loss(policy, mu).item())
                torch._foreach_add_(parameters, direction, alpha=-sign * step)
        # The five-point rule: its own error is of order step^4.
        numeric = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * step)
        analytic = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True)).item()
        assert analytic == pytest.approx(numeric, abs=1e-8, rel=1e-9)


@pytest.mark.parametrize("budgets", [(1, 1), (8, 5), (12, 12), (1, 10_000)])
def test_loss_and_gradient_do_not_depend_on_micro_batches(policy, budgets):
    parameters = list(policy.parameters())
    whole, cut = mixed_loss(policy, 0.05), mixed_loss(policy, 0.05, *budgets, chunk_tokens=2)
    torch.testing.assert_close(cut, whole, atol=1e-13, rtol=1e-13)
    for one, other in zip(torch.autograd.grad(cut, parameters), torch.autograd.grad(whole, parameters), strict=True):
        torch.testing.assert_close(one, other, atol=1e-13, rtol=1e-11)
