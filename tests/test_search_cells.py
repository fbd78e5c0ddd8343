"""Cells told apart by approach, by structure, or by both: the whole search against a brute force over its journals."""

import hashlib
import json
from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import yaml
from chat_server import ChatServer
from test_search import SameAgainEngine, content, make
from test_search_labeler import attempts_of as labelled_attempts_of
from test_search_labeler import label_arithmetic
from test_search_labeler import make as make_labelled
from test_search_resume import SETTINGS, StoppingEngine, everything
from test_search_resume import make as make_resumable
from toy import LetterDomain, letter_problems

from elite_lightning.archive import ArchiveError, EliteArchive, Outcome
from elite_lightning.domains.arithmetic import FORMS, ArithmeticDomain
from elite_lightning.errors import UsageError
from elite_lightning.samples import Keeping
from elite_lightning.search import IidSearch, JournalError, MapElitesSearch, SearchJournal, SearchSettings
from elite_lightning.types import Cell

KEYS = {
    "both": lambda cell: (cell.approach, cell.structure),
    "approach": lambda cell: (cell.approach, ""),
    "structure": lambda cell: ("", cell.structure),
}
ALONE = ["approach", "structure"]
SMALL = SearchSettings(40, 4, 3, problems_per_round=4, batch_problems=3, use_success_rates=False)


def with_cells(cells, how=SMALL):
    return replace(how, cells=cells)


def all_attempts(*searches):
    """Of all ranks, one rank after the other."""
    attempts = []
    for search in searches:
        with SearchJournal(search.journal_path(search.rank)) as journal:
            attempts += journal.attempts()
    return attempts


def shortest(attempts, cells):
    """The first of the shortest right attempts of each (problem, key), checking each outcome on the way."""
    best = {}
    for a in attempts:
        if a.cell is None:
            assert not a.outcome.correct
            continue
        place = (a.problem_id, KEYS[cells](a.cell))
        if place not in best:
            assert a.outcome is Outcome.INSERTED
        elif len(a.response) < len(best[place].response):
            assert a.outcome is Outcome.REPLACED
        else:
            assert a.outcome is Outcome.NOT_SHORTER
            continue
        best[place] = a
    return best


def contents(archive):
    """Each elite under its problem, with the whole cell that it realises."""
    return sorted((e.problem_id, e.cell, e.response) for i in archive.problem_ids for e in archive.elites(i))


def listed(best):
    return sorted((problem_id, a.cell, a.response) for (problem_id, _), a in best.items())


@pytest.mark.parametrize("cells", KEYS)
@pytest.mark.parametrize("cls", [MapElitesSearch, IidSearch])
def test_the_archive_has_the_shortest_right_attempt_of_each_cell(tmp_path, cls, cells):
    seen = []
    search = make(tmp_path, cls, how=with_cells(cells), on_progress=seen.append)
    archive = search.run()
    attempts = all_attempts(search)
    best = shortest(attempts, cells)
    assert contents(archive) == contents(search.merged()) == listed(best)
    assert {(i, cell) for i in archive.problem_ids for cell in archive.cells(i)} == best.keys()
    report = search.report()
    assert report.elites == seen[-1].elites == len(archive) == len(best)
    assert report.cells_per_problem == len(best) / 10
    # Either part alone makes fewer cells of the same attempts, and neither is the other.
    whole = {(a.problem_id, a.cell) for a in attempts if a.cell}
    assert (len(best) == len(whole)) == (cells == "both")
    # The journal has whole cells in any case.
    domain, problems = ArithmeticDomain(), {p.id: p for p in search.problems}
    assert all(a.cell == domain.cell(problems[a.problem_id], a.solution) for a in attempts if a.cell)
    # And the file is the archive.
    content(archive, tmp_path)
    loaded = EliteArchive.load(tmp_path / "archive.jsonl", search.fingerprints)
    assert contents(loaded) == contents(archive)
    assert all(
        loaded.elites(i) == archive.elites(i) and loaded.cells(i) == archive.cells(i) for i in loaded.problem_ids
    )
    assert loaded.told_apart_by == archive.told_apart_by == cells


@pytest.mark.parametrize("cells", KEYS)
def test_turns_go_by_the_cells_targets_by_the_approaches_and_parents_are_elites(tmp_path, cells):
    search = make(tmp_path, how=with_cells(cells))
    search.run()
    rounds = defaultdict(list)
    for a in all_attempts(search):
        rounds[a.round].append(a)
    spent, asked, found, best = Counter(), defaultdict(Counter), defaultdict(set), {}
    shown = Counter()
    for round_, attempts in sorted(rounds.items()):
        first = {a.problem_id: a for a in attempts}
        occupied = Counter(problem_id for problem_id, _ in best)
        if round_ >= 3:  # after the seed samples of ten problems, four a round
            turns = sorted(search.problems, key=lambda p: spent[p.id] + 3 * occupied[p.id])
            assert list(first) == [p.id for p in turns[: len(first)]]
        for problem_id, a in first.items():
            if a.asked is None:
                assert occupied[problem_id] == 0
                continue
            candidates = set(FORMS) - found[problem_id] or set(FORMS)
            assert a.asked in candidates
            assert asked[problem_id][a.asked] == min(asked[problem_id][form] for form in candidates)
            asked[problem_id][a.asked] += 1
            elites = {b.id: b for (i, _), b in best.items() if i == problem_id}
            others = {id_ for id_, b in elites.items() if b.cell.approach != a.asked} or elites.keys()
            assert set(a.parents) <= set(others)
            shown.update(a.parents)
        for a in attempts:
            spent[a.problem_id] += 1
            if a.cell:
                found[a.problem_id].add(a.cell.approach)
            if a.outcome in (Outcome.INSERTED, Outcome.REPLACED):
                best[a.problem_id, KEYS[cells](a.cell)] = a
    assert shown


def test_an_approach_whose_structure_was_taken_is_not_asked_for_again_and_again(tmp_path):
    """By structure alone, an approach that was found need not have an elite any more."""
    search = make(tmp_path, how=with_cells("structure"))
    archive = search.run()
    found = defaultdict(set)
    for a in all_attempts(search):
        if a.cell:
            found[a.problem_id].add(a.cell.approach)
    elites = {i: {e.cell.approach for e in archive.elites(i)} for i in archive.problem_ids}
    assert all(elites[i] <= found[i] for i in found)
    assert any(elites[i] < found[i] for i in found)


@pytest.mark.parametrize("cells", ALONE)
def test_a_search_stopped_at_a_batch_goes_on_to_the_same_archive(tmp_path, cells):
    how = with_cells(cells, SETTINGS)
    whole = make_resumable(tmp_path / "whole", how=how)
    expected = everything(whole, tmp_path / "whole")
    assert any(a.parents for a in expected[1])
    for stop_at in range(1, whole.engine.calls, 3):
        folder = tmp_path / f"{stop_at}"
        with pytest.raises(KeyboardInterrupt):
            make_resumable(folder, StoppingEngine(stop_at), how=how).run()
        assert everything(make_resumable(folder, how=how), folder) == expected


@pytest.mark.parametrize("cells", ALONE)
def test_ranks_are_merged_into_one_archive_with_each_cell_once(tmp_path, cells):
    ranks = [make(tmp_path, rank=rank, world_size=3, how=with_cells(cells)) for rank in range(3)]
    for rank in ranks:
        rank.run()
    merged = ranks[0].merged()
    assert contents(merged) == listed(shortest(all_attempts(*ranks), cells))
    assert ranks[0].report().elites == len(merged)


@pytest.mark.parametrize("cells", ALONE)
@pytest.mark.parametrize("weighting", ["frequency", "text", "cell"])
def test_the_number_of_ranks_does_not_show_in_what_is_kept_of_plain_samples(tmp_path, cells, weighting):
    files, kept = [], []
    for world_size in (1, 3):
        folder, engine = tmp_path / str(world_size), SameAgainEngine()
        settings = {"how": with_cells(cells), "keeping": Keeping(weighting)}
        ranks = [
            make(folder, IidSearch, 10, engine, rank=r, world_size=world_size, **settings) for r in range(world_size)
        ]
        for rank in ranks:
            rank.run()
        merged = ranks[0].merged()
        files.append(content(merged, folder))
        kept.append((contents(merged), all_attempts(*ranks)))
    assert files[0] == files[1]
    right = [a for a in kept[0][1] if a.cell]
    if weighting == "cell":
        assert kept[0][0] == listed(shortest(kept[0][1], cells))
    elif weighting == "frequency":
        assert kept[0][0] == sorted((a.problem_id, a.cell, a.response) for a in right)
    else:
        places = {(a.problem_id, KEYS[cells](a.cell), " ".join(a.response.split())) for a in right}
        assert sorted((i, KEYS[cells](cell), " ".join(text.split())) for i, cell, text in kept[0][0]) == sorted(places)


@pytest.mark.parametrize("cells", ALONE)
def test_a_labelers_names_are_told_apart_too(tmp_path, cells):
    with ChatServer(label_arithmetic) as server:
        search = make_labelled(tmp_path, server, how=with_cells(cells, SETTINGS))
        archive = search.run()
        attempts = labelled_attempts_of(search)
        assert contents(archive) == listed(shortest(attempts, cells))
        assert contents(make_labelled(tmp_path, server, how=search.settings).merged()) == contents(archive)


def test_what_was_searched_with_other_cells_is_refused(tmp_path):
    searches = {cells: make(tmp_path / cells, how=with_cells(cells)) for cells in KEYS}
    for cells, search in searches.items():
        content(search.run(), tmp_path / cells)
        for other in KEYS.keys() - {cells}:
            with pytest.raises(JournalError, match="was written with cells = "):
                make(tmp_path / cells, how=with_cells(other)).run()
            with pytest.raises(ArchiveError, match="another search "):
                EliteArchive.load(tmp_path / cells / "archive.jsonl", searches[other].fingerprints)
    assert len({search.fingerprints["search"] for search in searches.values()}) == 3


def test_with_both_everything_is_as_it_was_before_there_was_a_choice(tmp_path):
    """Fingerprints and an archive as the release before wrote them."""
    assert SearchSettings().fingerprint("map_elites") == (
        "8cead7fba10076d1a53663cf65aa028b4a336f9b11ded165a2db8275ff8ea9c3"
    )
    assert SearchSettings(cells="both").fingerprint("iid", "x") == (
        "5b7cd083cfdfb57f000b10f919f0209b4765b70490e975c8ce9ae3de0e4fe5e9"
    )
    search = make(tmp_path)
    assert "cells" not in search.meta(0)
    archive, manifest = content(search.run(), tmp_path)
    assert hashlib.sha256(archive).hexdigest() == "61c7e31d749cbf98b1e63d3baecf7ef958a31a378fdd0f2551c4929eaf3e8387"
    assert set(json.loads(manifest)) == {
        *("attempts", "elites", "fingerprints", "format", "problems", "problems_tried", "sha256", "version")
    }


def test_cells_of_another_kind_are_refused():
    with pytest.raises(UsageError, match=r"search\.cells must be one of both, approach, structure, got 'shape'"):
        SearchSettings(cells="shape")


# Through the commands.


@pytest.mark.parametrize("cells", ALONE)
@pytest.mark.parametrize("callback", ["MapElitesPreSearch", "IidPreSearch"])
def test_the_command_line_searches_by_part_of_the_cell(cli, toy_config, tmp_path, callback, cells):
    config = yaml.safe_load(toy_config.read_text())
    config["search"]["class_path"] = f"callbacks.{callback}"
    config["search"]["init_args"]["settings"]["cells"] = cells
    if callback == "IidPreSearch":
        config["search"]["init_args"]["weighting"] = "cell"
    toy_config.write_text(yaml.safe_dump(config))
    assert cli("search") == (0, "")
    run = tmp_path / "run"
    lines = [json.loads(line) for line in (run / "archive.jsonl").read_text().splitlines()]
    with SearchJournal(run / ("iid.sqlite" if callback == "IidPreSearch" else "search.sqlite")) as journal:
        best = shortest(list(journal.attempts()), cells)
    elites = sorted((e["problem_id"], Cell(e["approach"], e["structure"]), e["response"]) for e in lines)
    assert elites == listed(best)
    domain, problems = LetterDomain(), {p.id: p for p in letter_problems("train", 8)}
    assert all(domain.cell(problems[i], response.strip()) == cell for i, cell, response in elites)
    assert json.loads((run / "archive.manifest.json").read_text())["cells"] == cells
    assert json.loads((run / "search.json").read_text())["elites"] == len(lines)


def test_the_command_line_refuses_another_word(cli):
    code, err = cli("search", "--search.settings.cells", "shape")
    assert code == 2
    assert "shape" in err
