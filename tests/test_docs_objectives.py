"""What docs/objectives.md says can be typed, can be typed."""

import re

import yaml
from conftest import ROOT

import elite_lightning.objectives as objectives
from elite_lightning.objectives import Grpo, Objective, ReplayObjective

TEXT = (ROOT / "docs" / "objectives.md").read_text()


def tables():
    """Cells of every table row, without the heads."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] != "method" and not set(row[0]) <= {"-"}]


def test_every_class_of_the_tables_exists_and_every_public_method_is_in_a_table():
    named = {name for row in tables() for name in re.findall(r"`(\w+)`", row[1])}
    public = {
        name
        for name in objectives.__all__
        if isinstance(getattr(objectives, name), type)
        and hasattr(getattr(objectives, name), "denominator")
        and name not in ("Objective", "ReplayObjective", "PolicyGradient")
    }
    assert named == public


def test_the_options_that_make_a_method_are_those_of_the_class():
    for row in tables():
        if row[1] == "`Grpo`" and row[2] != "the default":
            text = row[2].replace("`", "").replace(": N", ": 8")
            options = {key: value for part in text.split(", ") for key, value in yaml.safe_load(part).items()}
            made = Grpo(**{key: float(value) if "clip" in key else value for key, value in options.items()})
            assert isinstance(made, Objective)


def test_the_yaml_and_the_class_of_the_text_work(cli, tmp_path, monkeypatch, toy_config):
    snippet = yaml.safe_load(re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[1])
    (tmp_path / "my_file.py").write_text(re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)[1])
    monkeypatch.syspath_prepend(tmp_path)
    config = yaml.safe_load(toy_config.read_text())
    config["model"] |= snippet["model"]
    config["trainer"]["max_steps"] = 1
    toy_config.write_text(yaml.safe_dump(config))
    assert cli("fit", "--run_dir", str(tmp_path / "yaml")) == (0, "")
    own = ("--run_dir", str(tmp_path / "own"), "--model.objective", "my_file.Reinforce")
    code, err = cli("fit", *own)
    assert (code, err) == (0, ""), err
    dumped = yaml.safe_load((tmp_path / "own" / "config.yaml").read_text())
    assert dumped["model"]["objective"]["class_path"] == "my_file.Reinforce"
    assert isinstance(objectives.ReplayNll(), ReplayObjective)
