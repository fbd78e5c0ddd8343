"""The quickstart itself, shortened, on two ranks: the bundled model, PocketSQL, verification workers and all."""

import json

import pytest
from conftest import ROOT, run_process

BUNDLED = ROOT / "elite_lightning" / "assets" / "pocketsql_base"
SHORT = {
    "trainer.max_steps": 2,
    "trainer.enable_progress_bar": "false",
    "data.source.train_problems": 24,
    "search.settings.attempts_per_problem": 12,
    "evaluation.samples": 2,
    "evaluation.ks": "[1, 2]",
}


@pytest.mark.skipif(not BUNDLED.exists(), reason="the bundled base model has not been made")
def test_the_quickstart_runs_on_two_ranks(tmp_path):
    run = tmp_path / "run"
    two_ranks = {"trainer.devices": 2, "trainer.strategy": "ddp", "run_dir": run}
    options = [word for name, value in (SHORT | two_ranks).items() for word in (f"--{name}", value)]
    code, out, err = run_process("fit", "--config", ROOT / "configs" / "quickstart.yaml", *options, timeout_s=240)
    assert code == 0, err
    assert str(run) in out.replace("\n", "")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["archive"]["attempts"] == 24 * 12
    assert summary["archive"]["elites"] > 0
    assert len((run / "eval" / "step=2.jsonl").read_text().splitlines()) == 96 * 2
    assert summary["base"]["pass@2"] > 0.1
