"""Entry point: `python train.py {fit,validate,test,search} --config configs/quickstart.yaml`.

Nothing heavy is imported at the top: verification workers import this file again.
"""

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    from elite_lightning.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
