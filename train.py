"""Entry point: `python train.py {fit,validate,test,search,study} --config FILE`, `python train.py report FOLDER`.

Nothing heavy is imported at the top: verification workers import this file again.
"""

import os
import sys
from pathlib import Path

# Torch's threads spin while they wait for each other. Where another process has taken the core of one, the others would
# spin until it has run again, at every operation: two threads were seen to take thirty times as long as one. So they
# spin for a moment only, and then sleep. OpenMP reads this when torch is loaded; a user's own setting stays.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def main() -> int:
    """Run the command line; returns the exit code."""
    command, *rest = sys.argv[1:] or [""]
    if command == "study":
        from elite_lightning.study.command import main as study

        return study(rest, Path(__file__).resolve())
    if command == "report":
        from elite_lightning.html.command import main as report

        return report(rest)
    from elite_lightning.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
