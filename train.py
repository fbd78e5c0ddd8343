"""Entry point: `python train.py {fit,validate,test,search} --config configs/quickstart.yaml`, `train.py report FOLDER`.

Nothing heavy is imported at the top: verification workers import this file again.
"""

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:2] == ["report"]:
        from elite_lightning.html.command import main as report

        return report(sys.argv[2:])
    from elite_lightning.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
