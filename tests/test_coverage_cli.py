"""Coverage of interpretations from the command line to metrics, samples, summary and table."""

import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from elite_lightning.run_folder import RunFolder

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_reports_coverage_of_its_ambiguous_problems(cli, tmp_path):
    options = ("--data.source", "ambiguous_toy.AmbiguousLetterSource", "--evaluation.ks", "[1,2,8]")
    assert cli("fit", *options, "--trainer.max_steps", "1") == (0, "")
    run = tmp_path / "run"
    logged = next(row for row in read(run / "metrics.jsonl") if "test/both@2" in row)
    samples = read(RunFolder(run).samples("test", 0))
    hits = {}
    for sample in samples:
        # The letter of the problem is the last of its question; a and c have a second reading.
        letter = "abcd"[int(sample["problem_id"].split("-")[1]) % 4]
        assert ("interpretations" in sample) == (letter in "ac")
        if letter in "ac":
            word = sample["solution"] or ""
            right = sample["correct"] or sample["reason"] == "wrong_result"
            expected = [
                right and not set(word) - set("abcd") and x in word for x in (letter, "bcda"["abcd".index(letter)])
            ]
            assert sample["interpretations"] == expected
            hits.setdefault(sample["problem_id"], []).append(expected)
    assert any(any(hit) for table in hits.values() for hit in table)
    for k in (1, 2, 8):
        for name, covers in (("either", any), ("both", all)):
            shares = []
            for table in hits.values():
                subsets = list(combinations(table, k))
                shares.append(sum(covers(map(any, zip(*s, strict=True))) for s in subsets) / len(subsets))
            assert logged[f"test/{name}@{k}"] == pytest.approx(sum(shares) / len(shares), abs=1e-6)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["base"]["both@2"] == pytest.approx(logged["test/both@2"], abs=1e-6)
    assert len(summary["change"]["either@8"]) == 3
    assert re.search(r"^ ?both@8 ", cli.out, re.MULTILINE)
    assert re.search(r"^ ?either@8 ", cli.out, re.MULTILINE)
    text = PAGE.read_text()
    names = {re.sub(r"\d+", "k", name.removeprefix("test/")) for name in logged if name.startswith("test/")}
    assert names == {"pass@k", "strategies@k", "either@k", "both@k"}
    assert all(f"`{name}`" in text for name in names)


def test_a_run_without_ambiguous_problems_does_not_speak_of_it(cli, tmp_path):
    assert cli("test") == (0, "")
    names = {name for row in read(tmp_path / "run" / "metrics.jsonl") for name in row}
    assert "test/pass@8" in names
    assert not any("both" in name or "either" in name for name in names)
