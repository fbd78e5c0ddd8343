"""Vocabularies: how answers become names, how names are merged, and that a frozen file stays what it is."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.errors import UsageError
from elite_lightning.search.labeling import Approach, Solved, Vocabulary
from elite_lightning.search.labeling.labeler import spread
from elite_lightning.search.labeling.prompts import read_merged, read_proposal
from elite_lightning.types import Problem

VOCABULARY = Vocabulary(
    (
        Approach("join", "two tables in one FROM", ("inner_join",)),
        Approach("anti_join", "what has no partner", ("left_join_null",)),
        Approach("set_difference", "EXCEPT"),
    )
)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("join", "join"),
        ("JOIN", "join"),
        ("  `Join`.\n", "join"),
        ("Anti-Join", "anti_join"),
        ("inner join", "join"),
        ("left join / NULL", "anti_join"),
        ('{"approach": "set_difference"}', "set_difference"),
        ("The solution takes the anti join approach.", "anti_join"),
        ("anti_join\n\nIt is no join and no set difference.", "anti_join"),
        ("<think>join? set difference?</think>set_difference", "set_difference"),
        ("join? set difference?</think>\nset difference", "set_difference"),
        ("<think>surely a join, but", "other"),
        ("OTHER", "other"),
        ("Other: it is not a join", "other"),
        ("other", "other"),
        ("join or set difference", "other"),
        ("join\nanti join", "other"),
        ("joins", "other"),
        ("window function", "other"),
        ("", "other"),
        ("\n?!\n", "other"),
    ],
)
def test_an_answer_is_a_name_or_other(answer, label):
    assert VOCABULARY.label_of(answer) == label


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_no_answer_leaves_the_vocabulary(answer):
    assert VOCABULARY.label_of(answer) in (*VOCABULARY.names, "other")


@pytest.mark.parametrize("names", [(), ("join", "join"), ("Join",), ("other",), ("a b",), ("",)])
def test_a_vocabulary_has_different_names_made_of_words(names):
    with pytest.raises(ValueError, match="different names"):
        Vocabulary(tuple(Approach(name, "") for name in names))


def test_a_synonym_may_not_be_another_name():
    with pytest.raises(ValueError, match="different names"):
        Vocabulary((Approach("a", "", ("b",)), Approach("b", "")))


def test_a_frozen_vocabulary_is_read_as_it_was_written_and_an_edited_one_is_refused(tmp_path):
    path = tmp_path / "vocabulary.json"
    VOCABULARY.save(path, "labeler")
    assert Vocabulary.load(path, "labeler") == VOCABULARY
    for change in (
        lambda content: content["approaches"][0].update(definition="something else"),
        lambda content: content["approaches"].pop(),
        lambda content: content.update(labeler="another"),
        lambda content: content.pop("approaches"),
    ):
        content = json.loads(path.read_text())
        change(content)
        edited = tmp_path / "edited.json"
        edited.write_text(json.dumps(content))
        with pytest.raises(UsageError, match=r"edited\.json is not a frozen vocabulary"):
            Vocabulary.load(edited, "labeler")
    with pytest.raises(UsageError, match="missing"):
        Vocabulary.load(tmp_path / "missing.json", "labeler")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Anti join: keeps what has no partner", ("anti_join", "keeps what has no partner")),
        ("\n**Set difference**: EXCEPT of two queries\nmore prose", ("set_difference", "EXCEPT of two queries")),
        ("<think>hm: no</think> Join: a: b", ("join", "a: b")),
        ("join", ("join", "")),
        ("Other: none", None),
        ("This is a long sentence that is surely no name", None),
        ("?", None),
        ("", None),
    ],
)
def test_a_proposal_is_the_first_line_that_begins_with_a_name(answer, expected):
    proposal = read_proposal(answer)
    assert (proposal and (proposal.name, proposal.definition)) == expected


COUNTS = {"join": 5, "inner_join": 2, "except": 4, "anti_join": 1}


def merged(*items, limit=9):
    return [(a.name, a.synonyms) for a in read_merged(json.dumps(items), COUNTS, limit)]


def test_merging_keeps_the_most_frequent_approaches_with_their_synonyms():
    difference = {"name": "Set difference", "definition": "d", "merges": ["except"]}
    joins = {"name": "join", "definition": "d", "merges": ["join", "inner_join"]}
    anti = {"name": "anti_join", "definition": "d", "merges": []}
    everything = [("join", ("inner_join",)), ("set_difference", ("except",)), ("anti_join", ())]
    assert merged(difference, joins, anti) == everything
    assert merged(difference, joins, anti, limit=2) == everything[:2]
    prose = f"[Note] as asked [1]:\n```json\n{json.dumps([joins], indent=1)}\n```\nI merged [two]."
    assert [a.name for a in read_merged(prose, COUNTS, 9)] == ["join"]


def test_merging_takes_a_name_once_and_only_what_was_proposed():
    first = {"name": "join", "merges": ["inner_join", "except", "unheard_of"]}
    assert merged(first, {"name": "except", "merges": ["except"]}, {"name": "x", "merges": ["inner join"]}) == [
        ("join", ("inner_join", "except"))
    ]
    assert (
        merged({"name": "invented", "merges": []}, {"name": "other", "merges": ["join"]}, "x", {"name": "join"}) == []
    )


@pytest.mark.parametrize("answer", ["", "no list", "[1, 2", "[1, 2]", '{"name": "join"}', "][", "[{" + "[" * 5000])
def test_an_answer_that_is_no_list_merges_nothing(answer):
    assert read_merged(answer, COUNTS, 9) == ()


def test_a_sample_takes_every_problem_once_before_any_twice():
    problems = [Problem(f"p{i}", "") for i in range(5)]
    seeds = [Solved(problem, f"{i}") for i, problem in enumerate(problems) for _ in range(3)]
    seeds += [Solved(problems[0], f"more {i}") for i in range(10)]
    sample = spread(seeds, 7)
    assert {s.problem.id for s in sample[:5]} == {p.id for p in problems}
    assert [s.problem.id for s in sample[5:]] == ["p0", "p0"]
    assert sample == spread(seeds[::-1], 7)
    assert len(spread(seeds, 100)) == len({(s.problem.id, s.solution) for s in seeds}) == 15
    assert spread([], 3) == []
