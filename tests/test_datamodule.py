"""Which problems and replay items come next: balanced, dealt without overlap, resumable."""

from collections import Counter
from types import SimpleNamespace

import pytest
from toy import LetterDemonstrations, LetterSource, letter_problems

from datamodules.elite import EliteDataModule
from datamodules.loaders import deal
from elite_lightning.archive import FrozenArchive
from elite_lightning.errors import UsageError
from elite_lightning.types import Cell, Elite


def archive_of(cells):
    """An archive with so many cells of each problem."""
    elites = [
        Elite(problem_id, Cell("first", f"length={n}"), "a" * n, "a" * n, (5,) * n + (0,), weight=n)
        for problem_id, count in cells.items()
        for n in range(1, count + 1)
    ]
    return FrozenArchive(elites, {}, attempts=9)


def data_module(rank=0, world_size=1, max_steps=50, **settings):
    data = EliteDataModule(LetterSource(train_problems=8), **settings)
    data.trainer = SimpleNamespace(global_rank=rank, world_size=world_size, max_steps=max_steps)
    if data.needs_archive:
        data.use_archive(archive_of({"train-0": 1, "train-3": 2, "train-5": 3}))
    return data


def take(loader, steps):
    """Plain data of the next batches."""
    iterator = iter(loader)
    return [plain(next(iterator)) for _ in range(steps)]


def plain(batch):
    problems = [[(numbered.index, numbered.problem.id) for numbered in chunk] for chunk in batch.chunks]
    return problems, [(item.prompt, item.response, item.weight, item.token_ids) for item in batch.replay]


def test_problems_and_elites_are_balanced():
    batches = take(data_module(problems_per_step=4, replay_per_step=6).train_dataloader(), 20)
    problems = Counter(name for chunks, _ in batches for chunk in chunks for _, name in chunk)
    assert problems == dict.fromkeys([f"train-{i}" for i in range(8)], 10)
    elites = Counter(item for _, replay in batches for item in replay)
    # 120 draws: 40 for each of the three problems, evenly over one, two and three cells.
    assert sorted(elites.values()) == [13, 13, 14, 20, 20, 40]


def test_elites_are_replayed_under_the_plain_prompt_with_their_own_tokens():
    data = data_module(replay_per_step=6)
    ((_, replay),) = take(data.train_dataloader(), 1)
    plain_prompts = {data.domain.prompt(problem) for problem in letter_problems("train", 8)}
    assert {item[0] for item in replay} <= plain_prompts
    assert all(item[3] == (5,) * len(item[1]) + (0,) and item[2] == len(item[1]) for item in replay)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_share_one_global_batch_without_overlap(world_size):
    settings = {"problems_per_step": 8, "replay_per_step": 5, "problems_per_rollout": 3}
    alone = take(data_module(**settings).train_dataloader(), 4)
    ranks = [take(data_module(r, world_size, **settings).train_dataloader(), 4) for r in range(world_size)]
    for step, (chunks, replay) in enumerate(alone):
        assert sorted(chunk for rank in ranks for chunk in rank[step][0]) == sorted(chunks)
        assert sorted(item for rank in ranks for item in rank[step][1]) == sorted(replay)


@pytest.mark.parametrize("demonstrations", [None, LetterDemonstrations()])
def test_a_loader_goes_on_with_the_next_batch_on_any_rank(demonstrations):
    settings = {"demonstrations": demonstrations, "problems_per_step": 3, "replay_per_step": 5}
    straight = take(data_module(**settings).train_dataloader(), 9)
    first = data_module(**settings).train_dataloader()
    take(first, 4)
    for rank in range(2):
        resumed = data_module(rank, 2, **settings).train_dataloader()
        resumed.load_state_dict(first.state_dict())
        for (chunks, replay), (_, expected) in zip(take(resumed, 5), straight[4:], strict=True):
            assert replay == expected[rank::2]
            assert {name for chunk in chunks for _, name in chunk} <= {f"train-{i}" for i in range(8)}


def test_state_of_a_loader_is_plain_and_equal_on_all_ranks():
    states = []
    for rank in range(2):
        loader = data_module(rank, 2, problems_per_step=4, replay_per_step=4).train_dataloader()
        take(loader, 3)
        states.append(loader.state_dict())
    assert states[0] == states[1]
    assert states[0]["position"] == 3


def test_an_epoch_is_the_whole_run_or_one_pass_over_the_problems():
    assert len(data_module(max_steps=7).train_dataloader()) == 7
    assert len(list(data_module(max_steps=7).train_dataloader())) == 7
    assert len(data_module(max_steps=-1, problems_per_step=3).train_dataloader()) == 3


def test_evaluation_deals_each_problem_once_in_chunks_that_do_not_depend_on_ranks():
    problems = letter_problems("test", 11)
    alone = deal(problems, 3, 0, 1)
    assert [numbered.index for chunk in alone for numbered in chunk] == list(range(11))
    for world_size in (2, 5):
        dealt = [chunk for rank in range(world_size) for chunk in deal(problems, 3, rank, world_size)]
        assert sorted(dealt, key=lambda chunk: chunk[0].index) == alone


def test_a_rank_without_evaluation_problems_has_an_empty_batch():
    data = EliteDataModule(LetterSource(test_problems=1))
    data.trainer = SimpleNamespace(global_rank=1, world_size=2, max_steps=1)
    assert [batch.chunk for batch in data.test_dataloader()] == [[]]


def test_more_ranks_than_chunks_are_worth_a_warning():
    with pytest.warns(UserWarning, match="problems_per_rollout=8"):
        data_module(0, 3, problems_per_step=16, problems_per_rollout=8).train_dataloader()


def test_replay_without_an_archive_is_refused():
    with pytest.raises(UsageError, match="search"):
        EliteDataModule(LetterSource()).train_dataloader()


def test_an_empty_or_foreign_archive_is_refused():
    data = EliteDataModule(LetterSource())
    with pytest.raises(UsageError, match="empty"):
        data.use_archive(archive_of({}))
    with pytest.raises(UsageError, match="elsewhere-1"):
        data.use_archive(archive_of({"elsewhere-1": 1}))


@pytest.mark.parametrize(
    "settings",
    [
        {"problems_per_step": -1},
        {"replay_per_step": -1},
        {"problems_per_step": 0, "replay_per_step": 0},
        {"problems_per_rollout": 0},
        {"problems_per_evaluation_rollout": 0},
    ],
)
def test_counts_out_of_range_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        EliteDataModule(LetterSource(), **settings)


def test_replay_is_drawn_apart_from_the_problems():
    """With one seed for both, a step would replay just the problems that it samples."""
    data = data_module(problems_per_step=1, replay_per_step=1)
    data.use_archive(archive_of({f"train-{i}": 1 for i in range(8)}))
    prompts = {data.domain.prompt(problem): problem.id for problem in letter_problems("train", 8)}
    batches = take(data.train_dataloader(), 40)
    same = sum(prompts[replay[0][0]] == chunks[0][0][1] for chunks, replay in batches)
    assert same < 20
