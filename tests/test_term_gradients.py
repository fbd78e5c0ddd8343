"""The gradient of each term apart, against plain autograd on one row at a time."""

import json

import pytest
import torch
from test_module import module_of, reference_loss, step_once
from torch import nn
from transformers import AutoModelForCausalLM

from elite_lightning.loggers import JsonlLogger
from elite_lightning.term_gradients import TermGradients


def flat_gradient(policy, loss):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.parameters()))])


@pytest.mark.parametrize("micro_batch_tokens", [40, 16384])
def test_each_weighted_term_has_its_own_norm(tiny_policy, tmp_path, micro_batch_tokens):
    module = module_of(tiny_policy, mu=0.3, gradient_norms_every=1, micro_batch_tokens=micro_batch_tokens)
    path = tmp_path / "metrics.jsonl"
    _, logged, engine = step_once(module, logger=JsonlLogger(path))
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    sampled = 0.7 * flat_gradient(policy, reference_loss(policy, module, engine.given, 0.0, replayed=5))
    replayed = 0.3 * flat_gradient(policy, reference_loss(policy, module, engine.given, 1.0, replayed=5))
    (row,) = [r for r in map(json.loads, path.read_text().splitlines()) if "train/gradient_cosine" in r]
    assert row["train/gradient_norm_policy"] == pytest.approx(sampled.norm().item(), rel=1e-4)
    assert row["train/gradient_norm_replay"] == pytest.approx(replayed.norm().item(), rel=1e-4)
    cosine = torch.cosine_similarity(sampled, replayed, dim=0).item()
    assert row["train/gradient_cosine"] == pytest.approx(cosine, abs=1e-4)
    # Else the comparison would not tell one from another.
    assert abs(cosine) > 0.01
    assert (sampled + replayed).norm().item() == pytest.approx(logged["train/gradient_norm"], rel=1e-4)
    assert len({round(float(x.norm()), 4) for x in (sampled, replayed, sampled + replayed)}) == 3


def test_measuring_changes_no_bit_of_the_update(tiny_policy):
    settings = {"mu": 0.3, "micro_batch_tokens": 40}
    without, _, _ = step_once(module_of(tiny_policy, **settings), steps=3)
    measured, _, _ = step_once(module_of(tiny_policy, gradient_norms_every=1, **settings), steps=3)
    assert all(torch.equal(without[name], measured[name]) for name in without)


@pytest.mark.parametrize(("mu", "term"), [(0.0, "policy"), (1.0, "replay")])
def test_a_term_alone_has_the_whole_gradient(tiny_policy, tmp_path, mu, term):
    path = tmp_path / "metrics.jsonl"
    module = module_of(tiny_policy, mu=mu, gradient_norms_every=2)
    step_once(module, steps=3, problems_per_step=4 * (mu < 1), logger=JsonlLogger(path))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    norms = {row["step"]: row["train/gradient_norm"] for row in rows if "train/gradient_norm" in row}
    apart = {row["step"]: row for row in rows if any("gradient_norm_" in name for name in row)}
    assert apart.keys() == {0, 2}
    for step, row in apart.items():
        assert row == {"step": step, f"train/gradient_norm_{term}": pytest.approx(norms[step], rel=1e-5)}


def test_a_parameter_that_no_row_reaches_counts_as_nothing():
    reached, other = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([1.0]))
    gradients = TermGradients([reached, other])
    (2 * reached).sum().backward()
    gradients.note("policy", is_last=False)
    (3 * other - reached).sum().backward()
    gradients.note("replay", is_last=True)
    assert gradients.metrics == pytest.approx(
        {"gradient_norm_policy": 2.0, "gradient_norm_replay": 10**0.5, "gradient_cosine": -1 / 10**0.5}
    )
