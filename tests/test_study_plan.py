"""What a study hands to its runs: overrides laid over files, one seed for all shared searches, and what is refused."""

import re
import sys

import pytest
import yaml
from conftest import ROOT

from elite_lightning.errors import UsageError
from elite_lightning.study.command import _parse
from elite_lightning.study.plan import Arm, SharedSearch, StudyPlan, merged, read_config
from elite_lightning.study.runner import runs_of, searches_of


@pytest.fixture
def files(tmp_path):
    searching = {
        "seed_everything": 7,
        "run_dir": "runs/x",
        "model": {"mu": 0.05, "objective": {"class_path": "a.A", "init_args": {"x": 1, "y": 2}}},
        "search": {"class_path": "s.S", "init_args": {"settings": {"attempts_per_problem": 8}}},
    }
    plain = {key: value for key, value in searching.items() if key != "search"}
    for name, config in (("searching", searching), ("plain", plain)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def plan(files, **changes):
    given = {
        "study_dir": str(files / "study"),
        "arms": {
            "base": Arm(str(files / "plain.yaml"), trained=False),
            "elite": Arm(str(files / "searching.yaml"), "Elite", {"model": {"mu": 0.1}}, search="shared"),
        },
        "seeds": [3, 4],
        "reference": "base",
        "searches": {"shared": SharedSearch(str(files / "searching.yaml")), "unused": SharedSearch("nowhere.yaml")},
        "search_seed": 11,
    }
    return StudyPlan(**{**given, **changes})


def test_later_mappings_lie_on_top_and_another_class_takes_nothing_over():
    below = {"a": {"class_path": "p.P", "init_args": {"x": 1, "y": {"z": 2}}}, "b": [1, 2], "c": None}
    assert merged(below, {"a": {"init_args": {"y": {"w": 3}}}})["a"] == {
        "class_path": "p.P",
        "init_args": {"x": 1, "y": {"z": 2, "w": 3}},
    }
    assert merged(below, {"a": {"class_path": "q.Q"}})["a"] == {"class_path": "q.Q"}
    assert merged(below, {"a": {"class_path": "p.P", "init_args": {"x": 5}}})["a"]["init_args"]["y"] == {"z": 2}
    assert merged(below, {"b": [3], "c": {"d": 1}}, {"a": None}) == {"a": None, "b": [3], "c": {"d": 1}}
    assert below["a"]["init_args"] == {"x": 1, "y": {"z": 2}}  # the file's own is left alone


def test_an_arm_is_its_file_and_its_overrides_and_nothing_else(files):
    study = plan(files, overrides={"model": {"mu": 0.5}, "trainer": {"max_steps": 2}})
    assert study.arm_config("elite") == {
        "model": {"mu": 0.1, "objective": {"class_path": "a.A", "init_args": {"x": 1, "y": 2}}},
        "trainer": {"max_steps": 2},
        "search": {"class_path": "s.S", "init_args": {"settings": {"attempts_per_problem": 8, "seed": 11}}},
        "evaluation": {"baseline": False},
    }
    assert study.arm_config("base")["model"]["mu"] == 0.5
    assert "search" not in study.arm_config("base")
    assert study.search_config("shared")["search"] == study.arm_config("elite")["search"]


def test_runs_come_seed_by_seed_and_only_searches_that_are_used(files):
    study = plan(files)
    (search,) = searches_of(study)
    assert search.folder == files / "study" / "searches" / "shared"
    assert search.arguments[-2:] == ("--seed_everything", "11")
    runs = runs_of(study)
    assert [run.name for run in runs] == ["base seed=3", "elite seed=3", "base seed=4", "elite seed=4"]
    assert [run.arguments[0] for run in runs[:2]] == ["test", "fit"]
    assert [run.done.name for run in runs[:2]] == ["step=0.jsonl", "summary.json"]
    assert [run.start_from for run in runs[:2]] == [None, search.folder]
    assert runs[1].folder == files / "study" / "elite" / "seed=3"
    assert runs[1].arguments[-1] == "3"
    assert yaml.safe_load((files / "study" / "elite" / "arm.yaml").read_text()) == study.arm_config("elite")


@pytest.mark.parametrize(
    ("parallel", "configured", "threads"), [(1, 4, None), (2, None, 3), (2, 4, 3), (2, 1, 1), (8, 4, 1)]
)
def test_runs_at_once_share_the_cores(files, monkeypatch, parallel, configured, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(6)))
    study = plan(files, parallel=parallel, overrides={"torch_threads": configured})
    expected = [] if threads is None else [str(threads)]
    for run in runs_of(study):
        assert [run.arguments[i + 1] for i, word in enumerate(run.arguments) if word == "--torch_threads"] == expected


def test_runs_of_another_configuration_are_not_mixed_with_new_ones(files):
    runs_of(plan(files))
    changed = plan(files, overrides={"model": {"objective": None}})
    runs_of(changed)  # nothing was run yet
    ran = files / "study" / "elite" / "seed=3" / "config.yaml"
    ran.parent.mkdir(parents=True)
    ran.write_text("")
    runs_of(changed)
    with pytest.raises(UsageError, match=r"arm 'elite' was run with another model\.objective"):
        runs_of(plan(files))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parallel": 0}, "parallel must be at least 1, got 0"),
        ({"seeds": []}, "seeds must be one or more"),
        ({"seeds": [1, 1]}, r"each once, got \[1, 1\]"),
        ({"reference": "grpo"}, "reference='grpo' is no arm; the arms are base, elite"),
        ({"searches": {}}, "arm 'elite' starts from search 'shared'; the searches are none"),
        ({"arms": {"../x": Arm("x.yaml")}}, "cannot be the name of an arm"),
        ({"arms": {"searches": Arm("x.yaml")}}, "cannot be the name of an arm"),
    ],
)
def test_what_does_not_fit_together_is_refused(files, changes, said):
    with pytest.raises(UsageError, match=said):
        plan(files, **changes)


def test_files_and_overrides_that_cannot_be_used_are_named(files):
    with pytest.raises(UsageError, match=r"config=.*nowhere\.yaml cannot be read"):
        read_config(str(files / "nowhere.yaml"))
    (files / "broken.yaml").write_text("a: [")
    with pytest.raises(UsageError, match=r"broken\.yaml is not YAML"):
        read_config(str(files / "broken.yaml"))
    (files / "list.yaml").write_text("[1]")
    with pytest.raises(UsageError, match="it holds no mapping"):
        read_config(str(files / "list.yaml"))
    own = plan(files, arms={"base": Arm(str(files / "plain.yaml"), overrides={"seed_everything": 1})})
    with pytest.raises(UsageError, match="overrides must not set seed_everything"):
        own.arm_config("base")
    lacking = plan(files, arms={"base": Arm(str(files / "plain.yaml"), search="shared")})
    with pytest.raises(UsageError, match="needs `search` in its configuration"):
        lacking.arm_config("base")


SHIPPED = sorted((ROOT / "configs" / "study").glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_studies_hold_configurations_that_the_command_takes(path, tmp_path, monkeypatch, capsys):
    from elite_lightning.cli import EliteCLI

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    study = _parse(["--config", str(path), "--study_dir", str(tmp_path)])
    for job in (*searches_of(study), *runs_of(study)[: len(study.arms)]):
        with pytest.raises(SystemExit) as ended:  # --print_config ends the program
            EliteCLI([*job.arguments, "--print_config"])
        assert ended.value.code == 0
        assert yaml.safe_load(capsys.readouterr().out)["run_dir"] == str(job.folder)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_number_and_list_of_a_shipped_study_carries_a_comment(path):
    values = [line for line in path.read_text().splitlines() if re.match(r" *[\w.]+: *[0-9\[]", line)]
    assert values
    assert [line for line in values if "#" not in line] == []
