"""The bundled base model is what the README says: small, stock, and able to follow its three kinds of prompt."""

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from datamodules.pocketsql.base_model import PocketBaseModel
from datamodules.pocketsql.source import PocketSqlSource
from elite_lightning.policy import TokenCodec
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.types import Sampling

FOLDER = Path(__file__).parents[1] / "elite_lightning" / "assets" / "pocketsql_base"


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER).eval()


@pytest.fixture(scope="module")
def codec():
    return TokenCodec(AutoTokenizer.from_pretrained(FOLDER))


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    source = PocketSqlSource(str(tmp_path_factory.mktemp("pocketsql")))
    return source, source.validation()[::4]


def test_it_is_a_stock_model_within_its_size(model):
    assert type(model) is LlamaForCausalLM
    assert sum(parameter.numel() for parameter in model.parameters()) <= 1_500_000
    files = [path for path in FOLDER.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6_000_000
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in files}


def test_it_has_room_for_4096_positions(model):
    with torch.no_grad():
        logits = model(torch.arange(4096)[None] % model.config.vocab_size, logits_to_keep=1).logits
    assert torch.isfinite(logits).all()


def test_its_tokenizer_is_what_the_recipe_makes(codec):
    """Demonstrations that changed would change it, and then the model would have to be made anew."""
    assert TokenCodec(PocketBaseModel().tokenizer()).fingerprint == codec.fingerprint


def test_any_text_round_trips(codec):
    @settings(max_examples=200, deadline=None)
    @given(st.text())
    def check(text):
        assert codec.decode(codec.encode_response(text)) == text

    check()


def _judged(model, codec, problems, target=None, with_parent=False):
    """Share of correct responses, and how often correct ones take each approach."""
    source, chosen = problems
    domain, engine = source.domain, InProcessEngine(model, codec)
    texts = [domain.prompt(p, target, p.data["gold"] if with_parent else None) for p in chosen]
    groups = engine.generate([codec.encode_prompt(text) for text in texts], 8, Sampling(1.0, 96), 0)
    approaches = Counter()
    for problem, completions in zip(chosen, groups, strict=True):
        solutions = [domain.extract(completion.text) for completion in completions]
        right = [s for s in solutions if s and domain.verify(problem, s).correct]
        approaches.update(domain.cell(problem, solution).approach for solution in right)
    return approaches.total() / (8 * len(chosen)), approaches


def test_it_answers_the_plain_prompt(model, codec, problems):
    correct, _ = _judged(model, codec, problems)
    assert 0.2 < correct < 0.7  # room to learn, and something to forget


@pytest.mark.parametrize("with_parent", [False, True])
def test_a_target_makes_its_approach_more_frequent(model, codec, problems, with_parent):
    _, plain = _judged(model, codec, problems)
    for target in ("exists", "cte"):
        _, asked = _judged(model, codec, problems, target, with_parent)
        assert asked[target] / asked.total() > plain[target] / plain.total() + 0.2, (target, plain, asked)
