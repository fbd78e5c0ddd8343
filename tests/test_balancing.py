"""Over what replay is balanced: each notion by its own definition, from any archive, through the DataModule."""

from collections import Counter, defaultdict
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_datamodule import archive_of, data_module, take
from toy import LetterDemonstrations, LetterSource

from datamodules.elite import EliteDataModule
from elite_lightning.archive import FrozenArchive
from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Elite

PROBLEMS = [f"train-{i}" for i in range(5)]
CELLS = [Cell(approach, structure) for approach in ("in", "join", "") for structure in ("1", "2", "")]
# One elite a cell, as a search leaves it; or several, as plain samples may be kept.
PLACES = st.tuples(st.sampled_from(PROBLEMS), st.sampled_from(CELLS))
ARCHIVES = st.one_of(st.sets(PLACES, min_size=1).map(sorted), st.lists(PLACES, min_size=1, max_size=20).map(sorted))
BALANCINGS = ["problem_and_cell", "cell", "none"]
ANY = st.sampled_from(BALANCINGS)

# By definition: what is drawn evenly, and what is drawn evenly within each of it.
GROUP = {
    "problem_and_cell": lambda elite: elite.problem_id,
    "cell": lambda elite: elite.cell,
    "none": lambda elite: None,
}


def elites_of(places):
    """Elites of which the response says which one it is."""
    return [Elite(i, cell, f"{number}", f"{number}", (5, 0)) for number, (i, cell) in enumerate(places)]


def module(archive, balancing, rank=0, world_size=1, replay_per_step=1, seed=0):
    data = EliteDataModule(
        LetterSource(), problems_per_step=0, replay_per_step=replay_per_step, balancing=balancing, seed=seed
    )
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world_size, max_steps=200)
    data.use_archive(archive)
    return data


def frozen(elites, cells="both"):
    return FrozenArchive(elites, {}, attempts=9, cells=cells)


def responses(loader, steps):
    return [[response for _, response, _, _ in replay] for _, replay in take(loader, steps)]


def spread(counts):
    return max(counts) - min(counts)


@settings(max_examples=60, deadline=None)
@given(ARCHIVES, ANY, st.integers(0, 3), st.integers(1, 100))
def test_draws_are_even_at_any_time_by_their_own_notion(places, balancing, seed, length):
    elites = elites_of(places)
    by_response, members = {e.response: e for e in elites}, defaultdict(list)
    for elite in elites:
        members[GROUP[balancing](elite)].append(elite.response)
    drawn = Counter()
    for (response,) in responses(module(frozen(elites), balancing, seed=seed).train_dataloader(), length):
        drawn[response] += 1
        assert spread([sum(drawn[r] for r in own) for own in members.values()]) <= 1
        own = members[GROUP[balancing](by_response[response])]
        assert spread([drawn[r] for r in own]) <= 1


@settings(max_examples=60, deadline=None)
@given(ARCHIVES, ANY, st.integers(1, 4), st.integers(0, 7), st.integers(1, 5))
def test_ranks_share_the_stream_and_a_restored_one_goes_on(places, balancing, world_size, before, per_step):
    archive = frozen(elites_of(places))

    def loader(rank=0, ranks=1):
        return module(archive, balancing, rank, ranks, replay_per_step=per_step).train_dataloader()

    alone = responses(loader(), before + 3)
    stopped = loader()
    responses(stopped, before)
    for rank in range(world_size):
        assert responses(loader(rank, world_size), before + 3) == [batch[rank::world_size] for batch in alone]
        resumed = loader(rank, world_size)
        resumed.load_state_dict(stopped.state_dict())
        assert responses(resumed, 3) == [batch[rank::world_size] for batch in alone[before:]]


@settings(max_examples=60, deadline=None)
@given(ARCHIVES, ANY, ANY)
def test_a_position_under_another_balancing_is_refused(places, saved, here):
    archive = frozen(elites_of(places))
    state = module(archive, saved).train_dataloader().state_dict()
    loader = module(archive, here).train_dataloader()
    if saved == here:
        loader.load_state_dict(state)
    else:
        with pytest.raises(UsageError, match="or to another balancing"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("balancing", ["cell", "none"])
@pytest.mark.parametrize(
    "change",
    [
        {"problem_id": PROBLEMS[4]},
        {"cell": Cell("join", "9")},
        {"response": "other"},
    ],
)
def test_a_position_in_another_archive_of_the_same_size_is_refused(balancing, change):
    elites = elites_of([(PROBLEMS[0], CELLS[0]), (PROBLEMS[1], CELLS[1]), (PROBLEMS[2], CELLS[2])])
    state = module(frozen(elites), balancing).train_dataloader().state_dict()
    other = module(frozen([*elites[:2], replace(elites[2], **change)]), balancing)
    with pytest.raises(UsageError, match="belongs to other problems or cells"):
        other.train_dataloader().load_state_dict(state)


def test_who_has_the_most_say():
    """Three problems share a common cell, one of them has three more to itself."""
    elites = elites_of([*((i, Cell("in", "1")) for i in PROBLEMS[:3]), *((PROBLEMS[0], Cell("in", n)) for n in "234")])
    drawn = {}
    for balancing in BALANCINGS:
        replayed = responses(module(frozen(elites), balancing, replay_per_step=72).train_dataloader(), 1)[0]
        drawn[balancing] = [Counter(replayed)[str(number)] for number in range(6)]
    assert drawn == {
        "problem_and_cell": [6, 24, 24, 6, 6, 6],
        "cell": [6, 6, 6, 18, 18, 18],
        "none": [12, 12, 12, 12, 12, 12],
    }


@pytest.mark.parametrize("part", ["approach", "structure"])
def test_the_archive_says_what_a_cell_is(part):
    places = [(PROBLEMS[0], Cell("in", "1")), (PROBLEMS[1], Cell("join", "1")), (PROBLEMS[2], Cell("in", "2"))]
    elites = elites_of([*places, (PROBLEMS[3], Cell("in", "1"))])
    replayed = responses(module(frozen(elites, part), "cell", replay_per_step=36).train_dataloader(), 1)[0]
    # By approach: in against join. By structure: 1 against 2.
    alone = "1" if part == "approach" else "2"
    assert Counter(replayed) == {response: 18 if response == alone else 6 for response in "0123"}


@pytest.mark.parametrize("balancing", BALANCINGS)
def test_base_logprobs_go_with_their_elites(balancing):
    elites = elites_of([(PROBLEMS[0], cell) for cell in sorted(CELLS[:3])] + [(PROBLEMS[1], CELLS[1])])
    data = module(frozen(elites), balancing, replay_per_step=8)
    data.use_archive(frozen(elites), {PROBLEMS[0]: [(0.0,), (-1.0,), (-2.0,)], PROBLEMS[1]: [(-3.0,)]})
    replay = next(iter(data.train_dataloader())).replay
    assert {(item.response, item.base_logprobs) for item in replay} == {(f"{n}", (-float(n),)) for n in range(4)}


def test_the_usual_balancing_draws_what_it_always_drew_and_goes_on_from_old_positions():
    """Draws and state as the release before wrote them."""
    loader = data_module(replay_per_step=6).train_dataloader()
    drawn = [(prompt[2:4], response) for _, replay in take(loader, 2) for prompt, response, _, _ in replay]
    expected = "0a:1 3d:1 5b:3 0a:1 3d:2 5b:2 5b:1 0a:1 3d:1 5b:2 0a:1 3d:2"
    assert [f"{problem}:{len(response)}" for problem, response in drawn] == expected.split()
    assert loader.state_dict()["replay"] == {
        "drawn": 12,
        "seed": 944235748925206172,
        "digest": "9d28f9cced4b4bc0d32a7fdc17809f19ea6715e71d023afffa24394d1917ada6",
    }


def test_another_word_is_refused_and_an_idle_one_is_worth_a_warning():
    with pytest.raises(ValueError, match=r"data\.balancing must be one of problem_and_cell, cell, none, got 'cells'"):
        EliteDataModule(LetterSource(), balancing="cells")
    for no_archive in ({"replay_per_step": 0}, {"demonstrations": LetterDemonstrations()}):
        data = EliteDataModule(LetterSource(), balancing="cell", **no_archive)
        with pytest.warns(UserWarning, match="data.balancing=cell changes nothing"):
            data.train_dataloader()


@pytest.mark.parametrize("balancing", ["cell", "none"])
def test_a_balanced_archive_is_drawn_the_same_on_every_rank(balancing):
    states = []
    for rank in range(2):
        loader = module(archive_of({"train-0": 1, "train-3": 3}), balancing, rank, 2, 4).train_dataloader()
        take(loader, 3)
        states.append(loader.state_dict())
    assert states[0] == states[1]


def test_the_command_line_takes_the_three_words_only(cli):
    code, err = cli("search", "--data.balancing", "cells")
    assert code == 2
    assert "cells" in err
