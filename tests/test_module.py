"""One training step against an independent reference: plain autograd on one row at a time."""

import math
import random
import warnings
from collections import Counter

import lightning.pytorch as pl
import pytest
import torch
from toy import LetterDomain, LetterSource, letter_problems
from transformers import AutoModelForCausalLM

from datamodules.elite import EliteDataModule
from datamodules.sources import Demonstration, DemonstrationSource
from elite_lightning.errors import UsageError
from elite_lightning.module import EliteModule
from elite_lightning.objectives import Grpo
from elite_lightning.optim import OptimizerSettings, build_optimizer, lr_factor
from elite_lightning.policy_module import VerificationSettings
from elite_lightning.rollouts import Group
from elite_lightning.terms import GroupTensors, policy_count, policy_term
from elite_lightning.types import Completion, FinishReason, Judgement, Problem, Reason, Sampling, Verdict

IN_PROCESS = VerificationSettings(workers=0)
GROUP = 4


class FixedEngine:
    """Always the same responses to a prompt, with log-probabilities of a policy that is not quite the present one."""

    def __init__(self, codec):
        self.codec = codec
        self.given = []

    def generate(self, prompts, n, sampling, seed):
        return [[self._completion(prompt, j) for j in range(n)] for prompt in prompts]

    def _completion(self, prompt, sample):
        draws = random.Random(f"{prompt} {sample}")
        text = "".join(draws.choice("abcd") for _ in range(draws.randint(1, 4)))
        ids = self.codec.encode_response(text)
        logprobs = tuple(-1.4 + draws.uniform(-0.5, 0.5) for _ in ids)
        reason = FinishReason.STOP
        if draws.random() < 0.2:
            ids, logprobs, reason = ids[:-1], logprobs[:-1], FinishReason.LENGTH
        completion = Completion(tuple(ids), logprobs, reason, text)
        self.given.append((tuple(prompt), completion))
        return completion


class WordDemonstrations(DemonstrationSource):
    def demonstration(self, index, seed):
        words = ["a", "bcd", "dd", "cabb"]
        return Demonstration(f"replay {index}:", words[index % 4], weight=1.0 + index % 3)


class Gradient(pl.Callback):
    """The gradient of the last step, by parameter."""

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.last = {name: p.grad.clone() for name, p in pl_module.policy.named_parameters()}


def module_of(tiny_policy, **settings):
    settings = {"mu": 0.3, "responses_per_problem": GROUP, "verification": IN_PROCESS, **settings}
    unclipped = OptimizerSettings(lr=1e-3, gradient_clip_norm=0)
    return EliteModule(**{"domain": LetterDomain(), "path": str(tiny_policy), "optimizer": unclipped, **settings})


def step_once(module, steps=1, engine=True, problems_per_step=4, replay_per_step=5, logger=False, train_problems=8):
    """Run optimizer steps; returns the last gradient, what was logged, and the engine."""
    module.configure_model()
    if engine:
        module.engine = FixedEngine(module.codec)
    data = EliteDataModule(
        LetterSource(train_problems),
        WordDemonstrations(),
        problems_per_step=problems_per_step,
        replay_per_step=replay_per_step,
        problems_per_rollout=3,
    )
    gradient = Gradient()
    quiet = {"logger": logger, "log_every_n_steps": 1, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(
        max_steps=steps,
        limit_val_batches=0,
        accelerator="cpu",
        callbacks=[gradient],
        use_distributed_sampler=False,
        enable_model_summary=False,
        **quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, datamodule=data)
    return gradient.last, {k: float(v) for k, v in trainer.logged_metrics.items()}, module.engine


def logprobs_of(model, prompt, response):
    """Log-probability of each response token: one plain forward pass in float64."""
    ids = torch.tensor([[*prompt, *response]])
    logits = model(input_ids=ids).logits[0].log_softmax(-1)
    return torch.stack([logits[len(prompt) - 1 + t, token] for t, token in enumerate(response)])


def reference_loss(policy, module, given, mu, replayed):
    """The mixed loss straight from the definitions, row by row."""
    domain = module.domain
    problems = {tuple(module.codec.encode_prompt(domain.prompt(p))): p for p in letter_problems("train", 64)}
    groups = {}
    for prompt, completion in given:
        groups.setdefault(prompt, []).append(completion)
    policy_loss = 0.0
    for prompt, completions in groups.items():
        rewards = [
            float(c.finish_reason is FinishReason.STOP and domain.verify(problems[prompt], c.text).correct)
            for c in completions
        ]
        mean = sum(rewards) / len(rewards)
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        for completion, reward in zip(completions, rewards, strict=True):
            advantage = (reward - mean) / (std + 1e-4)
            ratio = (logprobs_of(policy, prompt, completion.token_ids) - torch.tensor(completion.logprobs)).exp()
            objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            policy_loss = policy_loss - objective.mean() / len(given)
    items = [WordDemonstrations().demonstration(i, 0) for i in range(replayed)]
    replay_loss = 0.0
    for item in items:
        prompt, response = module.codec.encode_prompt(item.prompt), module.codec.encode_response(item.response)
        nll = -logprobs_of(policy, prompt, response).mean()
        replay_loss = replay_loss + item.weight * nll / sum(i.weight for i in items)
    return (1 - mu) * policy_loss + mu * replay_loss


def assert_equal(gradient, policy):
    for name, parameter in policy.named_parameters():
        torch.testing.assert_close(gradient[name].double(), parameter.grad, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("micro_batch_tokens", [40, 16384])
def test_a_step_computes_the_mixed_loss_and_its_gradient(tiny_policy, mu, micro_batch_tokens):
    module = module_of(tiny_policy, mu=mu, micro_batch_tokens=micro_batch_tokens)
    gradient, logged, engine = step_once(module)
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    loss = reference_loss(policy, module, engine.given if mu < 1 else [], mu, replayed=5)
    loss.backward()
    assert logged["train/loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert_equal(gradient, policy)
    assert bool(engine.given) == (mu < 1)  # supervised fine-tuning samples nothing


def test_the_reference_has_clipped_truncated_and_useless_rows(tiny_policy):
    """Else the comparison above would show little."""
    _, logged, engine = step_once(module_of(tiny_policy))
    assert len(engine.given) == 4 * GROUP
    assert logged["train/clip_fraction"] > 0.02
    assert 0 < logged["train/truncated"] < 0.5
    assert 0 < logged["train/groups_without_signal"] < 1


def test_how_a_step_is_cut_changes_nothing(tiny_policy):
    whole, _, _ = step_once(module_of(tiny_policy, micro_batch_tokens=10**6))
    cut, _, _ = step_once(module_of(tiny_policy, micro_batch_tokens=1))
    for name in whole:
        torch.testing.assert_close(whole[name], cut[name], rtol=1e-5, atol=1e-8)


def test_without_replay_items_drawn_mu_0_is_the_policy_term_to_the_last_bit(tiny_policy):
    without, _, _ = step_once(module_of(tiny_policy, mu=0.0), replay_per_step=0)
    ignored, _, _ = step_once(module_of(tiny_policy, mu=0.0), replay_per_step=5)
    assert all(torch.equal(without[name], ignored[name]) for name in without)


def test_metrics_of_a_step_are_those_of_its_responses(tiny_policy):
    _, logged, engine = step_once(module_of(tiny_policy))
    completions = [completion for _, completion in engine.given]
    logprobs = [logprob for completion in completions for logprob in completion.logprobs]
    truncated = sum(c.finish_reason is FinishReason.LENGTH for c in completions)
    assert logged["train/response_tokens"] == pytest.approx(sum(len(c.token_ids) for c in completions) / 16)
    assert logged["train/truncated"] == pytest.approx(truncated / 16)
    assert logged["train/entropy"] == pytest.approx(-sum(logprobs) / len(logprobs))
    assert logged["train/loss"] == pytest.approx(0.7 * logged["train/loss_policy"] + 0.3 * logged["train/loss_replay"])
    assert logged["train/verifier_failures"] == 0


def test_the_counts_of_a_step_are_those_of_its_responses(tiny_policy):
    module = module_of(tiny_policy, micro_batch_tokens=40)
    _, logged, engine = step_once(module)
    problems = {tuple(module.codec.encode_prompt(module.domain.prompt(p))): p for p in letter_problems("train", 8)}
    groups = {}
    for prompt, completion in engine.given:
        groups.setdefault(prompt, []).append(completion)
    scored = judged = calls = 0
    for prompt, completions in groups.items():
        ended = [c for c in completions if c.finish_reason is FinishReason.STOP]
        right = sum(LetterDomain().verify(problems[prompt], c.text).correct for c in ended)
        scored += GROUP * (0 < right < GROUP)
        judged, calls = judged + len(ended), calls + len({c.text for c in ended})
    assert 0 < scored < 16 > judged > calls  # else the comparison would show little
    assert logged["train/generations"] == 16
    assert logged["train/generated_tokens"] == sum(len(c.token_ids) for _, c in engine.given)
    assert logged["train/prompt_tokens"] == sum(map(len, groups))
    assert (logged["train/judged_responses"], logged["train/verifier_calls"]) == (judged, calls)
    assert logged["train/scored_responses"] == scored
    assert logged["train/replayed_responses"] == 5
    assert logged["train/replayed_tokens"] == sum(map(len, ["a", "bcd", "dd", "cabb", "a"])) + 5


class Crashing(LetterDomain):
    """Fails, by its own fault, on words with a b."""

    def verify(self, problem: Problem, solution: str) -> Verdict:
        if "b" in solution:
            raise RuntimeError("the verifier is broken")
        return super().verify(problem, solution)


def test_what_the_verifier_cannot_judge_leaves_the_step(tiny_policy):
    module = module_of(tiny_policy, mu=0.0, domain=Crashing())
    gradient, logged, engine = step_once(module, replay_per_step=0)
    failed = [c for _, c in engine.given if c.finish_reason is FinishReason.STOP and "b" in c.text]
    assert 0 < len(failed) < len(engine.given)
    assert logged["train/verifier_failures"] == pytest.approx(len(failed) / len(engine.given))
    # Neither in the group's statistics nor in the denominator: as if it had never been sampled.
    policy = AutoModelForCausalLM.from_pretrained(tiny_policy).double()
    judged = [(prompt, c) for prompt, c in engine.given if c not in failed]
    assert min(Counter(prompt for prompt, _ in judged).values()) >= 2
    reference_loss(policy, module, judged, 0.0, replayed=1).backward()
    assert_equal(gradient, policy)


def test_a_penalty_scores_every_judged_response_and_no_other(tiny_policy):
    """Without a penalty, responses without advantage need no pass; what was not judged never does."""
    completion = Completion((5, 0), (-1.0, -1.0), FinishReason.STOP, "a")
    verdicts = [Verdict(True, 1.0), Verdict(False, 0.0, Reason.VERIFIER_FAILURE), Verdict(True, 1.0)]
    judgements = tuple(Judgement("a", verdict) for verdict in verdicts)
    group = Group(0, letter_problems("train", 1)[0], (7,), (completion,) * 3, judgements)
    advantages, two = torch.zeros(1, 3), torch.tensor(2.0)
    penalised = policy_term(Grpo(kl_coefficient=1.0), [group], advantages, two, 1.0, reference=lambda batch: None)
    assert len(penalised.rows) == 2
    assert len(policy_term(Grpo(), [group], advantages, two, 1.0).rows) == 0
    assert policy_count(Grpo(), GroupTensors([group])) == 2


def test_a_strictly_on_policy_step_has_ratio_1(tiny_policy):
    _, logged, _ = step_once(module_of(tiny_policy, sampling=Sampling(max_new_tokens=6)), engine=False)
    assert logged["train/log_ratio_gap"] < 1e-5
    assert logged["train/clip_fraction"] == 0


def test_the_penalty_compares_with_the_policy_before_training(tiny_policy):
    settings = {"mu": 0.0, "objective": Grpo(kl_coefficient=0.1), "sampling": Sampling(max_new_tokens=6)}
    _, first, _ = step_once(module_of(tiny_policy, **settings), steps=1, engine=False, replay_per_step=0)
    module = module_of(tiny_policy, **settings)
    _, third, _ = step_once(module, steps=3, engine=False, replay_per_step=0)
    assert first["train/reference_kl"] == pytest.approx(0, abs=1e-9)
    assert third["train/reference_kl"] > 1e-6
    assert not any("reference" in name for name in module.state_dict())


def test_every_step_and_every_chunk_draws_anew(tiny_policy):
    module = module_of(tiny_policy, sampling=Sampling(max_new_tokens=6))
    module.configure_model()
    engine, seeds = module.engine, []

    class Listening:
        def generate(self, prompts, n, sampling, seed):
            seeds.append(seed)
            return engine.generate(prompts, n, sampling, seed)

    module.engine = Listening()
    step_once(module, steps=3, engine=False)
    assert module.trained_steps == 3
    assert len(seeds) == len(set(seeds)) == 3 * 2  # 4 problems in chunks of at most 3


def test_too_many_truncated_responses_are_worth_one_warning(tiny_policy):
    module = module_of(tiny_policy, sampling=Sampling(max_new_tokens=1))
    with pytest.warns(UserWarning, match="max_new_tokens=1"):
        module._warn_of_truncation(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module._warn_of_truncation(0.5)


def test_a_gradient_that_is_not_finite_changes_nothing(tiny_policy):
    module = module_of(tiny_policy, mu=1.0)
    module.configure_model()
    with torch.no_grad():
        next(module.policy.parameters())[7] = math.nan
    before = {name: value.clone() for name, value in module.policy.state_dict().items()}
    with pytest.raises(FloatingPointError, match="step 0"):
        step_once(module, problems_per_step=0)
    after = module.policy.state_dict()
    assert all(torch.equal(before[name].nan_to_num(), after[name].nan_to_num()) for name in before)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mu": 1.1}, "mu"),
        ({"responses_per_problem": 1}, "responses_per_problem"),
        ({"sampling": Sampling(temperature=0.0)}, "temperature"),
        ({"path": None}, "model.factory"),
    ],
)
def test_settings_out_of_range_are_named(tiny_policy, settings, words):
    with pytest.raises(ValueError, match=words):
        module_of(tiny_policy, **settings)


def test_batches_must_fit_mu(tiny_policy):
    with pytest.raises(UsageError, match="problems_per_step"):
        module_of(tiny_policy, mu=0.5).check_batches(0, 4)
    with pytest.raises(UsageError, match="replay_per_step"):
        module_of(tiny_policy, mu=0.5).check_batches(4, 0)
    with pytest.warns(UserWarning, match="ignores"):
        module_of(tiny_policy, mu=0.0).check_batches(4, 4)


def test_the_schedule_warms_up_and_ends_where_it_says():
    settings = OptimizerSettings(warmup_steps=4, schedule="cosine", final_lr_fraction=0.1)
    factor = lr_factor(settings, max_steps=24)
    assert [factor(i) for i in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factor(14) == pytest.approx(0.55)
    assert factor(24) == pytest.approx(0.1)
    assert [lr_factor(OptimizerSettings(), -1)(i) for i in (0, 1000)] == [1.0, 1.0]


def test_the_logged_learning_rate_is_the_one_of_the_step(tiny_policy):
    for steps, expected in ((1, 0.25e-3), (3, 0.75e-3)):
        module = module_of(tiny_policy, mu=1.0, optimizer=OptimizerSettings(lr=1e-3, warmup_steps=3))
        _, logged, _ = step_once(module, steps=steps, problems_per_step=0)
        assert logged["train/learning_rate"] == pytest.approx(expected)


def test_weight_decay_is_for_matrices_only(tiny_policy):
    model = AutoModelForCausalLM.from_pretrained(tiny_policy)
    optimizer, _ = build_optimizer(model, OptimizerSettings(weight_decay=0.1), max_steps=1)
    decayed, spared = optimizer.param_groups
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert all(p.ndim < 2 for p in spared["params"])
    assert spared["weight_decay"] == 0.0
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_a_cosine_without_an_end_is_refused(tiny_policy):
    with pytest.raises(ValueError, match="max_steps"):
        build_optimizer(torch.nn.Linear(2, 2), OptimizerSettings(schedule="cosine"), max_steps=-1)
