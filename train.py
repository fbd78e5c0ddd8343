"""Entry point: `python train.py {fit,validate,test,search,study} --config configs/quickstart.yaml`.

Nothing heavy is imported at the top: verification workers import this file again.
"""

import sys
from pathlib import Path


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:2] == ["study"]:
        from elite_lightning.study.command import main as study

        return study(sys.argv[2:], Path(__file__).resolve())
    from elite_lightning.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
