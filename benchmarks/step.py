"""Where the time of a training step goes: `python benchmarks/step.py --config configs/quickstart.yaml --steps 20`.

Runs the real command line on a shortened configuration in a temporary run folder, and prints medians over the steps
from `metrics.jsonl`, the first ones left out.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 3
PARTS = ("rollout", "verify", "update", "update_policy", "update_replay", "train")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--config", default=str(ROOT / "configs" / "quickstart.yaml"))
    arguments.add_argument("--steps", type=int, default=20)
    known, options = arguments.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        run(known.config, known.steps + WARM_UP, Path(folder), options)
        show([json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()])


def run(config: str, steps: int, folder: Path, options: list[str]) -> None:
    """Train for some steps; everything else is cut to a minimum."""
    sys.path.insert(0, str(ROOT))
    sys.argv = sys.argv[:1]
    from elite_lightning.cli import main as command

    short = {"run_dir": folder, "trainer.max_steps": steps, "checkpoint_every": 10**6}
    short |= {"evaluation.baseline": "false", "evaluation.samples": 1, "evaluation.ks": "[1]"}
    if "\nsearch:" in Path(config).read_text():
        short["search.settings.attempts_per_problem"] = 8
    overrides = [word for name, value in short.items() for word in (f"--{name}", str(value))]
    if code := command(["fit", "--config", config, *overrides, *options]):
        sys.exit(code)


def show(rows: list[dict[str, float]]) -> None:
    """Print the median of each part."""
    steps = [row for row in rows if "train/loss" in row][WARM_UP:]
    whole = statistics.median(row["train/seconds/train"] for row in steps)
    print(f"\nMedian over {len(steps)} steps")
    for part in PARTS:
        values = [row[f"train/seconds/{part}"] for row in steps if f"train/seconds/{part}" in row]
        if values:
            middle = statistics.median(values)
            print(f"{part:15s} {middle:8.3f} s {middle / whole:7.1%}")


if __name__ == "__main__":
    main()
