"""What a run says it has spent, against what the engine gave out and what the verifier was asked."""

import json

import pytest
from test_resume import training_rows

from elite_lightning.budget import Budget, budget_of
from elite_lightning.errors import UsageError
from elite_lightning.rollout.in_process import InProcessEngine
from elite_lightning.run_folder import RunFolder
from elite_lightning.types import FinishReason


@pytest.fixture
def given(monkeypatch):
    """All that the engine gave out: pairs of question and completions in the order of its calls."""
    honest, given = InProcessEngine.generate, []

    def listening(self, prompts, n, sampling, seed):
        groups = honest(self, prompts, n, sampling, seed)
        questions = [self.codec.decode(prompt).split(" ")[0] for prompt in prompts]
        given.extend(zip(questions, groups, strict=True))
        return groups

    monkeypatch.setattr(InProcessEngine, "generate", listening)
    return given


def counted(groups):
    """Generations, tokens, judged responses, distinct solutions of a group; a solution is a response's own text."""
    completions = [c for _, group in groups for c in group]
    judged = [
        [c.text.strip() for c in group if c.finish_reason is FinishReason.STOP and c.text.strip()]
        for _, group in groups
    ]
    tokens = sum(len(c.token_ids) for c in completions)
    return len(completions), tokens, sum(map(len, judged)), sum(len(set(of_group)) for of_group in judged)


def by_problem(groups):
    """One group a problem, whatever was asked of it."""
    of_problem = {}
    for question, group in groups:
        of_problem.setdefault(question, []).extend(group)
    return list(of_problem.items())


def first_four(spent):
    return spent.generations, spent.generated_tokens, spent.judged_responses, spent.verifier_calls


def test_a_run_has_spent_what_the_engine_gave_and_the_verifier_was_asked(cli, tmp_path, given):
    folder = RunFolder(tmp_path / "run")
    short = ("--model.sampling.max_new_tokens", "3", "--search.settings.sampling.max_new_tokens", "3")
    assert cli("search", *short)[0] == 0
    searched = by_problem(given)
    assert budget_of(folder).to_dict() == {
        "search": budget_of(folder).search.__dict__,
        "train": Budget().train.__dict__,
        "evaluate": Budget().evaluate.__dict__,
    }

    given.clear()
    assert cli("fit", *short)[0] == 0
    budget, summary = budget_of(folder), json.loads(folder.summary.read_text())
    tests = [part for part in given if part[0].startswith("te")]
    training = [part for part in given if part[0].startswith("tr")]
    base, trained = counted(tests[:5]), counted(tests[5:])
    assert first_four(budget.search) == counted(searched)
    assert first_four(budget.train) == counted(training)
    assert first_four(budget.evaluate) == tuple(a + b for a, b in zip(base, trained, strict=True))
    assert summary["generations"] == {"base": base[0], "trained": trained[0]}
    assert summary["generated_tokens"] == {"base": base[1], "trained": trained[1]}
    # Else the comparison would not tell one count from another.
    for generations, tokens, judged, calls in (counted(searched), counted(training)):
        assert tokens > generations > judged > calls
    assert budget.search.seconds == json.loads(folder.search_report.read_text())["seconds"]
    assert budget.evaluate.seconds == summary["seconds"]["evaluate"]
    assert budget.train.seconds == pytest.approx(summary["seconds"]["train"], rel=1e-5)


def test_what_is_scored_and_replayed_is_counted(cli, tmp_path):
    assert cli("fit", "--trainer.callbacks", '[{"class_path": "probes.RecordTokens"}]')[0] == 0
    budget = budget_of(RunFolder(tmp_path / "run"))
    steps = [json.loads(line) for line in (tmp_path / "run" / "tokens.jsonl").read_text().splitlines()]
    assert budget.train.optimizer_steps == len(steps) == 8
    assert budget.train.replayed_responses == 8 * 4
    assert budget.train.replayed_tokens == sum(step["replayed"] for step in steps)


def test_nothing_is_spent_where_there_is_nothing(tmp_path):
    assert budget_of(RunFolder(tmp_path / "absent")) == Budget()


def test_a_term_without_a_share_spends_nothing(cli, tmp_path):
    replayed = ("--model.mu", "1", "--data.problems_per_step", "0", "--evaluation.baseline", "false")
    assert cli("fit", *replayed)[0] == 0
    train = budget_of(RunFolder(tmp_path / "run")).train
    assert (*first_four(train), train.scored_tokens) == (0, 0, 0, 0, 0)
    assert train.replayed_responses == 8 * 4
    assert "train/generations" not in training_rows(tmp_path / "run")[0]


def test_what_an_earlier_release_did_not_count_is_not_known(cli, tmp_path):
    assert cli("fit")[0] == 0
    folder, expected = RunFolder(tmp_path / "run"), budget_of(RunFolder(tmp_path / "run"))
    counts = {"generations", "generated_tokens", "judged_responses", "verifier_calls", "replayed_tokens"}
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    old = [{k: v for k, v in row.items() if k.removeprefix("train/") not in counts} for row in rows]
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in old))
    report = json.loads(folder.search_report.read_text())
    folder.search_report.write_text(json.dumps({k: v for k, v in report.items() if k not in counts}))
    budget = budget_of(folder)
    assert first_four(budget.train) == (None,) * 4
    assert (budget.train.replayed_tokens, budget.train.replayed_responses) == (None, 8 * 4)
    assert first_four(budget.search) == (128, None, None, None)
    assert budget.evaluate == expected.evaluate


def test_steps_that_were_not_logged_are_not_guessed(cli, tmp_path):
    assert cli("fit", "--trainer.log_every_n_steps", "2", "--evaluation.baseline", "false")[0] == 0
    train = budget_of(RunFolder(tmp_path / "run")).train
    assert (*first_four(train), train.replayed_tokens) == (None,) * 5
    assert train.optimizer_steps == 8


@pytest.mark.parametrize("name", ["metrics.jsonl", "search.json", "eval/step=0.jsonl"])
def test_a_broken_file_is_named(tmp_path, name):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    path.write_text('{"step": 0, "train/loss": 0.')
    with pytest.raises(UsageError, match=name):
        budget_of(RunFolder(tmp_path / "run"))
