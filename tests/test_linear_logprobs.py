"""Log-probabilities through a plain linear head against autograd's own log-softmax."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_rollout import build
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from elite_lightning.batching import TokenRow, collate
from elite_lightning.linear_logprobs import is_in_one_precision, is_plain_linear, linear_logprobs
from elite_lightning.logprobs import token_logprobs

TOKENS, WIDTH, VOCABULARY = 23, 7, 31


def case(dtype=torch.float64, bias=True):
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype)
    hidden = torch.randn(TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    targets = torch.randint(VOCABULARY, (TOKENS,))
    return hidden, head, targets, torch.randn(TOKENS, dtype=torch.promote_types(dtype, torch.float32))


def reference(hidden, head, targets, temperature):
    return (head(hidden) / temperature).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)


def gradients(logprobs, weights, *tensors):
    return torch.autograd.grad((logprobs * weights).sum(), tensors, retain_graph=True)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 5.0])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 5, 22, 23, 100])
def test_values_and_gradients_are_those_of_log_softmax(chunk, bias, temperature):
    hidden, head, targets, weights = case(bias=bias)
    tensors = [hidden, *head.parameters()]
    expected = reference(hidden, head, targets, temperature)
    got = linear_logprobs(hidden, head, targets, temperature, chunk)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    first, wanted = gradients(got, weights, *tensors), gradients(expected, weights, *tensors)
    again = gradients(got, weights, *tensors)  # of the same graph, whose buffer the first pass has used up
    for mine, twice, theirs in zip(first, again, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(twice, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("chunk", [5, 100])
def test_huge_and_impossible_logits(chunk):
    hidden, head, targets, weights = case()
    with torch.no_grad():
        head.weight.mul_(1e3)
        head.bias[3] = -torch.inf
    targets[targets == 3] = 4
    expected = reference(hidden, head, targets, 1.0)
    got = linear_logprobs(hidden, head, targets, 1.0, chunk)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-9)
    tensors = (hidden, head.weight)
    for mine, theirs in zip(gradients(got, weights, *tensors), gradients(expected, weights, *tensors), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("chunk", [5, 100])
def test_half_precision_is_scored_in_float32(chunk):
    hidden, head, targets, weights = case(torch.bfloat16)
    got = linear_logprobs(hidden, head, targets, 1.0, chunk)
    expected = (head(hidden).float()).log_softmax(-1).gather(-1, targets[:, None]).squeeze(-1)
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    mine, theirs = gradients(got, weights, hidden, head.weight), gradients(expected, weights, hidden, head.weight)
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype is torch.bfloat16
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("chunk", [5, 100])
def test_what_is_frozen_gets_no_gradient_and_nothing_is_kept_without_one(chunk):
    hidden, head, targets, _ = case()
    head.requires_grad_(False)
    linear_logprobs(hidden, head, targets, 1.0, chunk).sum().backward()
    assert head.weight.grad is None
    assert hidden.grad is not None
    with torch.no_grad():
        assert linear_logprobs(hidden, head, targets, 1.0, chunk).grad_fn is None


def test_no_tokens():
    hidden, head, targets, _ = case()
    got = linear_logprobs(hidden[:0], head, targets[:0], 1.0, 5)
    got.sum().backward()
    assert got.shape == (0,)
    assert head.weight.grad.abs().sum() == 0


def test_other_heads_are_not_plain():
    head = case(torch.float32)[1]
    assert is_plain_linear(head)
    adapted = get_peft_model(nn.Sequential(head), LoraConfig(r=2, target_modules=["0"]))
    assert not is_plain_linear(adapted.base_model.model[0])
    head.forward = lambda given: 2 * given
    assert not is_plain_linear(head)
    assert not is_plain_linear(nn.Identity())


def test_mixed_precision_is_left_to_the_head_itself():
    hidden, head, _, _ = case(torch.float32)
    assert is_in_one_precision(head, hidden)
    assert not is_in_one_precision(head, hidden.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_in_one_precision(head, hidden)


@pytest.mark.parametrize("chunk_tokens", [None, 3])
def test_a_models_plain_head_is_scored_in_one_buffer(chunk_tokens):
    """Whole logits are never put through a log-softmax, also inside of a model, where the head's place is taken."""
    model, names = build("llama"), []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    for with_entropy in (True, False):
        names.clear()
        batch = collate([TokenRow([5, 6, 7], [8, 9, 10, 2]), TokenRow([3], [11, 2])])
        with Names():
            token_logprobs(model, batch, 0.7, chunk_tokens, with_entropy=with_entropy).logprobs.sum().backward()
        assert ("aten::_log_softmax" in names) == with_entropy
