"""Activations that are made again: the same gradients, layers that run twice, and models that cannot."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from test_module import module_of, step_once
from test_rollout import build

from elite_lightning.policy import checkpoint_layers


def counted(model, passes):
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda module, args: passes.append(torch.is_grad_enabled()))


@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_are_the_same_and_every_layer_runs_twice(tiny_policy, steps):
    gradients, passes = {}, {}
    for checkpointing in (False, True):
        module, noted = module_of(tiny_policy, gradient_checkpointing=checkpointing), []
        module.configure_model()
        counted(module.policy, noted)
        gradients[checkpointing], _, _ = step_once(module, steps=steps)
        passes[checkpointing] = sum(noted)
    assert passes[True] == 2 * passes[False] > 0
    for name, gradient in gradients[False].items():
        assert torch.equal(gradient, gradients[True][name])


def test_nothing_inside_of_a_layer_is_in_training_mode():
    model = build("llama", attention_dropout=0.5)
    checkpoint_layers(model)
    ids = torch.tensor([[1, 5, 9, 7]])
    assert torch.equal(model(input_ids=ids, use_cache=False).logits, model(input_ids=ids, use_cache=False).logits)
    assert not any(module.training for layer in model.model.layers for module in layer.children())


def test_adapters_get_their_gradients():
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        model = get_peft_model(build("llama"), config).eval()
        if checkpointing:
            checkpoint_layers(model)
        model(input_ids=torch.tensor([[1, 5, 9, 7]]), use_cache=False).logits.square().sum().backward()
        gradients.append([weight.grad for name, weight in model.named_parameters() if "lora" in name])
    assert all(torch.equal(one, other) and one.abs().sum() > 0 for one, other in zip(*gradients, strict=True))


def test_a_model_without_such_layers_is_named(monkeypatch):
    model = build("llama")
    monkeypatch.setattr(type(model), "supports_gradient_checkpointing", False)
    with pytest.raises(ValueError, match="LlamaForCausalLM cannot make its activations again"):
        checkpoint_layers(model)
