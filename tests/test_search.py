"""The search as a whole, over arithmetic, with the real pool, journal and archive."""

import json
import re
from collections import Counter, defaultdict

import pytest
from arithmetic_engine import CharacterCodec, RewritingEngine
from hypothesis import given, settings
from hypothesis import strategies as st

from elite_lightning.archive import ArchiveError, EliteArchive, Outcome
from elite_lightning.domains.arithmetic import FORMS, ArithmeticDomain, make_problems
from elite_lightning.errors import UsageError
from elite_lightning.search import (
    IidSearch,
    JournalError,
    MapElitesSearch,
    SearchJournal,
    SearchSettings,
    search_fingerprints,
    side_by_side,
)
from elite_lightning.types import Completion, FinishReason, Sampling
from elite_lightning.verify import VerificationPool

SMALL = SearchSettings(attempts_per_problem=16, seed_samples=4, samples_per_target=3, batch_problems=3)


def make(
    folder, cls=MapElitesSearch, problems=10, engine=None, how=SMALL, domain=None, pool=None, base_model="base", **more
):
    domain = domain or ArithmeticDomain()
    problems = make_problems(problems) if isinstance(problems, int) else problems
    pool = pool or VerificationPool(domain, workers=0)
    return cls(domain, engine or RewritingEngine(), CharacterCodec(), pool, problems, folder, base_model, how, **more)


def attempts_of(search):
    with SearchJournal(search.journal_path(search.rank)) as journal:
        return list(journal.attempts())


def content(archive, folder):
    archive.save(folder / "archive.jsonl")
    return (folder / "archive.jsonl").read_bytes(), (folder / "archive.manifest.json").read_bytes()


def elites_of(archive):
    return {elite for problem_id in archive.problem_ids for elite in archive.elites(problem_id)}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 7),
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from([MapElitesSearch, IidSearch]),
)
def test_every_attempt_is_counted_and_the_budget_is_met(
    tmp_path_factory, problems, seeds, turns, samples, in_round, in_batch, cls
):
    how = SearchSettings(seeds + turns * samples, seeds, samples, problems_per_round=in_round, batch_problems=in_batch)
    engine = RewritingEngine()
    search = make(tmp_path_factory.mktemp("budget"), cls, problems, engine, how)
    archive = search.run()
    attempts, report = attempts_of(search), search.report()
    assert len(attempts) == archive.attempts == report.attempts == search.budget == problems * how.attempts_per_problem
    assert [a.id for a in attempts] == list(range(len(attempts)))
    assert sum(report.outcomes.values()) == sum(report.realised.values()) == len(attempts)
    per_problem = Counter(a.problem_id for a in attempts)
    assert all(per_problem[p.id] >= seeds for p in search.problems)
    if cls is IidSearch:
        assert set(per_problem.values()) <= {how.attempts_per_problem}
        assert all(a.asked is None and a.parents == () for a in attempts)
    # A round serves a problem once, and no more problems than it may.
    rounds = defaultdict(Counter)
    for a in attempts:
        rounds[a.round][a.problem_id] += 1
    assert all(len(r) <= min(in_round, (problems + 1) // 2) and len(set(r.values())) == 1 for r in rounds.values())


def is_right(problem, response):
    """Computed by Python itself, on what is known to be digits and signs."""
    text = response.strip()
    if not re.fullmatch(r"[\d+* ()-]+", text):
        return False
    expression = problem.data["expression"]
    same_numbers = set(re.findall(r"\d+", text)) == set(re.findall(r"\d+", expression))
    return same_numbers and eval(text) == eval(expression)


def test_the_archive_is_the_shortest_of_each_cell_among_the_right_attempts(tmp_path):
    search = make(tmp_path)
    archive = search.run()
    problems = {p.id: p for p in search.problems}
    best = {}
    for a in attempts_of(search):
        right = is_right(problems[a.problem_id], a.response)
        assert (a.outcome.correct, a.reward, a.cell is not None) == (right, float(right), right)
        key = (a.problem_id, a.cell)
        if right and (key not in best or len(a.response) < len(best[key])):
            assert a.outcome is (Outcome.REPLACED if key in best else Outcome.INSERTED)
            best[key] = a.response
        elif right:
            assert a.outcome is Outcome.NOT_SHORTER
    assert {(e.problem_id, e.cell): e.response for e in elites_of(archive)} == best
    assert {Outcome.INSERTED, Outcome.REPLACED, Outcome.NOT_SHORTER} <= {a.outcome for a in attempts_of(search)}
    report = search.report()
    assert (report.elites, report.covered_problems) == (len(best), len({p for p, _ in best}))
    assert report.cells_per_problem == len(best) / 10


def test_targets_aim_at_what_is_uncovered_and_parents_are_elites_of_another_approach(tmp_path):
    how = SearchSettings(40, 4, 3, problems_per_round=4, batch_problems=3, use_success_rates=False)
    engine = RewritingEngine()
    search = make(tmp_path, engine=engine, how=how)
    search.run()
    covered, asked, incumbents = defaultdict(set), defaultdict(Counter), {}
    rounds = defaultdict(list)
    for a in attempts_of(search):
        rounds[a.round].append(a)
    with_parent = without_parent = 0
    for attempts in rounds.values():
        for a in {a.problem_id: a for a in attempts}.values():
            if a.asked is None:
                assert not covered[a.problem_id]
                assert a.parents == ()
                continue
            candidates = set(FORMS) - covered[a.problem_id] or set(FORMS)
            assert a.asked in candidates
            assert asked[a.problem_id][a.asked] == min(asked[a.problem_id][form] for form in candidates)
            asked[a.problem_id][a.asked] += 1
            with_parent += len(a.parents)
            without_parent += not a.parents
            for parent in a.parents:
                cell = next(c for (p, c), id_ in incumbents.items() if id_ == parent and p == a.problem_id)
                assert cell.approach != a.asked or covered[a.problem_id] == {a.asked}
        for a in attempts:
            if a.cell is not None:
                covered[a.problem_id].add(a.cell.approach)
            if a.outcome in (Outcome.INSERTED, Outcome.REPLACED):
                incumbents[a.problem_id, a.cell] = a.id
    # parent_probability is 0.8.
    assert 0.65 < with_parent / (with_parent + without_parent) < 0.95
    assert sum("from: " in prompt for prompt in engine.prompts) == with_parent
    assert sum("form: " in prompt for prompt in engine.prompts) == with_parent + without_parent


def test_the_prompt_shows_the_parents_solution(tmp_path):
    engine = RewritingEngine()
    search = make(tmp_path, engine=engine, how=SearchSettings(16, 4, 3, parent_probability=1.0))
    search.run()
    attempts = attempts_of(search)
    shown = Counter(attempts[a.parents[0]].solution for a in attempts if a.parents)
    assert (
        Counter({text: 3 * n for text, n in Counter(re.findall(r"from: (.*)", "\n".join(engine.prompts))).items()})
        == shown
    )


def test_search_occupies_more_cells_than_sampling_and_leaves_no_more_problems_without_any(tmp_path):
    reports = defaultdict(list)
    for seed in range(3):
        how = SearchSettings(seed=seed)
        for cls in (MapElitesSearch, IidSearch):
            search = make(tmp_path / f"{seed}", cls, 60, RewritingEngine(share_right=0.4), how)
            search.run()
            reports[cls].append(search.report())
    for ours, plain in zip(reports[MapElitesSearch], reports[IidSearch], strict=True):
        assert ours.attempts == plain.attempts == 60 * 24
        assert ours.cells_per_problem > 1.5 * plain.cells_per_problem
    unsolved = {cls: sum(r.problems - r.covered_problems for r in done) for cls, done in reports.items()}
    assert 0 < unsolved[MapElitesSearch] <= unsolved[IidSearch]
    table = side_by_side({"MAP-Elites": reports[MapElitesSearch][0], "IID": reports[IidSearch][0]})
    assert len({len(line) for line in table.splitlines()}) == 1
    assert "1440" in table


def test_a_problem_without_an_elite_gets_plain_prompts_every_so_often(tmp_path):
    for every in (1, 2, 3):
        how = SearchSettings(4 + 6 * 2, 4, 2, plain_every=every)
        search = make(tmp_path / f"{every}", engine=RewritingEngine(always="?"), how=how, problems=1)
        archive = search.run()
        asked = {a.round: a.asked for a in attempts_of(search) if a.round > 0}
        assert [asked[r] is None for r in range(1, 7)] == [turn % every == 0 for turn in range(6)]
        assert (len(archive), archive.problem_ids, search.report().covered_problems) == (0, (), 0)
        assert all(a.parents == () for a in attempts_of(search))
        # An archive without anything in it is written and read like any other.
        archive.save(tmp_path / f"{every}.jsonl")
        assert EliteArchive.load(tmp_path / f"{every}.jsonl", {}).attempts == 16


def test_a_problem_in_which_nothing_is_found_gets_more_but_not_all(tmp_path):
    search = make(tmp_path, problems=40, how=SearchSettings(24, 8, 4, problems_per_round=8))
    search.run()
    counts = Counter(a.problem_id for a in attempts_of(search))
    cells = search.merged()
    by_coverage = defaultdict(list)
    for problem_id, count in counts.items():
        by_coverage[len(cells.cells(problem_id))].append(count)
    few, many = by_coverage[min(by_coverage)], by_coverage[max(by_coverage)]
    assert sum(few) / len(few) > sum(many) / len(many)
    assert max(counts.values()) < 24 + 4 * 6


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    made = [
        content(make(tmp_path / name, how=how).run(), tmp_path / name)
        for name, how in [("a", SMALL), ("b", SMALL), ("c", SearchSettings(16, 4, 3, batch_problems=3, seed=1))]
    ]
    assert made[0] == made[1]
    assert made[0][0] != made[2][0]


def test_seed_samples_are_those_of_plain_sampling(tmp_path):
    ours, plain = make(tmp_path), make(tmp_path, IidSearch)
    for search in (ours, plain):
        search.run()
    assert attempts_of(ours)[:40] == attempts_of(plain)[:40]
    assert [(a.asked, a.round) for a in attempts_of(ours)[:40]] == [(None, 0)] * 20 + [(None, 1)] * 20
    assert {p.name for p in tmp_path.iterdir()} == {"search.sqlite", "iid.sqlite"}


def test_truncated_responses_are_counted_and_never_verified(tmp_path):
    how = SearchSettings(8, 4, 2, sampling=Sampling(max_new_tokens=3))
    search = make(tmp_path, engine=RewritingEngine(always="2 * (3 + 4 + 5)"), how=how)
    archive = search.run()
    assert {(a.outcome, a.reward, a.response) for a in attempts_of(search)} == {("truncated", 0.0, "2 *")}
    assert (search.pool.executed, archive.attempts) == (0, 80)


class FailingDomain(ArithmeticDomain):
    """Our own fault for every other right answer."""

    def verify(self, problem, solution):
        if " " in solution:
            raise RuntimeError("broken")
        return super().verify(problem, solution)


def test_our_own_failures_are_counted_apart_and_stay_what_they_were(tmp_path):
    search = make(tmp_path, domain=FailingDomain())
    archive = search.run()
    failed = [a for a in attempts_of(search) if a.outcome is Outcome.VERIFIER_FAILURE]
    assert failed
    assert all((a.reward, a.cell) == (0.0, None) for a in failed)
    report = search.report()
    correct = sum(a.outcome.correct for a in attempts_of(search))
    assert report.correct_share == correct / (160 - len(failed))
    assert archive.attempts == 160
    # Read back with a verifier that works now: the journal decides.
    before = content(archive, tmp_path)
    assert content(make(tmp_path).merged(), tmp_path) == before


def test_text_that_no_file_can_hold_does_not_stop_a_search(tmp_path):
    search = make(tmp_path, engine=RewritingEngine(always="2 \ud800 \0"), how=SearchSettings(4, 4))
    search.run()
    assert {a.response for a in attempts_of(search)} == {"2 ? \0"}


class WatchedPool(VerificationPool):
    """Notes when a batch is submitted and when it is waited for; what the archive asks in between is not noted."""

    def __init__(self, events):
        super().__init__(ArithmeticDomain(), workers=0)
        self.events, self.asked_by_archive = events, False

    def judge(self, problem, response):
        self.asked_by_archive = True
        judgement = super().judge(problem, response)
        self.asked_by_archive = False
        return judgement

    def submit(self, items, want):
        future = super().submit(items, want)
        if not self.asked_by_archive:
            self.events.append("submit")
            wait = future.result
            future.result = lambda: self.events.append("wait") or wait()
        return future


def test_a_batch_is_verified_beside_the_next_ones_generation(tmp_path):
    events = []

    class Engine(RewritingEngine):
        def generate(self, *arguments):
            events.append("generate")
            return super().generate(*arguments)

    how = SearchSettings(4, 4, batch_problems=2)
    make(tmp_path, problems=6, engine=Engine(), pool=WatchedPool(events), how=how).run()
    one_round = ["generate", "submit", "generate", "submit", "wait", "wait"]
    assert events == one_round * 2


def test_worker_processes_reach_the_same_archive(tmp_path):
    with VerificationPool(ArithmeticDomain(), workers=1) as pool:
        theirs = content(make(tmp_path / "a", pool=pool).run(), tmp_path / "a")
    assert theirs == content(make(tmp_path / "b").run(), tmp_path / "b")


def test_progress_goes_from_batch_to_batch_to_the_budget(tmp_path):
    seen = []
    archive = make(tmp_path, on_progress=seen.append).run()
    assert [p.attempts for p in seen] == sorted({p.attempts for p in seen})
    last = seen[-1]
    assert (last.attempts, last.budget, last.problems) == (160, 160, 10)
    assert (last.covered_problems, last.elites) == (len(archive.problem_ids), len(archive))
    assert len(seen) >= 16


class SameAgainEngine(RewritingEngine):
    """Responses depend on the prompt and on how often it was seen, not on the seed: the same whoever asks."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def generate(self, prompts, n, sampling, seed):
        groups = []
        for prompt in map(tuple, prompts):
            groups += super().generate([prompt], n, sampling, f"{prompt}/{self.seen[prompt]}")
            self.seen[prompt] += 1
        return groups


@pytest.mark.parametrize("world_size", [2, 3, 12])
def test_the_number_of_ranks_does_not_show_in_the_archive(tmp_path, world_size):
    alone = make(tmp_path, IidSearch, engine=SameAgainEngine())
    expected = content(alone.run(), tmp_path)
    assert content(alone.merged(), tmp_path) == expected
    engine = SameAgainEngine()
    ranks = [
        make(tmp_path / "ranks", IidSearch, engine=engine, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert sorted(p.id for r in ranks for p in r.problems) == sorted(p.id for p in alone.problems)
    for rank in ranks:
        rank.run()
    assert content(ranks[0].merged(), tmp_path) == expected
    assert ranks[0].report() == alone.report()
    assert sorted(p.name for p in (tmp_path / "ranks").iterdir()) == sorted(
        f"iid.rank{rank}.sqlite" for rank in range(world_size)
    )


def test_rounds_and_batches_do_not_draw_alike(tmp_path):
    # Plain samples of one problem, and of problems with one text: only the round or the batch tells them apart.
    first = make_problems(1)[0]
    twins = [type(first)(name, first.question, first.data) for name in "abcd"]
    search = make(tmp_path, IidSearch, problems=twins, how=SearchSettings(16, 8, 8, batch_problems=1))
    search.run()
    drawn = defaultdict(list)
    for a in attempts_of(search):
        drawn[a.round, a.batch].append(a.response)
    assert len({tuple(responses) for responses in drawn.values()}) == len(drawn) == 8


def test_ranks_do_not_draw_alike(tmp_path):
    # Two problems with one text: on two ranks they are each the first of the first batch.
    first = make_problems(1)[0]
    twins = [type(first)(name, first.question, first.data) for name in "ab"]
    drawn = []
    for rank in (0, 1):
        search = make(tmp_path, problems=twins, rank=rank, world_size=2)
        search.run()
        drawn.append([a.response for a in attempts_of(search)][:4])
    assert drawn[0] != drawn[1]


def test_problems_in_the_same_place_do_not_all_get_the_same_target(tmp_path):
    how = SearchSettings(8, 2, 2, plain_every=4, use_success_rates=False)
    search = make(tmp_path, problems=24, engine=RewritingEngine(always="?"), how=how)
    search.run()
    targets = defaultdict(set)
    for a in attempts_of(search):
        targets[a.round].add(a.asked)
    assert targets[4] == targets[5] == set(FORMS)


def test_another_number_of_ranks_does_not_go_on_with_the_journals(tmp_path):
    make(tmp_path, rank=1, world_size=2).run()
    with pytest.raises(JournalError, match="world_size = 2, this run has 3"):
        make(tmp_path, rank=1, world_size=3).run()


def test_merging_waits_for_every_rank(tmp_path):
    ranks = [make(tmp_path, rank=rank, world_size=2) for rank in (0, 1)]
    ranks[0].run()
    with pytest.raises(JournalError, match=r"no search journal at .*rank1"):
        ranks[0].merged()
    stop_after(ranks[1], 3)
    with pytest.raises(JournalError, match=r"rank1.sqlite holds \d+ of 80 attempts"):
        ranks[0].merged()


def stop_after(search, calls):
    """Run until the engine was asked so many times."""
    generate = search.engine.generate

    def count(*arguments):
        if count.left == 0:
            raise KeyboardInterrupt
        count.left -= 1
        return generate(*arguments)

    count.left = calls
    search.engine.generate = count
    with pytest.raises(KeyboardInterrupt):
        search.run()


def test_the_archive_file_belongs_to_its_search(tmp_path):
    search = make(tmp_path)
    content(search.run(), tmp_path)

    def expected(how=SMALL, problems=10, base_model="base", method="map_elites"):
        domain, codec = ArithmeticDomain(), CharacterCodec()
        return search_fingerprints(method, how, domain, codec, make_problems(problems), base_model)

    assert EliteArchive.load(tmp_path / "archive.jsonl", expected()).fingerprints == search.fingerprints
    for other, name in [
        (expected(SearchSettings()), "search"),
        (expected(method="iid"), "search"),
        (expected(problems=11), "problems"),
        (expected(base_model="another"), "base_model"),
    ]:
        with pytest.raises(ArchiveError, match=f"another {name} "):
            EliteArchive.load(tmp_path / "archive.jsonl", other)


def test_the_report_counts_by_outcome_and_by_asked_and_realised_approach(tmp_path):
    search = make(tmp_path)
    search.run()
    attempts, data = attempts_of(search), json.loads(json.dumps(search.report().to_dict()))
    assert data["outcomes"] == Counter(a.outcome.value for a in attempts)
    pairs = Counter((a.asked or "plain", a.cell.approach if a.cell else a.outcome.value) for a in attempts)
    table = data["asked_and_realised"]
    assert {(asked, came): n for asked, row in table.items() for came, n in row.items()} == pairs
    assert set(table) == {"plain", *FORMS}


def test_ids_are_unique(tmp_path):
    with pytest.raises(UsageError, match="two problems have the id 'arithmetic-0'"):
        make(tmp_path, problems=[*make_problems(2), *make_problems(1)])


def test_a_completion_too_few_is_an_error(tmp_path):
    class Short:
        def generate(self, prompts, n, sampling, seed):
            return [[Completion((0,), (0.0,), FinishReason.STOP, "")] * n for _ in prompts[1:]]

    with pytest.raises(ValueError, match="zip"):
        make(tmp_path, engine=Short()).run()
