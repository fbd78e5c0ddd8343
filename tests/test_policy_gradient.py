"""The loss that objectives share, with every option, against complex-step derivatives of a plain Python reference."""

import cmath
import itertools
import math

import pytest
import torch

from elite_lightning.objectives import Grpo, merge_metrics

ROWS, TIME = 6, 5
OPTIONS = [
    {"aggregation": "response"},
    {"aggregation": "token", "clip_high": 0.28},
    {"aggregation": "constant", "constant_length": 7},
    {"ratio": "sequence", "clip_low": 0.02, "clip_high": 0.03},
    {"surrogate": "cispo", "aggregation": "token"},
    {"surrogate": "cispo", "ratio": "sequence", "clip_high": 0.05},
    {"importance_cap": 1.3},
    {"importance_cap": 1.3, "surrogate": "cispo", "aggregation": "constant", "constant_length": 3},
    {"importance_cap": 1.3, "aggregation": "token", "kl_coefficient": 0.1},
    {"ratio": "sequence", "kl_coefficient": 0.1, "clip_low": 0.02, "clip_high": 0.03},
]


def random_step(seed, rows=ROWS, time=TIME):
    """Log-probabilities of three policies, advantages and a ragged mask, float64."""
    generator = torch.Generator().manual_seed(seed)
    old, gap, ref_gap = (torch.randn(rows, time, generator=generator, dtype=torch.float64) for _ in range(3))
    lengths = torch.randint(1, time + 1, (rows, 1), generator=generator)
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    return old + 0.4 * gap, old, old + ref_gap, advantages, torch.arange(time)[None] < lengths


def response_loss(present, logprobs, old, advantage, ref, options):
    """Token losses of one response; `present` is what a stop-gradient sees of `logprobs`, which may be complex."""
    low, high = options.get("clip_low", 0.2), options.get("clip_high", 0.2)
    cap, beta = options.get("importance_cap"), options.get("kl_coefficient", 0.0)
    base = old if cap is None else present

    def ratios(values):
        gaps = [a - b for a, b in zip(values, base, strict=True)]
        if options.get("ratio") == "sequence":
            gaps = [sum(gaps) / len(gaps)] * len(gaps)
        return [cmath.exp(gap) for gap in gaps]

    losses = []
    for t, (rho, frozen) in enumerate(zip(ratios(logprobs), ratios(present), strict=True)):
        if options.get("surrogate") == "cispo":
            gain = min(frozen.real, 1 + high) * advantage * logprobs[t]
        else:
            inside = rho if 1 - low <= rho.real <= 1 + high else min(max(rho.real, 1 - low), 1 + high)
            gain = min(rho * advantage, inside * advantage, key=lambda z: complex(z).real)
        weight = 1.0 if cap is None else min(math.exp(present[t] - old[t]), cap)
        gap = ref[t] - logprobs[t]
        losses.append(-weight * gain + beta * (cmath.exp(gap) - gap - 1))
    return losses


def reference(step, options, bump=None):
    """The whole loss; `bump` is a token `(i, t)` whose log-probability gets an imaginary part."""
    logprobs, old, ref, advantages, mask = (tensor.tolist() for tensor in step)
    aggregation = options.get("aggregation", "response")
    total, tokens = 0.0, 0
    for i, valid in enumerate(mask):
        n = sum(valid)
        values = [complex(v, 1e-30 if (i, t) == bump else 0.0) for t, v in enumerate(logprobs[i][:n])]
        losses = response_loss(logprobs[i][:n], values, old[i][:n], advantages[i], ref[i][:n], options)
        total += sum(losses) / {"response": n, "token": 1, "constant": options.get("constant_length")}[aggregation]
        tokens += n
    return total / (tokens if aggregation == "token" else len(mask))


def run(step, options, rows=slice(None), total=None):
    """Loss and gradient as the package computes them."""
    logprobs, old, ref, advantages, mask = (tensor[rows] for tensor in step)
    objective = Grpo(**options)
    leaf = logprobs.clone().requires_grad_()
    total = objective.denominator(mask) if total is None else total
    output = objective.loss(leaf, old, advantages, mask, total, ref_logprobs=ref)
    output.loss.backward()
    return output, leaf.grad


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradient_equal_the_plain_python_reference(seed, options):
    step = random_step(seed)
    output, gradient = run(step, options)
    assert output.loss.item() == pytest.approx(reference(step, options).real, abs=1e-12)
    for i, t in itertools.product(range(ROWS), range(TIME)):
        # A complex step has no rounding: the derivative is exact to the last digits.
        expected = reference(step, options, (i, t)).imag / 1e-30 if step[-1][i, t] else 0.0
        assert gradient[i, t].item() == pytest.approx(expected, abs=1e-12), (i, t)


def test_the_reference_reaches_every_limit():
    """Else the comparison above would show little."""
    shares = {}
    for options in OPTIONS:
        metrics = [run(random_step(seed), options)[0].metrics for seed in range(3)]
        shares[str(options)] = {name: parts.mean.item() for name, parts in merge_metrics(metrics).items()}
    for options in OPTIONS:
        means = shares[str(options)]
        limit = "importance_capped" if "importance_cap" in options else "clip_fraction"
        assert 0.05 < means[limit] < 0.8, options
        assert ("importance_capped" in means) == ("importance_cap" in options)
        # Relative to the trainer's own log-probabilities every ratio is 1.
        assert "importance_cap" not in options or means["clip_fraction"] == 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loss_and_gradient_do_not_depend_on_cut_order_or_padding(options):
    step = random_step(7)
    whole, gradient = run(step, options)
    padded = [
        torch.nn.functional.pad(tensor, (2, 3), value=fill) if tensor.dim() == 2 else tensor
        for tensor, fill in zip(step, (math.nan, math.inf, -math.inf, 0.0, False), strict=True)
    ]
    total = Grpo(**options).denominator(step[-1])
    pieces = [[4, 1], [0], [5, 3, 2]]
    assert sum(Grpo(**options).denominator(step[-1][piece]) for piece in pieces) == total
    runs = [run(padded, options, piece, total) for piece in pieces]
    torch.testing.assert_close(sum(output.loss for output, _ in runs), whole.loss, atol=1e-13, rtol=0)
    for piece, (_, part) in zip(pieces, runs, strict=True):
        torch.testing.assert_close(part[:, 2:-3], gradient[piece], atol=1e-13, rtol=0)
        assert part[:, :2].eq(0).all()
        assert part[:, -3:].eq(0).all()
    merged = merge_metrics(output.metrics for output, _ in runs)
    for name, value in whole.metrics.items():
        torch.testing.assert_close(merged[name].mean, value.mean)


def test_denominators_by_hand():
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    assert Grpo().denominator(mask) == 2
    assert Grpo(aggregation="token").denominator(mask) == 4
    assert Grpo(aggregation="constant", constant_length=10).denominator(mask) == 20


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_nothing_to_learn_from_is_a_zero_with_a_graph(options):
    logprobs, old, ref, advantages, mask = random_step(1)
    output, gradient = run((logprobs, old, ref, advantages, torch.zeros_like(mask)), options)
    assert output.loss.item() == 0
    assert gradient.eq(0).all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_strictly_on_policy_all_are_the_same_policy_gradient(options):
    """With l = l_old, clipping, ratios and weights differ in nothing: the gradient is that of -A l."""
    _, old, _, advantages, mask = random_step(2)
    settings = {name: value for name, value in options.items() if name != "kl_coefficient"}
    _, gradient = run((old, old, old, advantages, mask), settings)
    divisors = {
        "response": mask.sum(1, keepdim=True) * ROWS,
        "token": mask.sum(),
        "constant": ROWS * options.get("constant_length", 1),
    }
    shares = mask.double() / divisors[options.get("aggregation", "response")]
    torch.testing.assert_close(gradient, -advantages[:, None] * shares, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregation": "mean"}, "aggregation must be one of response, token, constant"),
        ({"ratio": "word"}, "ratio must be one of token, sequence"),
        ({"surrogate": "clop"}, "surrogate must be one of clip, cispo"),
        ({"aggregation": "constant"}, "constant_length"),
        ({"constant_length": 5}, "constant_length"),
        ({"aggregation": "constant", "constant_length": 0}, "at least 1 token"),
        ({"ratio": "sequence", "aggregation": "token"}, "aggregation to response"),
        ({"importance_cap": 0.0}, "importance_cap"),
    ],
)
def test_settings_that_do_not_go_together_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Grpo(**options)
