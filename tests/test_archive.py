"""The archive's rule, its freeze, and a file that is exactly what was written or is refused."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.archive import ArchiveError, ArchiveFrozenError, EliteArchive, Outcome
from elite_lightning.archive_file import manifest_path
from elite_lightning.types import Cell, FinishReason, Judgement, Problem, Reason, Verdict

P, Q = Problem("p", "?"), Problem("q", "?")
FINGERPRINTS = {"tokenizer": "t1", "domain": "d1"}


def judge(problem, response):
    """`approach/structure/text` is right, a reason's name is wrong for that reason."""
    if response in list(Reason):
        return Judgement(response, Verdict(False, 0.0, Reason(response)))
    approach, structure, text = response.split("/", 2)
    return Judgement(text, Verdict(True, 1.0), Cell(approach, structure))


def encode(text):
    return [*text.encode(), 0]


def archive(*responses, problem=P):
    made = EliteArchive(judge, encode, FINGERPRINTS)
    for response in responses:
        made.insert(problem, response)
    return made


def saved(tmp_path):
    made = archive("join/one/aa", "join/two/b", "in/one/ccc")
    made.insert(Q, "join/one/dd\n\u2028 ü")
    path = tmp_path / "archive.jsonl"
    made.save(path)
    return path


def test_the_shortest_response_of_a_cell_stays_and_ties_keep_the_incumbent():
    made = EliteArchive(judge, encode, {})
    outcomes = [made.insert(P, f"join/one/{text}") for text in ("bbb", "aaa", "bbb", "cc", "dddd")]
    assert outcomes == ["inserted", "not_shorter", "not_shorter", "replaced", "not_shorter"]
    (elite,) = made.elites("p")
    assert (elite.response, elite.solution) == ("join/one/cc", "cc")
    assert elite.token_ids == (*b"join/one/cc", 0)


def test_shorter_means_fewer_tokens_of_what_is_replayed_not_fewer_characters():
    made = EliteArchive(judge, lambda text: [1] * (3 if "long" in text else 9), {})
    made.insert(P, "join/one/x")
    assert made.insert(P, "join/one/a long text") is Outcome.REPLACED


def test_only_what_the_judge_accepts_gets_in():
    made = EliteArchive(judge, encode, {})
    assert [made.insert(P, reason.value) for reason in Reason] == [reason.value for reason in Reason]
    assert (len(made), made.problem_ids, made.elites("p"), made.attempts) == (0, (), (), len(Reason))
    with pytest.raises(ArchiveError, match="'inserted' is not a reason"):
        made.reject(P, Outcome.INSERTED)


def test_a_truncated_response_is_counted_and_never_verified():
    def never(problem, response):
        raise AssertionError

    made = EliteArchive(never, encode, {})
    assert made.insert(P, "join/one/x", FinishReason.LENGTH) is Outcome.TRUNCATED
    assert made.attempts == 1


def test_every_reason_is_an_outcome():
    assert {reason.value for reason in Reason} == {o.value for o in Outcome if not o.correct}


def test_a_correct_response_without_a_cell_is_an_error():
    made = EliteArchive(lambda p, r: Judgement(r, Verdict(True, 1.0)), encode, {})
    with pytest.raises(ArchiveError, match="no cell"):
        made.insert(P, "x")


def test_nothing_enters_a_frozen_archive():
    made = archive("join/one/aaa")
    made.freeze()
    made.freeze()
    for attempt in (lambda: made.insert(P, "join/one/a"), lambda: made.reject(P, Outcome.ERROR)):
        with pytest.raises(ArchiveFrozenError, match="frozen"):
            attempt()
    assert made.frozen
    assert [e.solution for e in made.elites("p")] == ["aaa"]
    assert made.attempts == 1


@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("abc"), st.integers(0, 5)), max_size=60))
def test_the_archive_equals_a_brute_force_over_the_whole_history(history):
    made = EliteArchive(judge, encode, {})
    responses = []
    for number, (problem, cell, length) in enumerate(history):
        # The number, at equal width, tells apart responses of equal length.
        response = f"{cell}/s/{number:03d}{'x' * length}"
        made.insert(Problem(problem, "?"), response)
        responses.append((problem, cell, len(response), number, response))
    firsts = {}
    for problem, cell, _, _, response in sorted(responses, key=lambda r: (r[2], r[3])):
        firsts.setdefault((problem, cell), response)
    assert {(p, e.cell.approach): e.response for p in made.problem_ids for e in made.elites(p)} == firsts
    assert len(made) == len(firsts)
    assert all(made.cells(p) == tuple(sorted(made.cells(p))) for p in made.problem_ids)


@pytest.mark.parametrize("cells", ["approach", "structure"])
def test_told_apart_by_a_part_a_cell_keeps_the_shortest_and_its_whole_name(tmp_path, cells):
    made = EliteArchive(judge, encode, {}, cells)
    responses = ("join/one/aaa", "join/two/bb", "in/two/c", "in/one/aaaaaa", "in/one/d", "not in/two/")
    outcomes = [made.insert(P, response) for response in responses]
    if cells == "approach":
        assert outcomes == ["inserted", "replaced", "inserted", "not_shorter", "not_shorter", "inserted"]
        expected = {"in/two/c", "join/two/bb", "not in/two/"}
        assert made.cells("p") == (("in", ""), ("join", ""), ("not in", ""))
    else:
        assert outcomes == ["inserted", "inserted", "replaced", "not_shorter", "replaced", "not_shorter"]
        expected = {"in/one/d", "in/two/c"}
        assert made.cells("p") == (("", "one"), ("", "two"))
    assert {f"{e.cell.approach}/{e.cell.structure}/{e.solution}" for e in made.elites("p")} == expected
    made.save(tmp_path / "archive.jsonl")
    loaded = EliteArchive.load(tmp_path / "archive.jsonl", {})
    assert (loaded.elites("p"), loaded.cells("p")) == (made.elites("p"), made.cells("p"))
    assert loaded.elites("p") == tuple(sorted(loaded.elites("p"), key=lambda elite: elite.cell))


def test_a_file_that_has_a_part_twice_is_refused_with_the_line(tmp_path):
    path = saved(tmp_path)  # join/one, join/two and in/one of one problem, join/one of another
    manifest = json.loads(manifest_path(path).read_text())
    for cells, line in (("approach", 3), ("structure", 2)):
        manifest_path(path).write_text(json.dumps(manifest | {"cells": cells}))
        with pytest.raises(ArchiveError, match=rf"line {line}: its problem has that {cells} already"):
            EliteArchive.load(path, {})
    manifest_path(path).write_text(json.dumps(manifest | {"cells": "shape"}))
    with pytest.raises(ArchiveError, match=r"cells must be one of both, approach, structure, got 'shape'"):
        EliteArchive.load(path, {})


def test_the_file_can_be_read_without_us(tmp_path):
    path = saved(tmp_path)
    lines = [json.loads(line) for line in path.read_bytes().decode().split("\n")[:-1]]
    assert [(x["problem_id"], x["approach"], x["structure"], x["solution"]) for x in lines] == [
        ("p", "in", "one", "ccc"),
        ("p", "join", "one", "aa"),
        ("p", "join", "two", "b"),
        ("q", "join", "one", "dd\n\u2028 ü"),
    ]
    assert all(bytes(x["token_ids"][:-1]).decode() == x["response"] and x["weight"] == 1.0 for x in lines)
    assert "ü" in path.read_text()
    manifest = json.loads((tmp_path / "archive.manifest.json").read_text())
    counts = {name: manifest[name] for name in ("elites", "problems", "problems_tried", "attempts")}
    assert counts == {"elites": 4, "problems": 2, "problems_tried": 2, "attempts": 4}
    assert manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert manifest["fingerprints"] == FINGERPRINTS
    assert sorted(f.name for f in tmp_path.iterdir()) == ["archive.jsonl", "archive.manifest.json"]


def test_equal_content_gives_equal_bytes_whatever_the_order(tmp_path):
    made = EliteArchive(judge, encode, dict(reversed(FINGERPRINTS.items())))
    made.insert(Q, "join/one/dd\n\u2028 ü")
    for response in ("in/one/ccc", "join/two/b", "join/one/aa"):
        made.insert(P, response)
    made.save(tmp_path / "other.jsonl")
    assert (tmp_path / "other.jsonl").read_bytes() == saved(tmp_path).read_bytes()
    assert (tmp_path / "other.manifest.json").read_bytes() == (tmp_path / "archive.manifest.json").read_bytes()


def test_a_loaded_archive_is_the_saved_one_and_frozen(tmp_path):
    loaded = EliteArchive.load(saved(tmp_path), {"tokenizer": "t1"})
    made = archive("join/one/aa", "join/two/b", "in/one/ccc")
    made.insert(Q, "join/one/dd\n\u2028 ü")
    assert loaded.frozen
    assert not hasattr(loaded, "insert")
    assert [loaded.elites(i) for i in loaded.problem_ids] == [made.elites(i) for i in made.problem_ids]
    assert (len(loaded), loaded.attempts, loaded.fingerprints) == (4, 4, FINGERPRINTS)


def test_a_loaded_archive_sorts_once_and_not_for_every_draw(tmp_path):
    loaded = EliteArchive.load(saved(tmp_path), {})
    assert [elite.response for elite in loaded.elites("p")] == ["in/one/ccc", "join/one/aa", "join/two/b"]
    assert loaded.elites("p") is loaded.elites("p")
    assert loaded.elites("nowhere") == ()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=4))
def test_any_text_comes_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("any") / "archive.jsonl"
    made = EliteArchive(lambda p, r: Judgement(r, Verdict(True, 1.0), Cell(r, r)), encode, {r: r for r in texts})
    for text in texts:
        made.insert(Problem(text, text), text)
    made.save(path)
    loaded = EliteArchive.load(path, {})
    assert [loaded.elites(i) for i in loaded.problem_ids] == [made.elites(i) for i in made.problem_ids]


def test_an_empty_archive_is_an_archive(tmp_path):
    path = tmp_path / "new" / "archive.jsonl"
    archive(Reason.ERROR.value).save(path)
    loaded = EliteArchive.load(path, FINGERPRINTS)
    assert (path.read_bytes(), len(loaded), loaded.problem_ids, loaded.attempts) == (b"", 0, (), 1)


def test_a_file_cut_off_anywhere_is_refused_with_the_line(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        on_a_boundary = length == 0 or whole[length - 1 : length] == b"\n"
        lines = whole[:length].count(b"\n")
        expected = (
            rf"each of its {lines} lines is whole, but they are not the 4"
            if on_a_boundary
            else rf"line {lines + 1}: it is cut off"
        )
        with pytest.raises(ArchiveError, match=expected):
            EliteArchive.load(path, {})


def test_any_changed_byte_is_refused_with_the_line(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        with pytest.raises(ArchiveError, match=rf"line {whole[:position].count(bytes([10])) + 1}: .*restore") as error:
            EliteArchive.load(path, {})
        assert "\n" not in str(error.value)


def without(lines):
    return lines[:1] + lines[2:]


def swapped(lines):
    return [lines[1], lines[0], *lines[2:]]


def doubled(lines):
    return lines[:1] + lines


def in_windows(lines):
    return [line.replace(b"\n", b"\r\n") for line in lines]


def not_an_elite(lines):
    return [lines[0], b"{}\n", *lines[1:]]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without, "each of its 3 lines is whole, but they are not the 4"),
        (swapped, "line 2: it is out of order"),
        (doubled, "line 2: it is out of order"),
        (in_windows, "line 1: it was edited"),
        (not_an_elite, "line 2: 'problem_id' is missing"),
    ],
)
def test_an_edited_file_is_refused_with_a_reason(tmp_path, edit, message):
    path = saved(tmp_path)
    path.write_bytes(b"".join(edit(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(ArchiveError, match=message):
        EliteArchive.load(path, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2; this release reads 'elite-archive', version 1"),
        ({"format": "other"}, "of format 'other'"),
        ({"sha256": "0"}, "each of its 4 lines is whole"),
        ({"elites": 5}, "not the 5"),
        ({"fingerprints": 3}, "not complete"),
        ({"more": 3}, "not complete"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, change, message):
    path = saved(tmp_path)
    manifest = json.loads(manifest_path(path).read_text())
    manifest_path(path).write_text(json.dumps(manifest | change))
    with pytest.raises(ArchiveError, match=message):
        EliteArchive.load(path, {})


def test_missing_and_broken_files_say_so(tmp_path):
    with pytest.raises(ArchiveError, match=r"no archive at .*archive.jsonl"):
        EliteArchive.load(tmp_path / "archive.jsonl", {})
    path = saved(tmp_path)
    manifest_path(path).write_text('{"format": ')
    with pytest.raises(ArchiveError, match=r"manifest.json is not an archive's manifest \(it is not JSON"):
        EliteArchive.load(path, {})
    manifest_path(path).unlink()
    with pytest.raises(ArchiveError, match="not written to its end"):
        EliteArchive.load(path, {})


def test_another_fingerprint_is_refused_by_name(tmp_path):
    path = saved(tmp_path)
    with pytest.raises(ArchiveError, match=r"another tokenizer \(t1 there, t2 here\)"):
        EliteArchive.load(path, {"domain": "d1", "tokenizer": "t2"})
    with pytest.raises(ArchiveError, match=r"another base_model \(None there"):
        EliteArchive.load(path, {"base_model": "b"})


def test_nothing_is_overwritten_and_an_unfinished_file_is_finished(tmp_path):
    path = saved(tmp_path)
    before, manifest = path.read_bytes(), manifest_path(path).read_bytes()
    for other in (archive("join/one/z"), EliteArchive(judge, encode, {})):
        with pytest.raises(ArchiveError, match="already holds another archive"):
            other.save(path)
    assert path.read_bytes() == before
    manifest_path(path).unlink()
    saved(tmp_path)
    assert (path.read_bytes(), manifest_path(path).read_bytes()) == (before, manifest)


def test_another_search_with_the_same_elites_does_not_overwrite_the_manifest(tmp_path):
    path = saved(tmp_path)
    manifest = manifest_path(path).read_bytes()
    made = archive("join/one/aa", "join/two/b", "in/one/ccc", Reason.ERROR.value)
    made.insert(Q, "join/one/dd\n\u2028 ü")
    with pytest.raises(ArchiveError, match=r"manifest\.json already holds another"):
        made.save(path)
    assert manifest_path(path).read_bytes() == manifest
