"""DPH-F and DPH-JS: by hand, by enumeration, by finite differences, and through a real run."""

import json
import math
import sqlite3
from collections import defaultdict

import pytest
import torch
import yaml
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from test_replay_loss import padded
from test_resume import training_rows
from toy import LetterDomain, LetterSource, letter_problems

from datamodules.elite import EliteDataModule
from elite_lightning.archive import EliteArchive
from elite_lightning.base_logprobs import read_base_logprobs, score_rows, write_base_logprobs
from elite_lightning.batching import TokenRow
from elite_lightning.errors import UsageError
from elite_lightning.logprobs import response_logprobs
from elite_lightning.objectives import DphForwardKl, DphJensenShannon, ReplayNll, ReplayObjective
from elite_lightning.policy import TokenCodec, load_model, load_tokenizer

# The definitions, in plain floats, from the generator f(u).
PLAIN = {
    "k3": (DphForwardKl(), lambda u: u - 1 - math.log(u)),
    "log": (DphForwardKl("log"), lambda u: -math.log(u)),
    "released JS": (DphJensenShannon(), lambda u: u * math.log(u) - (u + 1) * math.log((u + 1) / 2)),
    "paper's JS": (DphJensenShannon(halved=True), lambda u: (u * math.log(u) - (u + 1) * math.log((u + 1) / 2)) / 2),
}
logs = st.floats(-6.0, 0.0)
rows = st.lists(st.lists(st.tuples(logs, logs), min_size=1, max_size=5), min_size=1, max_size=4)


def share(objective, pairs, weights=None, extra=0):
    """Loss and gradient of rows of (policy, base) log-probabilities; one micro-batch is the whole step."""
    logprobs, mask = padded([[new for new, _ in row] for row in pairs], extra, garbage=float("inf"))
    base, _ = padded([[old for _, old in row] for row in pairs], extra, garbage=float("-inf"))
    weights = torch.ones(len(pairs), dtype=torch.float64) if weights is None else weights
    logprobs.requires_grad_()
    total = objective.denominator(mask, weights)
    output = objective.loss(logprobs, mask, weights, total, base_logprobs=base)
    output.loss.backward()
    return output, logprobs.grad, mask


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=40, deadline=None)
@given(rows, st.integers(0, 2))
def test_it_is_the_mean_of_f_over_all_tokens_and_padding_does_not_matter(name, pairs, extra):
    objective, f = PLAIN[name]
    output, gradient, mask = share(objective, pairs, extra=extra)
    tokens = [f(math.exp(new - old)) for row in pairs for new, old in row]
    assert output.loss.item() == pytest.approx(sum(tokens) / len(tokens), rel=1e-10, abs=1e-10)
    assert not gradient[~mask].any()
    log_ratios = [new - old for row in pairs for new, old in row]
    assert output.metrics["replay_log_ratio"].mean.item() == pytest.approx(sum(log_ratios) / len(tokens), abs=1e-10)


@pytest.mark.parametrize("name", PLAIN)
def test_the_gradient_agrees_with_finite_differences(name):
    objective, f = PLAIN[name]
    pairs = [[(-0.5, -1.5), (-2.0, -0.25)], [(-1.0, -1.0), (-3.0, -0.1), (-0.1, -4.0)]]
    _, gradient, mask = share(objective, pairs)
    step = 1e-6
    flat = [
        (f(math.exp(new - old + step)) - f(math.exp(new - old - step))) / (2 * step) / 5
        for row in pairs
        for new, old in row
    ]
    assert gradient[mask].tolist() == pytest.approx(flat, rel=1e-8, abs=1e-10)


def test_k3_pulls_towards_the_base_from_both_sides_and_rests_there():
    _, gradient, _ = share(DphForwardKl(), [[(-1.0, -1.0), (-2.0, -1.0), (-1.0, -2.0)]])
    at_base, below, above = (3 * gradient[0]).tolist()
    assert at_base == 0.0
    assert below == pytest.approx(math.exp(-1) - 1, abs=1e-12)  # descent raises the log-probability
    assert above == pytest.approx(math.exp(1) - 1, abs=1e-12)
    _, imitation, _ = share(DphForwardKl("log"), [[(-1.0, -1.0), (-2.0, -1.0), (-1.0, -2.0)]])
    assert (3 * imitation[0]).tolist() == pytest.approx([-1.0] * 3, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k3", lambda p, q: sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))),
        ("log", lambda p, q: sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))),
        (
            "paper's JS",
            lambda p, q: sum(
                a / 2 * math.log(2 * a / (a + b)) + b / 2 * math.log(2 * b / (a + b)) for a, b in zip(p, q, strict=True)
            ),
        ),
    ],
)
def test_its_mean_over_the_base_policys_tokens_is_the_divergence(name, expected):
    p, q = [0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4]  # policy, base
    objective, _ = PLAIN[name]
    values = [share(objective, [[(math.log(a), math.log(b))]])[0].loss.item() for a, b in zip(p, q, strict=True)]
    assert sum(b * value for b, value in zip(q, values, strict=True)) == pytest.approx(expected(p, q), abs=1e-12)


def test_shares_add_up_and_weights_count_tokens():
    pairs = [[(-1.0, -2.0)], [(-0.5, -1.0), (-2.0, -3.0)], [(-1.5, -0.5)] * 3]
    weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    for aggregation in ("token", "response"):
        objective = DphForwardKl(aggregation=aggregation)
        whole, _, _ = share(objective, pairs, weights)
        f = PLAIN["k3"][1]
        rows = [[f(math.exp(new - old)) for new, old in row] for row in pairs]
        if aggregation == "token":
            hand = (rows[0][0] + 2 * sum(rows[1]) + 0.5 * sum(rows[2])) / (1 + 2 * 2 + 0.5 * 3)
        else:
            hand = (rows[0][0] + 2 * sum(rows[1]) / 2 + 0.5 * sum(rows[2]) / 3) / 3.5
        assert whole.loss.item() == pytest.approx(hand, rel=1e-12)
        parts, total = [], 0.0
        for row, weight in zip(pairs, weights, strict=True):
            mask = torch.ones(1, len(row), dtype=torch.bool)
            total += objective.denominator(mask, weight[None])
            parts.append((row, mask, weight))
        shares = [
            objective.loss(
                torch.tensor([[new for new, _ in row]], dtype=torch.float64),
                mask,
                weight[None],
                total,
                base_logprobs=torch.tensor([[old for _, old in row]], dtype=torch.float64),
            ).loss
            for row, mask, weight in parts
        ]
        assert sum(shares).item() == pytest.approx(hand, rel=1e-6)  # the denominator is float32


def test_the_released_clamp_lets_go_of_the_most_forgotten_tokens_and_the_default_does_not():
    forgotten = [[(-30.0, -0.1)]]
    assert share(DphForwardKl(value_clamp=10.0), forgotten)[1].item() == 0.0
    assert share(DphForwardKl(), forgotten)[1].item() == pytest.approx(-1.0, abs=1e-9)
    assert share(DphForwardKl(value_clamp=10.0), forgotten)[0].loss.item() == 10.0
    assert math.isfinite(share(DphForwardKl(), [[(-0.1, -2000.0)]])[0].loss.item())


def test_plain_replay_by_token_and_by_response():
    logprobs, mask = padded([[-1.0], [-2.0, -3.0, -4.0]])
    weights = torch.ones(2)
    for aggregation, hand in (("response", 2.0), ("token", 2.5)):
        objective = ReplayNll(aggregation)
        total = objective.denominator(mask, weights)
        assert objective.loss(logprobs, mask, weights, total).loss.item() == hand


@pytest.mark.parametrize("objective", [ReplayNll(), DphForwardKl(), DphJensenShannon()])
def test_nothing_to_replay_is_a_zero_with_a_graph(objective):
    logprobs = torch.zeros(1, 0, requires_grad=True)
    mask, weights = torch.zeros(1, 0, dtype=torch.bool), torch.zeros(1)
    total = objective.denominator(mask, weights)
    loss = objective.loss(logprobs, mask, weights, total, base_logprobs=torch.zeros(1, 0)).loss
    assert loss.item() == 0.0
    loss.backward()
    assert isinstance(objective, ReplayObjective)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DphForwardKl("k2"), "form must be one of k3, log, got 'k2'"),
        (lambda: DphForwardKl(aggregation="constant"), "aggregation must be one of response, token, got 'constant'"),
        (lambda: ReplayNll("constant"), "aggregation must be one of"),
        (lambda: DphJensenShannon(value_clamp=0.0), "value_clamp must be positive or null, got 0.0"),
        (lambda: DphForwardKl().loss(*[torch.zeros(1, 1)] * 3, 1.0), "pass base_logprobs"),
    ],
)
def test_bad_values_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


# The base policy's log-probabilities.


def test_rows_are_scored_alike_by_any_number_of_ranks(tiny_policy):
    model = load_model(str(tiny_policy)).eval()
    rows = [TokenRow([5, 6, 7][: 1 + i % 3], list(range(10, 11 + i))) for i in range(7)]

    def score(batch):
        return response_logprobs(model, batch)

    cpu = torch.device("cpu")
    alone = score_rows(rows, score, 10**6, cpu)
    for world_size in (1, 2, 5):
        passes = []

        def counted(batch, passes=passes):
            passes.append(1)
            return score(batch)

        shares, counts = [], []
        for rank in range(world_size):
            passes.clear()
            shares.append(score_rows(rows, counted, 24, cpu, rank, world_size))
            counts.append(len(passes))
        together = {i: values for part in shares for i, values in part.items()}
        assert sum(map(len, shares)) == len(together) == len(rows)
        assert len(set(counts)) == 1  # sharded weights need every rank in every pass
        for i, row in enumerate(rows):
            ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
            logits = model(ids).logits[0].log_softmax(-1)
            hand = [logits[len(row.prompt_ids) - 1 + t, token].item() for t, token in enumerate(row.response_ids)]
            assert together[i] == pytest.approx(hand, abs=1e-5)
            assert alone[i] == pytest.approx(hand, abs=1e-5)


def test_the_file_gives_back_what_was_written_and_refuses_the_rest(tmp_path):
    path = tmp_path / "base.safetensors"
    written = [[-0.125, -3.0], [], [-0.1]]
    write_base_logprobs(path, written, {"archive": "a", "temperature": "1.0"})
    back = read_base_logprobs(path, {"archive": "a", "temperature": "1.0"})
    assert back == [(-0.125, -3.0), (), (pytest.approx(-0.1, rel=1e-7),)]
    with pytest.raises(UsageError, match=r"computed from something else \(temperature\): train in another --run_dir"):
        read_base_logprobs(path, {"archive": "a", "temperature": "0.5"})
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UsageError, match="is broken"):
        read_base_logprobs(path, {"archive": "a", "temperature": "1.0"})


# Through the command.


@pytest.fixture
def dph(cli, toy_config):
    """Runs a command as the study's DPH-F does: near-perfect problems are replayed and not sampled."""
    config = yaml.safe_load(toy_config.read_text())
    config["search"]["class_path"] = "callbacks.IidPreSearch"
    config["search"]["init_args"]["near_perfect"] = {"least": 2, "of": 3}
    config["data"]["exclude_replayed"] = True
    config["model"] |= {"mu": 0.1, "policy_weight": 1.0}
    config["model"]["replay"] = {"class_path": "elite_lightning.objectives.DphForwardKl"}
    toy_config.write_text(yaml.safe_dump(config))
    return cli


def read_metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_fit_starts_at_the_base_and_keeps_what_it_compares_to(dph, tmp_path, tiny_policy):
    run = tmp_path / "run"
    assert dph("fit", "--run_dir", str(run)) == (0, "")
    steps = [row for row in read_metrics(run) if "train/loss_replay" in row]
    # No divergence before the first step, then some; the policy term is not scaled down.
    assert abs(steps[0]["train/loss_replay"]) < 1e-9
    assert abs(steps[0]["train/replay_log_ratio"]) < 1e-5
    assert max(row["train/loss_replay"] for row in steps) > 1e-7
    for row in steps:
        assert row["train/loss"] == pytest.approx(row["train/loss_policy"] + 0.1 * row["train/loss_replay"], abs=1e-6)
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert [name for name in steps[0] if name.startswith("train/") and f"`{name}`" not in page] == []
    archive = EliteArchive.load(run / "archive.jsonl", {})
    model, codec = load_model(str(tiny_policy)).eval(), TokenCodec(load_tokenizer(str(tiny_policy)))
    stored = load_file(run / "archive.base_logprobs.safetensors")
    elite = archive.elites(archive.problem_ids[0])[0]
    letter = archive.problem_ids[0]
    problem = next(p for p in LetterSource().train() if p.id == letter)
    prompt = codec.encode_prompt(LetterDomain().prompt(problem))
    logits = model(torch.tensor([[*prompt, *elite.token_ids]])).logits[0].log_softmax(-1)
    hand = [logits[len(prompt) - 1 + t, token].item() for t, token in enumerate(elite.token_ids)]
    assert stored["logprobs"][: len(hand)].tolist() == pytest.approx(hand, abs=1e-5)
    assert stored["lengths"].tolist() == [len(e.token_ids) for i in archive.problem_ids for e in archive.elites(i)]


def test_only_near_perfect_problems_are_kept(dph, tmp_path):
    run = tmp_path / "run"
    assert dph("search", "--run_dir", str(run)) == (0, "")
    outcomes = defaultdict(list)
    for problem_id, outcome in sqlite3.connect(run / "iid.sqlite").execute("SELECT problem_id, outcome FROM attempts"):
        if outcome != "verifier_failure":
            outcomes[problem_id].append(outcome in ("inserted", "replaced", "not_shorter"))
    kept = {i for i, right in outcomes.items() if sum(right[:3]) >= 2}
    assert set(EliteArchive.load(run / "archive.jsonl", {}).problem_ids) == kept
    assert 0 < len(kept) < len(outcomes)


def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(dph, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert dph("fit", "--run_dir", str(whole)) == (0, "")
    assert dph("fit", "--run_dir", str(cut)) == (0, "")
    (cut / "summary.json").unlink()
    for name in ("last.ckpt", "step=8.ckpt"):
        (cut / "checkpoints" / name).unlink()
    assert dph("fit", "--run_dir", str(cut)) == (0, "")
    assert training_rows(cut) == training_rows(whole)


def test_what_the_base_policy_thought_cannot_be_asked_after_training(dph, tmp_path):
    run = tmp_path / "run"
    assert dph("fit", "--run_dir", str(run)) == (0, "")
    (run / "summary.json").unlink()
    (run / "archive.base_logprobs.safetensors").unlink()
    code, err = dph("fit", "--run_dir", str(run))
    assert code == 2
    assert "base_logprobs.safetensors is missing, and the policy is trained already" in err


def test_demonstrations_are_not_what_the_base_policy_wrote(dph):
    source = '{"class_path": "toy.LetterDemonstrations"}'
    code, err = dph("fit", "--data.demonstrations", source, "--search", "null")
    assert code == 2
    assert "model.replay=DphForwardKl compares to what the base policy wrote itself" in err


def test_problems_that_are_replayed_are_not_sampled():
    class Archive:
        problem_ids = ("train-1", "train-2")
        told_apart_by = "both"

        def elites(self, problem_id):
            return ()

    for exclude, expected in ((True, 6), (False, 8)):
        data = EliteDataModule(LetterSource(), problems_per_step=4, replay_per_step=0, exclude_replayed=exclude)
        data.use_archive(Archive())
        batches = iter(data.train_dataloader())
        drawn = {n.problem.id for _ in range(2) for chunk in next(batches).chunks for n in chunk}
        more = {n.problem.id for chunk in next(iter(data.train_dataloader())).chunks for n in chunk}
        assert len(drawn | more) <= expected
        assert len(drawn) == min(8, expected)
        assert bool(drawn & set(Archive.problem_ids)) is not exclude
    Archive.problem_ids = tuple(problem.id for problem in letter_problems("train", 8))
    data = EliteDataModule(LetterSource(), replay_per_step=0, exclude_replayed=True)
    with pytest.raises(UsageError, match=r"data\.exclude_replayed leaves no problem to sample"):
        data.use_archive(Archive())
