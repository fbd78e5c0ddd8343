"""A search whose approaches a labeler names: over a real HTTP server, through the real search, with stops anywhere."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from arithmetic_engine import CharacterCodec, RewritingEngine
from chat_server import LABELS, ChatServer, kind_of, label_arithmetic
from test_search_resume import StoppingEngine

from elite_lightning.archive import ArchiveError, EliteArchive
from elite_lightning.domains.arithmetic import ArithmeticDomain, make_problems
from elite_lightning.errors import UsageError
from elite_lightning.search import (
    Endpoint,
    IidSearch,
    JournalError,
    LlmLabeler,
    MapElitesSearch,
    SearchJournal,
    SearchSettings,
    Vocabulary,
    search_fingerprints,
)
from elite_lightning.search.labeling import Solved
from elite_lightning.search.labeling.labeler import spread
from elite_lightning.types import Completion, FinishReason
from elite_lightning.verify import VerificationPool

SETTINGS = SearchSettings(16, 4, 3, problems_per_round=4, batch_problems=2)
NAMES = {"copied", "swapped_operands", "full_expansion"}
FORM_OF = {"copied": "direct", "verbatim_copy": "direct", "swapped_operands": "commuted", "reordering": "commuted"}
FORM_OF |= {
    "full_expansion": "expanded",
    "spread_out": "expanded",
    "regrouped": "grouped",
    "partial_expansion": "grouped",
}


class FollowingEngine(StoppingEngine):
    """Understands what the labeler's names ask for; the test keeps the prompts as they came."""

    def generate(self, prompts, n, sampling, seed):
        came = ["".join(map(chr, prompt)) for prompt in prompts]
        read = [re.sub(r"form: (\w+).*", lambda m: f"form: {FORM_OF[m[1]]}", text) for text in came]
        groups = super().generate([list(map(ord, text)) for text in read], n, sampling, seed)
        self.prompts[-len(came) :] = came
        return groups


@pytest.fixture
def server():
    with ChatServer(label_arithmetic) as running:
        yield running


def make(folder, server, engine=None, cls=MapElitesSearch, labeler=None, how=SETTINGS, problems=8, **more):
    pool = VerificationPool(ArithmeticDomain(), workers=0)
    if labeler is None:
        labeler = LlmLabeler(Endpoint("m", server.url, retries=0, concurrency=4))
    engine, problems = engine or FollowingEngine(), make_problems(problems)
    return cls(
        ArithmeticDomain(), engine, CharacterCodec(), pool, problems, folder, "base", how, labeler=labeler, **more
    )


def attempts_of(search):
    with SearchJournal(search.journal_path(search.rank)) as journal:
        return list(journal.attempts())


def everything(search, folder):
    """Bytes of the archive's files and of the vocabulary, and all rows of the journal."""
    search.run().save(folder / "archive.jsonl")
    names = ("archive.jsonl", "archive.manifest.json", "vocabulary.json")
    return [(folder / name).read_bytes() for name in names], attempts_of(search)


def test_elites_are_filed_under_the_labelers_names(tmp_path, server):
    search = make(tmp_path, server)
    archive = search.run()
    expressions = {p.id: p.data["expression"] for p in search.problems}
    found = Counter()
    for attempt in attempts_of(search):
        if attempt.outcome.correct:
            label = LABELS[kind_of(expressions[attempt.problem_id], attempt.solution)]
            assert attempt.cell.approach == label
            found[label] += 1
    assert set(found) == NAMES | {"other"}
    elites = [elite for problem_id in archive.problem_ids for elite in archive.elites(problem_id)]
    assert elites
    # The structure is the domain's, and a cell holds the shortest that was found for it.
    best = {}
    for a in attempts_of(search):
        if a.outcome.correct:
            best[a.problem_id, a.cell] = min(best.get((a.problem_id, a.cell), 999), len(a.response))
    assert {(e.problem_id, e.cell): len(e.response) for e in elites} == best
    assert all(e.cell.structure.startswith("operands=") for e in elites)


def test_the_vocabulary_is_what_was_merged_and_the_search_aims_at_it(tmp_path, server):
    engine = FollowingEngine()
    search = make(tmp_path, server, engine)
    search.run()
    content = json.loads((tmp_path / "vocabulary.json").read_text())
    by_name = {a["name"]: a for a in content["approaches"]}
    assert set(by_name) == NAMES
    assert by_name["copied"]["synonyms"] == ["verbatim_copy"]
    asked = {a.asked for a in attempts_of(search)} - {None}
    assert asked == NAMES
    shown = {line for prompt in engine.prompts for line in prompt.splitlines() if line.startswith("form: ")}
    assert "form: full_expansion: no bracket is left" in shown


def test_the_manifest_names_labeler_and_vocabulary_and_another_labeler_is_refused(tmp_path, server):
    search = make(tmp_path, server)
    everything(search, tmp_path)
    fingerprints = json.loads((tmp_path / "archive.manifest.json").read_text())["fingerprints"]
    assert fingerprints["vocabulary"] == json.loads((tmp_path / "vocabulary.json").read_text())["fingerprint"]

    def expected(labeler):
        parts = (SETTINGS, ArithmeticDomain(), CharacterCodec(), make_problems(8), "base")
        return search_fingerprints("map_elites", *parts, labeler)

    same = LlmLabeler(Endpoint("m", "http://elsewhere/v1", timeout_s=1, retries=9, concurrency=1))
    EliteArchive.load(tmp_path / "archive.jsonl", expected(same))
    for other in (None, LlmLabeler(), LlmLabeler(Endpoint("n")), LlmLabeler(Endpoint("m"), max_approaches=3)):
        with pytest.raises(ArchiveError, match="another search"):
            EliteArchive.load(tmp_path / "archive.jsonl", expected(other))
    with pytest.raises(UsageError, match="another labeler induced it"):
        make(tmp_path, server, labeler=LlmLabeler(Endpoint("n", server.url))).run()
    parts = (CharacterCodec(), search.pool, make_problems(8), tmp_path, "base", SETTINGS)
    plain = MapElitesSearch(ArithmeticDomain(), FollowingEngine(), *parts)
    with pytest.raises(JournalError, match="labeler = "):
        plain.run()


def test_a_solution_is_asked_about_once_and_a_finished_search_asks_nothing(tmp_path, server):
    expected = everything(make(tmp_path, server), tmp_path)
    labels = [p for p in server.prompts if "Approaches:" in p]
    assert (
        len(labels) == len(set(labels)) == len({(a.problem_id, a.solution) for a in expected[1] if a.outcome.correct})
    )
    del server.requests[:]
    (tmp_path / "labels.sqlite").unlink()  # the journal is enough
    again = make(tmp_path, server, FollowingEngine(stop_at=0))
    assert everything(again, tmp_path) == expected
    assert again.merged().cells("arithmetic-1") == again.run().cells("arithmetic-1")
    assert server.requests == []


@pytest.mark.parametrize("cls", [MapElitesSearch, IidSearch])
def test_a_search_stopped_at_any_batch_goes_on_to_the_same_archive(tmp_path, server, cls):
    whole = make(tmp_path / "whole", server, cls=cls, problems=4)
    expected = everything(whole, tmp_path / "whole")
    for stop_at in range(whole.engine.calls):
        folder = tmp_path / f"{stop_at}"
        with pytest.raises(KeyboardInterrupt):
            make(folder, server, FollowingEngine(stop_at), cls, problems=4).run()
        assert everything(make(folder, server, cls=cls, problems=4), folder) == expected


def test_a_server_that_stops_at_any_request_loses_nothing(tmp_path, server):
    """Between any two answers: within the check, the naming, the merging, the seeds' labels, a batch's labels."""
    expected = everything(make(tmp_path / "whole", server, problems=4), tmp_path / "whole")
    total = len(server.requests)
    for stop_after in sorted({*range(0, total, 4), total - 1}):
        folder = tmp_path / f"{stop_after}"
        del server.requests[:]
        server.stop_after = stop_after
        with pytest.raises(UsageError, match="503"):
            make(folder, server, problems=4).run()
        server.stop_after = None
        assert everything(make(folder, server, problems=4), folder) == expected


def search_and_die(folder, url, verification):
    """What a killed process does: dies hard at one of its verifications."""
    from elite_lightning.domains import arithmetic

    count = iter(range(verification))

    class Dying(arithmetic.ArithmeticDomain):
        def verify(self, problem, solution):
            if next(count, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().verify(problem, solution)

    server = type("Address", (), {"url": url})
    search = make(Path(folder), server)
    search.pool = VerificationPool(Dying(), workers=0)
    search.run()


@pytest.mark.parametrize("verification", [10, 60])
def test_a_search_that_was_killed_goes_on_to_the_same_archive(tmp_path, server, verification):
    expected = everything(make(tmp_path / "whole", server), tmp_path / "whole")
    folder = tmp_path / "killed"
    code = f"import test_search_labeler as t; t.search_and_die({str(folder)!r}, {server.url!r}, {verification})"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    process = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, check=False)
    assert process.returncode == -signal.SIGKILL
    assert (folder / "vocabulary.json").exists() == (verification == 60)
    assert everything(make(folder, server), folder) == expected


def test_the_journal_decides_when_the_model_changes_its_mind(tmp_path, server):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, server, FollowingEngine(stop_at=12)).run()
    before = attempts_of(make(tmp_path, server))
    (tmp_path / "labels.sqlite").unlink()
    server.answer = lambda prompt: "copied"
    search = make(tmp_path, server)
    search.run()
    after = attempts_of(search)
    assert after[: len(before)] == before
    known = {(a.problem_id, a.solution): a.cell for a in before if a.cell}
    later = [a for a in after[len(before) :] if a.outcome.correct]
    new = [a for a in later if (a.problem_id, a.solution) not in known]
    assert new
    assert {a.cell.approach for a in new} == {"copied"}
    assert all(a.cell == known[a.problem_id, a.solution] for a in later if (a.problem_id, a.solution) in known)


def test_another_vocabulary_than_the_journals_is_refused(tmp_path, server):
    search = make(tmp_path, server)
    search.run()
    kept = (tmp_path / "vocabulary.json").read_bytes()
    loaded = Vocabulary.load(tmp_path / "vocabulary.json", search.fingerprints["labeler"])
    Vocabulary(loaded.approaches[:2]).save(tmp_path / "vocabulary.json", search.fingerprints["labeler"])
    with pytest.raises(JournalError, match="labelled with another vocabulary"):
        make(tmp_path, server).run()
    (tmp_path / "vocabulary.json").write_bytes(kept)
    make(tmp_path, server, FollowingEngine(stop_at=0)).run()


def test_ranks_share_one_vocabulary_and_merge(tmp_path, server):
    ranks = [make(tmp_path, server, rank=rank, world_size=2) for rank in (0, 1)]
    with pytest.raises(JournalError, match="rank1"):
        ranks[0].run()  # alone: the other one has no seed samples yet
    for search in ranks:
        search.seed()
    names = {search.learn_vocabulary().fingerprint for search in ranks}
    ranks[0].run()
    with pytest.raises(JournalError, match="holds 16 of 64"):
        ranks[0].merged()
    parts = [search.run() for search in ranks]
    merged = ranks[0].merged()
    for part in parts:
        for problem_id in part.problem_ids:
            assert merged.elites(problem_id) == part.elites(problem_id)
    assert len(names) == 1
    assert {path.name for path in tmp_path.glob("labels*.sqlite")} == {"labels.rank0.sqlite", "labels.rank1.sqlite"}


def test_seeds_without_names_are_not_merged(tmp_path, server):
    seeds_only = SearchSettings(4, 4, 3, problems_per_round=4)
    ranks = [make(tmp_path, server, rank=rank, world_size=2, how=seeds_only) for rank in (0, 1)]
    for search in ranks:
        search.seed()
    ranks[0].learn_vocabulary()
    ranks[0].run()
    with pytest.raises(JournalError, match="has no approach yet"):
        ranks[0].merged()


class ChattingEngine(FollowingEngine):
    """A policy that can also follow the labeler's instructions."""

    def __init__(self):
        super().__init__()
        self.temperatures = set()

    def generate(self, prompts, n, sampling, seed):
        texts = ["".join(map(chr, prompt)) for prompt in prompts]
        if not any("Problem:" in text or "Merge synonyms" in text for text in texts):
            return super().generate(prompts, n, sampling, seed)
        self.temperatures.add((sampling.temperature, n))
        return [[Completion((0,), (0.0,), FinishReason.STOP, label_arithmetic(text))] for text in texts]


def test_the_policy_itself_can_be_the_labeler(tmp_path, server):
    engine = ChattingEngine()
    ours = everything(make(tmp_path / "policy", server, engine, labeler=LlmLabeler()), tmp_path / "policy")
    assert server.requests == []
    assert engine.temperatures == {(0.0, 1)}
    theirs = everything(make(tmp_path / "server", server), tmp_path / "server")
    assert ours[0][0] == theirs[0][0]
    assert ours[1] == theirs[1]


def test_the_most_frequent_names_are_taken_when_the_merged_list_cannot_be_read(tmp_path, server):
    seeds = [Solved(problem, f"solution {problem.id}") for problem in make_problems(9)]
    first, *others = [solved.solution for solved in spread(seeds, 99)]
    names = {
        first: "Rare",
        **dict.fromkeys(others[:3], "Often: first words"),
        **dict.fromkeys(others[3:], "more often"),
    }
    names[others[2]] = "**Often**: other words"

    def answer(prompt):
        if "Merge synonyms" in prompt:
            return "I cannot do that."
        return names[re.search(r"Solution:\n(.*)\n", prompt)[1]]

    server.answer = answer
    session = LlmLabeler(Endpoint("m", server.url), max_approaches=2).open(None, None, tmp_path / "labels.sqlite")
    approaches = session.induce(seeds[::-1]).approaches
    session.close()
    assert [(a.name, a.definition, a.synonyms) for a in approaches] == [
        ("more_often", "", ()),
        ("often", "first words", ()),
    ]
    assert "- often (3): first words" in server.prompts[-1]


def test_what_a_labeler_cannot_work_with_is_one_clear_line(tmp_path, server):
    with pytest.raises(UsageError, match="no seed sample is right") as caught:
        make(tmp_path / "a", server, RewritingEngine(always="?")).run()
    assert "\n" not in str(caught.value)
    server.answer = lambda prompt: "..."
    with pytest.raises(UsageError, match=r"named no approach in \d+ correct seed solutions"):
        make(tmp_path / "b", server).run()
    server.stop_after = 0
    engine = FollowingEngine()
    with pytest.raises(UsageError, match="gave no answer"):
        make(tmp_path / "c", server, engine).run()
    assert engine.calls == 0  # found out before anything was generated
    with pytest.raises(UsageError, match="has no labeler"):
        MapElitesSearch(
            ArithmeticDomain(), engine, CharacterCodec(), VerificationPool(ArithmeticDomain(), 0), [], tmp_path, "b"
        ).learn_vocabulary()


@pytest.mark.parametrize("settings", [{"max_approaches": 0}, {"induction_samples": 0}, {"max_new_tokens": 0}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        LlmLabeler(**settings)
