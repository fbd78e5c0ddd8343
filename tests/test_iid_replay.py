"""Replay of plain samples: what each weighting keeps, its file, its budget, and the commands."""

import json
import shutil
from collections import Counter, defaultdict

import pytest
import yaml
from conftest import ROOT, run_process
from hypothesis import given, settings
from hypothesis import strategies as st
from test_archive import FINGERPRINTS, encode, judge
from test_resume import training_rows
from test_search import SameAgainEngine, content, make
from toy import LetterDomain, LetterSource, letter_problems

from datamodules.elite import EliteDataModule
from elite_lightning.archive import ArchiveError, ArchiveFrozenError, EliteArchive
from elite_lightning.archive_file import manifest_path
from elite_lightning.domains.arithmetic import make_problems
from elite_lightning.run_folder import flatten
from elite_lightning.samples import Keeping, SampleArchive, limits_of
from elite_lightning.search import IidSearch, SearchJournal
from elite_lightning.types import Problem

WEIGHTINGS = ["frequency", "text", "cell"]
P, Q = Problem("p", "?"), Problem("q", "?")
# Right responses `approach/structure/text` and a wrong one; white space tells two of them apart and nothing else.
RESPONSES = ["x/1/aa", "x/1/b", "x/1/b ", "x/1/b\tc", "x/1/b c", "y/1/aaa", "y/2/a", "wrong_result"]
WRITTEN = st.lists(st.tuples(st.sampled_from([P, Q]), st.sampled_from(RESPONSES)), max_size=25)


def filled(written, weighting, limits=None, seed=0, cells="both"):
    made = SampleArchive(judge, encode, FINGERPRINTS, Keeping(weighting, limits, seed), cells)
    outcomes = [made.insert(problem, response) for problem, response in written]
    return made, outcomes


def kept(archive):
    return {problem_id: [elite.response for elite in archive.elites(problem_id)] for problem_id in archive.problem_ids}


PARTS = {"both": slice(0, 2), "approach": slice(0, 1), "structure": slice(1, 2)}
"""Of `approach/structure/text`, what tells cells apart."""


def expected(written, weighting, cells="both"):
    """What should be kept, as multisets, from the definition."""
    right = defaultdict(list)
    for problem, response in written:
        if response != "wrong_result":
            right[problem.id].append(response)
    if weighting == "frequency":
        return {problem_id: Counter(responses) for problem_id, responses in right.items()}

    def place(response):
        return tuple(response.split("/")[PARTS[cells]]) if weighting == "cell" else " ".join(response.split())

    out = {}
    for problem_id, responses in right.items():
        best = {}
        for response in responses:  # the first of the shortest
            if place(response) not in best or len(response) < len(best[place(response)]):
                best[place(response)] = response
        out[problem_id] = Counter(best.values())
    return out


@settings(deadline=None)
@given(WRITTEN, st.sampled_from(WEIGHTINGS), st.sampled_from(list(PARTS)))
def test_each_weighting_keeps_what_it_says_and_counts_like_any_archive(written, weighting, cells):
    made, outcomes = filled(written, weighting, cells=cells)
    assert {i: Counter(responses) for i, responses in kept(made).items()} == expected(written, weighting, cells)
    assert len(made) == sum(map(len, kept(made).values()))
    plain = EliteArchive(judge, encode, FINGERPRINTS, cells)
    assert outcomes == [plain.insert(problem, response) for problem, response in written]
    assert all(made.cells(i) == plain.cells(i) for i in ("p", "q"))
    assert made.attempts == plain.attempts == len(written)


@settings(max_examples=40, deadline=None)
@given(WRITTEN, st.sampled_from(WEIGHTINGS))
def test_what_is_saved_comes_back_and_cannot_be_edited(tmp_path_factory, written, weighting):
    made, _ = filled(written, weighting)
    made.freeze()
    with pytest.raises(ArchiveFrozenError):
        made.insert(P, RESPONSES[0])
    path = tmp_path_factory.mktemp("saved") / "archive.jsonl"
    made.save(path)
    back = EliteArchive.load(path, FINGERPRINTS)
    assert kept(back) == kept(made)
    assert all(back.elites(i) == made.elites(i) and back.cells(i) == made.cells(i) for i in made.problem_ids)
    assert back.frozen
    assert back.attempts == len(written)
    assert json.loads(manifest_path(path).read_text())["format"] == "elite-samples"
    lines = path.read_bytes().splitlines(keepends=True)
    if lines:
        for edited in (lines[1:], [*lines, lines[-1]]):
            path.write_bytes(b"".join(edited))
            with pytest.raises(ArchiveError, match=r"each of its .* lines is whole, but they are not the"):
                EliteArchive.load(path, FINGERPRINTS)


def test_repeats_and_disorder_are_told_apart(tmp_path):
    made, _ = filled([(P, "x/1/a"), (P, "x/1/a"), (P, "x/1/b")], "frequency")
    path = tmp_path / "archive.jsonl"
    made.save(path)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    path.write_bytes(b"".join(reversed(lines)))
    with pytest.raises(
        ArchiveError, match="line 2: it is out of order: lines are sorted by problem, cell and response"
    ):
        EliteArchive.load(path, {})
    # An archive of elites still has each cell once.
    manifest = json.loads(manifest_path(path).read_text())
    manifest_path(path).write_text(json.dumps(manifest | {"format": "elite-archive"}))
    path.write_bytes(b"".join(lines))
    with pytest.raises(ArchiveError, match=r"line 2: it is out of order: .* each cell once"):
        EliteArchive.load(path, {})


def test_limits_keep_a_random_choice_and_no_repeats_to_fill_up():
    written = [(P, f"x/1/{n:02}") for n in range(20)] + [(Q, "x/1/a")]
    chosen = []
    for seed in (0, 0, 1):
        made, _ = filled(written, "frequency", {"p": 5, "q": 3}, seed)
        made.freeze()
        made.freeze()
        chosen.append(kept(made))
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(set(chosen[0]["p"])) == 5
    assert set(chosen[0]["p"]) <= {response for problem, response in written if problem is P}
    assert chosen[0]["q"] == ["x/1/a"]
    unnamed, _ = filled(written, "frequency", {"q": 3})
    unnamed.freeze()
    assert unnamed.problem_ids == ("q",)


def test_a_choice_among_samples_is_fair():
    counts = Counter()
    for seed in range(300):
        made, _ = filled([(P, f"x/1/{n}") for n in range(4)], "frequency", {"p": 2}, seed)
        made.freeze()
        counts.update(kept(made)["p"])
    # Each of the four is among the two kept with chance 1/2: 150 +- 8.7; five standard deviations.
    assert set(counts) == {f"x/1/{n}" for n in range(4)}
    assert all(abs(count - 150) < 44 for count in counts.values())


def test_replay_follows_the_frequencies_and_balances_problems(tmp_path):
    made, _ = filled([(P, "x/1/a")] * 6 + [(P, "y/1/b")] * 2 + [(Q, "x/1/c")], "frequency")
    path = tmp_path / "archive.jsonl"
    made.save(path)
    data = EliteDataModule(LetterSource(), problems_per_step=0, replay_per_step=32)
    data.train_problems = {"p": letter_problems("train", 1)[0], "q": letter_problems("train", 2)[1]}
    data.use_archive(EliteArchive.load(path, {}))
    drawn = next(iter(data.train_dataloader())).replay
    # 32 draws: 16 a problem, and those of p in two passes over its six and two.
    assert Counter(item.response for item in drawn) == {"x/1/a": 12, "y/1/b": 4, "x/1/c": 16}
    assert {item.weight for item in drawn} == {1.0}


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_number_of_ranks_does_not_show_in_what_is_kept(tmp_path, weighting):
    keeping = Keeping(weighting, {problem.id: 3 for problem in make_problems(8)}, seed=4)
    files = []
    for world_size in (1, 3):
        folder, engine = tmp_path / str(world_size), SameAgainEngine()
        ranks = [
            make(folder, IidSearch, engine=engine, rank=rank, world_size=world_size, keeping=keeping)
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.run()
        merged = ranks[0].merged()
        merged.freeze()
        files.append(content(merged, folder))
        kept_of = {i: len(merged.elites(i)) for i in merged.problem_ids}
        assert set(kept_of) <= keeping.limits.keys()  # two of the ten problems have no limit and keep nothing
        assert max(kept_of.values()) == 3
    assert files[0] == files[1]


# Through the commands.


@pytest.fixture
def iid(cli, toy_config):
    """Runs a command with plain samples instead of the search, and the same budget."""
    config = yaml.safe_load(toy_config.read_text())
    config["search"]["class_path"] = "callbacks.IidPreSearch"
    toy_config.write_text(yaml.safe_dump(config))
    return cli


def lines_of(run):
    return [json.loads(line) for line in (run / "archive.jsonl").read_text().splitlines()]


def attempts_of(run):
    with SearchJournal(run / "iid.sqlite") as journal:
        return list(journal.attempts())


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_fit_replays_what_the_plain_samples_of_the_journal_say(iid, tmp_path, weighting):
    run = tmp_path / "run"
    assert iid("fit", "--search.weighting", weighting, "--evaluation.baseline", "false") == (0, "")
    attempts, problems, domain = attempts_of(run), {p.id: p for p in letter_problems("train", 8)}, LetterDomain()
    assert Counter(a.problem_id for a in attempts) == dict.fromkeys(problems, 16)
    assert all(a.asked is None for a in attempts)
    right = [a for a in attempts if a.solution and a.outcome.correct]
    assert all(domain.verify(problems[a.problem_id], a.solution).correct for a in right)
    lines = lines_of(run)
    if weighting == "frequency":
        assert Counter((e["problem_id"], e["response"]) for e in lines) == Counter(
            (a.problem_id, a.response) for a in right
        )
        assert len(lines) > len({(e["problem_id"], e["response"]) for e in lines})
    elif weighting == "text":
        assert sorted((e["problem_id"], e["response"]) for e in lines) == sorted(
            {(a.problem_id, a.response) for a in right}
        )
    else:
        assert len({(e["problem_id"], e["approach"], e["structure"]) for e in lines}) == len(lines)
        assert {(e["problem_id"], e["approach"], e["structure"]) for e in lines} == {
            (a.problem_id, *a.cell) for a in right
        }
    report = json.loads((run / "search.json").read_text())
    assert report["replay_items"] == len(lines)
    assert report["attempts"] == 8 * 16
    assert json.loads((run / "archive.manifest.json").read_text())["fingerprints"]["weighting"] == weighting
    assert all("train/loss_replay" in row for row in training_rows(run))


def test_one_journal_serves_every_weighting_and_an_archive_only_its_own(iid, tmp_path):
    run = tmp_path / "run"
    assert iid("search", "--search.weighting", "frequency")[0] == 0
    again = ("--run_dir", str(tmp_path / "again"), "--search.weighting", "text")
    shutil.copytree(run, tmp_path / "again")
    (tmp_path / "again" / "config.yaml").unlink()
    code, err = iid("search", *again)
    assert code == 2
    assert "was made with another weighting (frequency there, text here)" in err
    for name in ("archive.jsonl", "archive.manifest.json"):
        (tmp_path / "again" / name).unlink()
    assert iid("search", *again) == (0, "")
    assert attempts_of(tmp_path / "again") == attempts_of(run)
    assert 0 < len(lines_of(tmp_path / "again")) < len(lines_of(run))


def test_killed_sampling_ends_with_the_same_file(iid, toy_config, tmp_path):
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    small = ("--search.settings.batch_problems", "2")
    assert iid("search", "--run_dir", str(undisturbed), *small)[0] == 0
    code, _, err = run_process("search", "--config", toy_config, *small, TOY_KILL_AT_VERIFICATION="30")
    assert code == -9, err
    assert not (run / "archive.jsonl").exists()
    assert 0 < len(attempts_of(run)) < 8 * 16
    assert iid("search", *small) == (0, "")
    for name in ("archive.jsonl", "archive.manifest.json"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes()


def test_stored_items_are_matched_to_another_runs_archive(iid, tmp_path):
    other, run = tmp_path / "other", tmp_path / "run"
    elites = (
        "--search",
        "callbacks.MapElitesPreSearch",
        "--search.settings",
        json.dumps(SMALL),
        "--run_dir",
        str(other),
    )
    assert iid("search", *elites) == (0, "")
    matched = ("--search.match_items_of", str(other / "archive.jsonl"))
    assert iid("search", *matched) == (0, "")
    theirs = Counter(e["problem_id"] for e in lines_of(other))
    samples = Counter(a.problem_id for a in attempts_of(run) if a.outcome.correct)
    ours = Counter(e["problem_id"] for e in lines_of(run))
    assert ours == {i: min(theirs[i], samples[i]) for i in theirs if samples[i]}
    assert any(ours[i] < samples[i] for i in ours)
    assert iid("search", *matched) == (0, "")  # read again, and it fits
    (run / "config.yaml").unlink()
    code, err = iid("search")
    assert code == 2
    assert "was made with another limits" in err
    assert limits_of(other / "archive.jsonl", {}) == theirs


def test_an_archive_for_something_else_is_no_measure(iid, tmp_path):
    other = tmp_path / "other"
    assert iid("search", "--run_dir", str(other), "--data.source.train_problems", "7")[0] == 0
    code, err = iid("search", "--search.match_items_of", str(other / "archive.jsonl"))
    assert code == 2
    assert "was made with another problems" in err
    elsewhere = ("--run_dir", str(tmp_path / "elsewhere"))
    code, err = iid("search", *elsewhere, "--search.match_items_of", str(tmp_path / "nowhere.jsonl"))
    assert code == 2
    assert "no archive at" in err


SMALL = {"attempts_per_problem": 16, "seed_samples": 4, "sampling": {"max_new_tokens": 6}}


def test_the_shipped_configuration_differs_from_the_search_in_the_samples_alone():
    elite, plain = (
        flatten(yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text()))
        for name in ("quickstart", "quickstart_iid")
    )
    different = {key for key in elite.keys() | plain.keys() if elite.get(key) != plain.get(key)}
    assert different == {"run_dir", "search.class_path", "search.init_args.weighting"}
