"""The picture shows the figures that the summary holds."""

import matplotlib.image
import numpy as np
import pytest

from elite_lightning.evaluation import ProblemCounts
from elite_lightning.metrics import powers_of_two
from elite_lightning.picture import draw_over_k


def test_powers_of_two():
    assert powers_of_two(128) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert powers_of_two(100) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert powers_of_two(1) == [1]


def _arm(correct):
    return {f"p{i}": ProblemCounts(16, c, (c,) if c else ()) for i, c in enumerate(correct)}


def test_a_picture_is_written_and_arms_are_visible(tmp_path):
    draw_over_k({"base": [_arm([0, 1, 2])], "trained": [_arm([8, 16, 16])]}, tmp_path / "deep" / "over_k.png", "x")
    pixels = matplotlib.image.imread(tmp_path / "deep" / "over_k.png")[..., :3]
    blue = np.array([0x00, 0x72, 0xB2]) / 255
    assert (np.abs(pixels - blue).max(axis=-1) < 0.02).sum() > 200  # the second arm's line is drawn


def test_an_empty_arm_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_over_k({"base": [{}]}, tmp_path / "over_k.png")
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_over_k({"base": []}, tmp_path / "over_k.png")


def test_runs_of_an_arm_are_averaged_by_problem_and_not_counted_as_more_problems(tmp_path):
    """Every run again must not narrow the band: three equal runs are drawn as one is, to the pixel."""
    run = _arm([0, 4, 8, 16])
    for name, runs in (("one", [run]), ("three", [run] * 3), ("other", [run, _arm([16, 4, 8, 16])])):
        draw_over_k({"base": runs}, tmp_path / f"{name}.png")
    one, three, other = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("one", "three", "other"))
    assert np.array_equal(one, three)
    assert not np.array_equal(one, other)
