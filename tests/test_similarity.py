"""Kernels over solutions: figures by hand, a plain loop over the model, and what a domain says of its trees."""

import itertools
import math
from collections import Counter
from functools import lru_cache

import pytest
import torch
from conftest import byte_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing
from toy import LetterDomain
from transformers import BertConfig, BertModel, T5Config

from elite_lightning.domains.arithmetic import ArithmeticDomain
from elite_lightning.domains.sql import SqlDomain
from elite_lightning.domains.sql.tree_features import tree_features
from elite_lightning.errors import UsageError
from elite_lightning.similarity import SentenceEmbeddings, Similarity, SyntaxTrees
from elite_lightning.similarity.trees import jaccard
from elite_lightning.types import TreeDomain

CPU = torch.device("cpu")
ARITHMETIC = ArithmeticDomain()


def brute_jaccard(one, other):
    return sum((one & other).values()) / max(1, sum((one | other).values()))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Folder of a tiny random BERT, whose dropout would show, and of a tokenizer that adds special tokens."""
    folder = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(4)
    config = BertConfig(
        vocab_size=258,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=0.5,
        initializer_range=0.4,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 1), ("<eos>", 0)]
    )
    tokenizer.save_pretrained(folder)
    return folder


# Trees.


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4)) | st.none(), max_size=6))
def test_jaccard_is_shared_over_all_with_multiplicity(multisets):
    counters = [Counter(multiset) for multiset in multisets]
    actual = jaccard(multisets).tolist()
    assert actual == [[pytest.approx(brute_jaccard(a, b), abs=1e-15) for b in counters] for a in counters]


def test_the_edges_of_an_expression_by_hand():
    expected = {">*": 1, "*>number": 1, "*>2": 1, "*>-": 1}
    expected |= {"- left>number": 1, "- left>3": 1, "- right>number": 1, "- right>4": 1}
    assert ARITHMETIC.tree_features("2 * (3 - 4)") == ARITHMETIC.tree_features("((3)-4)*2") == expected
    assert ARITHMETIC.tree_features("3 + 3") == {">+": 1, "+>number": 2, "+>3": 2}
    assert ARITHMETIC.tree_features("2 *") is ARITHMETIC.tree_features("2 / 1") is None


def test_the_edges_of_a_query_by_hand():
    edges = tree_features("SELECT MAX(p.Age) AS oldest FROM person AS p WHERE p.id > 7 ORDER BY 1 DESC")
    assert edges == {
        ">Select": 1,
        "Select.expressions>Max": 1,
        "Max.this>Column": 1,
        "Max.this>name age": 1,
        "Select.from_>From": 1,
        "From.this>Table": 1,
        "From.this>name person": 1,
        "Select.where>Where": 1,
        "Where.this>LT": 1,
        "LT.this>Literal": 1,
        "LT.expression>Column": 1,
        "LT.expression>name id": 1,
        "Select.order>Order": 1,
        "Order.expressions>Ordered descending": 1,
        "Ordered descending.this>Literal": 1,
    }


def alike(one, other):
    """Of two queries, through the kernel."""
    return SyntaxTrees().of([[one, other]], SqlDomain("."), CPU)[0, 0, 1].item()


SAME = [
    ("SELECT a FROM t", "select T.A as x from t"),
    ("SELECT a FROM t WHERE a = 1 AND b = 'x'", "SELECT a FROM t WHERE ((b = 'y') AND 2 = a)"),
    ("SELECT a FROM t WHERE a > b", "SELECT a FROM t WHERE b < a"),
    ("SELECT t.* FROM t JOIN u ON t.a = u.b", "SELECT * FROM t INNER JOIN u ON u.b = t.a"),
    ("WITH c AS (SELECT a FROM t) SELECT a FROM c", "WITH d AS (SELECT a FROM t) SELECT a FROM d"),
    ("SELECT a FROM (SELECT a FROM t) AS s", "SELECT a FROM (SELECT a FROM t)"),
]
DIFFERENT = [
    ("SELECT a FROM t WHERE a > b", "SELECT a FROM t WHERE a < b"),
    ("SELECT a - b FROM t", "SELECT b - a FROM t"),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC"),
    ("SELECT a FROM t JOIN u ON a = b", "SELECT a FROM t LEFT JOIN u ON a = b"),
    ("SELECT a FROM t UNION SELECT b FROM u", "SELECT a FROM t UNION ALL SELECT b FROM u"),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t"),
    ("SELECT total(a) FROM t", "SELECT my_function(a) FROM t"),
    ("SELECT CAST(a AS REAL) FROM t", "SELECT CAST(a AS INTEGER) FROM t"),
    ("SELECT a FROM t", "SELECT b FROM t"),
    ("SELECT a FROM t", "SELECT a FROM u"),
    ("SELECT a FROM t JOIN u USING (a)", "SELECT a FROM t JOIN u USING (b)"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_is_only_written_differently_is_wholly_alike(one, other):
    assert alike(one, other) == 1.0


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_means_something_else_is_partly_alike(one, other):
    assert 0.2 < alike(one, other) < 1.0


def test_a_name_makes_less_of_a_difference_than_another_way():
    query = "SELECT name FROM person WHERE id IN (SELECT pid FROM loan)"
    other_name = "SELECT name FROM person WHERE id IN (SELECT bid FROM loan)"
    other_way = "SELECT name FROM person JOIN loan ON id = pid"
    assert alike(query, other_way) < alike(query, other_name) < 1.0
    # Of n edges each, one leads to another name.
    edges = sum(tree_features(query).values())
    assert alike(query, other_name) == pytest.approx((edges - 1) / (edges + 1))


def test_responses_of_a_group_by_hand():
    group = ["2 + 3", None, "3 + 2", "2 - 3", "2 + ", "2 + 3", None, "2 +"]
    # "2 + 3": root, two numbers, 2, 3. "2 - 3": another root, and no edge in common.
    rows = SyntaxTrees().of([group], ARITHMETIC, CPU)
    expected = [
        [1, 0, 1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0, 0, 1, 0],
        [1, 0, 1, 0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],  # not parsed: alike to an equal text, and to no other
        [1, 0, 1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0, 1],
    ]
    assert rows.dtype == torch.float32
    assert rows.tolist() == [expected]
    # Edges of "2 * (3 + 4)": 7 in all; of "2 * (3 + 5)" all but "+>4".
    (pair,) = SyntaxTrees().of([["2 * (3 + 4)", "2 * (3 + 5)"]], ARITHMETIC, CPU)
    assert pair[0, 1].item() == pytest.approx(7 / 9)


def test_no_groups_and_no_solutions_are_no_exception(encoder):
    for kernel in (SyntaxTrees(), SentenceEmbeddings(str(encoder))):
        assert kernel.of([], ARITHMETIC, CPU).shape == (0, 0, 0)
        assert kernel.of([[None, None], ["1", "1"]], ARITHMETIC, CPU).eq(1).all()


def test_domains_say_whether_they_have_trees():
    assert isinstance(ARITHMETIC, TreeDomain)
    assert isinstance(SqlDomain("."), TreeDomain)
    SyntaxTrees().check(ARITHMETIC)
    with pytest.raises(UsageError, match="'letters' has none: give it a method tree_features"):
        SyntaxTrees().check(LetterDomain())


# Embeddings.

TEXTS = ["SELECT 1", "a", "SELECT name FROM person", "b", "SELECT nam FROM person", "x" * 100]


@lru_cache
def by_hand(folder, text, pooling, most=512):
    """The embedding of one text in a batch of its own, tokens by hand."""
    ids = [1, *byte_tokenizer().encode(text)[: most - 2], 0]
    with torch.no_grad():
        hidden = bert(folder)(input_ids=torch.tensor([ids])).last_hidden_state[0]
    return (hidden[-1] if pooling == "last" else hidden.mean(dim=0)).tolist()


@lru_cache
def bert(folder):
    return BertModel.from_pretrained(folder).eval()


def cosine(one, other):
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return min(1.0, max(0.0, dot / math.sqrt(math.fsum(a * a for a in one) * math.fsum(b * b for b in other))))


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_embeddings_equal_a_plain_loop_over_the_model(encoder, pooling, batch_size):
    kernel = SentenceEmbeddings(str(encoder), pooling, batch_size, max_tokens=40)
    kernel.check(LetterDomain())
    groups = [[*TEXTS[:4], None], [*TEXTS[3:], "SELECT 1", "b"]]
    actual = kernel.of(groups, LetterDomain(), CPU)
    vectors = {text: by_hand(encoder, text, pooling, 40) for text in TEXTS} | {None: None}
    values = []
    for rows, group in zip(actual.tolist(), groups, strict=True):
        for (i, one), (j, other) in itertools.product(enumerate(group), repeat=2):
            expected = float(one == other) if one == other or None in (one, other) else None
            if expected is None:
                values.append(expected := cosine(vectors[one], vectors[other]))
            assert rows[i][j] == pytest.approx(expected, abs=1e-5)
    assert 0 <= min(values) < 0.9 * max(values) < max(values) < 1  # else the comparison would show little
    assert torch.equal(actual, actual.mT)
    assert actual.diagonal(dim1=1, dim2=2).eq(1).all()
    assert not actual.requires_grad


def test_opposite_embeddings_count_as_unlike(encoder, monkeypatch):
    vectors = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([-1.0, 0.1]), "c": torch.tensor([2.0, 2.0])}
    monkeypatch.setattr(SentenceEmbeddings, "embed", lambda self, texts, device: {t: vectors[t] for t in texts})
    (rows,) = SentenceEmbeddings(str(encoder)).of([["a", "b", "c"]], ARITHMETIC, CPU)
    assert rows.tolist() == [[1, 0, pytest.approx(0.5**0.5)], [0, 1, 0], [pytest.approx(0.5**0.5), 0, 1]]


def test_neither_order_nor_earlier_steps_change_a_bit(encoder):
    """A run that goes on after a stop has a kernel that has seen nothing yet."""
    fresh, used = (SentenceEmbeddings(str(encoder), "mean", batch_size=2) for _ in range(2))
    used.of([TEXTS[2:], ["c", "SELECT 1", "d", "e"]], ARITHMETIC, CPU)
    first = fresh.of([TEXTS[:3], TEXTS[2:5]], ARITHMETIC, CPU)
    assert torch.equal(first, used.of([TEXTS[:3], TEXTS[2:5]], ARITHMETIC, CPU))
    turned = used.of([TEXTS[4:1:-1], TEXTS[2::-1]], ARITHMETIC, CPU)
    assert torch.equal(first, turned.flip(0, 1, 2))


def test_a_text_longer_than_the_model_takes_is_cut(encoder):
    """The model has 64 positions; of the special tokens both stay."""
    cut = SentenceEmbeddings(str(encoder)).embed(["x" * 100, "x" * 62, "x" * 61], CPU)
    assert cut["x" * 100].tolist() == pytest.approx(by_hand(encoder, "x" * 62, "last"), abs=1e-5)
    assert cut["x" * 61].tolist() == pytest.approx(by_hand(encoder, "x" * 61, "last"), abs=1e-5)
    assert cut["x" * 61].tolist() != pytest.approx(cut["x" * 62].tolist(), abs=1e-3)


def test_each_text_of_a_step_is_embedded_once_and_a_lone_one_never(encoder, monkeypatch):
    seen = []
    pooled = SentenceEmbeddings._pooled
    monkeypatch.setattr(
        SentenceEmbeddings, "_pooled", lambda self, rows, device: seen.extend(rows) or pooled(self, rows, device)
    )
    kernel = SentenceEmbeddings(str(encoder))
    kernel.of([["a", "a", "b"], ["b", "c", None], ["d", "d", None]], ARITHMETIC, CPU)
    assert sorted(map(len, seen)) == [3, 3, 3]


def test_the_model_is_frozen_and_loaded_when_it_is_first_needed(encoder):
    kernel = SentenceEmbeddings(str(encoder))
    kernel.check(ARITHMETIC)
    assert "_model" not in vars(kernel)
    kernel.of([["a", "b"]], ARITHMETIC, CPU)
    assert not kernel._model.training
    assert not any(parameter.requires_grad for parameter in kernel._model.parameters())


def test_what_is_not_there_is_refused_at_the_start(encoder, tmp_path):
    with pytest.raises(UsageError, match=r"SentenceEmbeddings: tokenizer folder '.*nowhere' does not exist"):
        SentenceEmbeddings(str(tmp_path / "nowhere")).check(ARITHMETIC)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"config\.json"):
        SentenceEmbeddings(str(tmp_path)).check(ARITHMETIC)
    BertConfig().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="holds no weights"):
        SentenceEmbeddings(str(tmp_path)).check(ARITHMETIC)
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="encoder with a decoder"):
        SentenceEmbeddings(str(tmp_path)).check(ARITHMETIC)


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    config = BertConfig(vocab_size=258, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    model = BertModel(config)
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    state = {name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "pooler" not in name}
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    draws = torch.get_rng_state()
    SentenceEmbeddings(str(tmp_path)).of([["a", "b"]], ARITHMETIC, CPU)  # a pooler is not needed, nor are draws
    assert torch.equal(draws, torch.get_rng_state())
    name = next(name for name in state if name.endswith("layer.1.output.dense.weight"))
    del state[name]
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(UsageError, match=f"lacks 1 weights, the first is {name}"):
        SentenceEmbeddings(str(tmp_path)).of([["a", "b"]], ARITHMETIC, CPU)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"pooling": "first"}, "last, mean, got 'first'"), ({"batch_size": 0}, "got 0"), ({"max_tokens": 0}, "and 0")],
)
def test_values_out_of_range_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        SentenceEmbeddings("x", **options)


class SameLength(Similarity):
    """A user's own: 1 for texts of one length."""

    def compare(self, groups, domain, device):
        return [torch.tensor([[float(len(a) == len(b)) for b in group] for a in group]) for group in groups]


def test_a_kernel_of_ones_own_compares_different_texts_only():
    (rows,) = SameLength().of([["aa", None, "bb", "c"]], LetterDomain(), CPU)
    assert rows.tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]
