"""From run folders to results, to the counts behind them and back, and to tables."""

import json

import pytest
from rich.console import Console

from elite_lightning.errors import UsageError
from elite_lightning.evaluation import figures_of, read_counts, write_samples
from elite_lightning.metrics import paired_bootstrap_difference
from elite_lightning.study.counts import StudyCounts, collect
from elite_lightning.study.counts_file import read_study_counts, write_counts
from elite_lightning.study.results import results_of, write_results
from elite_lightning.study.tables import markdown, number, show

# Of 8 samples: one letter a sample, its strategy, or - for a wrong one. Every arm, seed and problem is another.
ANSWERS = {
    "base": {0: ["abcd----", "ab------", "a-------"], 1: ["abca----", "abb-----", "--------"]},
    "grpo": {0: ["aaaaaaab", "aaaa----", "--------"], 1: ["aaaaaaaa", "aaab----", "aa------"]},
    "replay": {0: ["aabbccaa", "aabb----", "ab------"], 1: ["abcdaaaa", "aabbcc--", "--------"]},
}
LABELS = {"grpo": "GRPO", "replay": "EliteReplay with a rather long name"}


def write_run(folder, answers, step=100, is_ended=True, names=("p0", "p1", "p2")):
    records = [
        {
            "index": index,
            "problem_id": name,
            "sample": number,
            "correct": letter != "-",
            "strategy": None if letter == "-" else letter,
            "reason": "verifier_failure" if letter == "!" else None,
            "interpretations": [letter == "a", letter == "b"],
        }
        for index, (name, letters) in enumerate(zip(names, answers, strict=True))
        for number, letter in enumerate(letters)
    ]
    write_samples(folder / "eval" / f"step={step}.jsonl", records)
    if is_ended:
        (folder / "summary.json").write_text(json.dumps({"steps": step}))


@pytest.fixture
def study(tmp_path):
    """A study of three arms and two seeds; `base` was only evaluated, and the others before training as well."""
    for arm, runs in ANSWERS.items():
        for seed, answers in runs.items():
            folder = tmp_path / arm / f"seed={seed}"
            trained = arm != "base"
            if trained:
                write_run(folder, ["!" * 8] * 3, step=0, is_ended=False)
                write_run(folder, ["-" * 8] * 3, step=200, is_ended=False)  # of a longer run in the same folder
            write_run(folder, answers, step=100 if trained else 0, is_ended=trained)
    return tmp_path


def arms_in(study, *names):
    return {arm: sorted((study / arm).glob("seed=*")) for arm in names or ANSWERS}


@pytest.fixture
def counts(study):
    return collect(study, arms_in(study))


@pytest.fixture
def results(counts):
    return results_of(counts, "grpo", labels=LABELS, resamples=200)


def test_the_evaluation_that_a_run_ended_with_is_read(results):
    assert results["arms"]["replay"]["runs"] == ["replay/seed=0", "replay/seed=1"]
    assert results["arms"]["replay"]["evaluations"] == [f"replay/seed={seed}/eval/step=100.jsonl" for seed in (0, 1)]
    assert results["arms"]["base"]["evaluations"] == [f"base/seed={seed}/eval/step=0.jsonl" for seed in (0, 1)]


def test_without_a_summary_the_newest_evaluation_counts(study):
    for step in (9, 10):
        write_run(study / "raw" / "seed=4", ANSWERS["base"][0], step, is_ended=False)
    assert collect(study, arms_in(study, "raw")).arms["raw"][4].evaluation == "raw/seed=4/eval/step=10.jsonl"


def test_a_run_elsewhere_keeps_its_whole_path(study):
    counts = collect(study / "grpo", {"base": [study / "base" / "seed=1"], "grpo": [study / "grpo" / "seed=1"]})
    assert counts.arms["base"][1].run == f"{study}/base/seed=1"
    assert counts.arms["grpo"][1].run == "seed=1"


def test_figures_agree_with_those_of_the_single_evaluations(study, results):
    """As `fit` reports them, and by hand."""
    for arm in ANSWERS:
        for position, evaluation in enumerate(results["arms"][arm]["evaluations"]):
            alone = figures_of(read_counts(study / evaluation), (1, 2, 4, 8))
            for name, figure in ((name, alone[name]) for name in alone if name.startswith(("pass", "strategies"))):
                assert results["arms"][arm]["figures"][name]["by_seed"][position] == pytest.approx(figure.mean)
    assert results["settings"]["ks"] == [1, 2, 4, 8]
    assert results["arms"]["grpo"]["figures"]["pass@8"]["mean"] == pytest.approx(5 / 6)
    assert results["arms"]["replay"]["figures"]["strategies@8"]["by_seed"] == pytest.approx([7 / 3, 7 / 3])
    assert results["differences"]["replay"]["strategies@8"]["mean"] == pytest.approx(7 / 3 - 7 / 6)
    assert results["ratios"]["replay"]["strategies@8"]["mean"] == pytest.approx(2.0)


def test_a_difference_has_the_interval_of_a_paired_comparison_of_the_means_over_seeds(results):
    means = {"grpo": [1.0, 1.0, 0.5], "replay": [1.0, 1.0, 0.5], "base": [1.0, 1.0, 0.5]}  # pass@8 by problem
    strategies = {"grpo": [1.5, 1.5, 0.5], "replay": [3.5, 2.5, 1.0], "base": [3.5, 2.0, 0.5]}
    for name, by_problem in (("pass@8", means), ("strategies@8", strategies)):
        for arm in ("base", "replay"):
            expected = paired_bootstrap_difference(by_problem[arm], by_problem["grpo"], resamples=200)
            figure = results["differences"][arm][name]
            assert [figure[key] for key in ("mean", "low", "high")] == pytest.approx(list(expected))


def test_the_seeds_above_are_counted(results):
    gap = results["differences"]["replay"]["pass@8"]
    assert gap["by_seed"] == pytest.approx([1 / 3, -1 / 3])
    assert gap["seeds_above"] == 1
    assert results["differences"]["replay"]["strategies@8"]["seeds_above"] == 2


def test_an_arm_like_the_reference_is_above_it_in_no_seed(counts):
    results = results_of(StudyCounts({**counts.arms, "again": counts.arms["grpo"]}), "grpo", resamples=20)
    assert {gap["seeds_above"] for gap in results["differences"]["again"].values()} == {0}
    assert results["ratios"]["again"]["strategies@8"]["low_with_seeds"] == 1.0


def test_k_goes_as_far_as_every_run_has_samples(study):
    write_run(study / "base" / "seed=1", ["abcaa", "abb--", "-----"], step=0, is_ended=False)
    assert results_of(collect(study, arms_in(study)), "grpo", resamples=20)["settings"]["ks"] == [1, 2, 4, 5]


def test_conditional_figures_say_how_many_problems_they_are_of(results):
    figures = results["arms"]["base"]["figures"]
    assert figures["strategies_among_correct@2"]["problems"] == 2
    assert figures["strategies_among_correct@4"]["problems"] == 1
    none = figures["strategies_among_correct@8"]
    assert (none["problems"], none["mean"], none["low"], none["by_seed"]) == (0, None, None, [None, None])
    among = results["differences"]["replay"]["strategies_among_correct@4"]
    assert (among["problems"], among["pairs"]) == (2, 4)
    # Four out of aabbccaa, abcdaaaa, aabb and aabbcc, and out of aaaaaaab, aaaaaaaa, aaaa and aaab.
    replay = [3 - (1 + 15 + 15) / 70, 4 - (35 + 35 + 35) / 70, 2, 3 - 3 / 15]
    grpo = [2 - 35 / 70, 1, 1, 2]
    assert among["mean"] == pytest.approx((sum(replay) - sum(grpo)) / 4)
    assert among["by_seed"] == pytest.approx([(replay[i] + replay[i + 2] - grpo[i] - grpo[i + 2]) / 2 for i in (0, 1)])


def test_everything_follows_from_the_counts_alone(study, counts, results):
    write_results(study, counts, results)
    again = read_study_counts(study / "counts.csv")
    assert again == counts
    assert results_of(again, "grpo", labels=LABELS, resamples=200) == json.loads((study / "results.json").read_text())
    header, first, *_ = (study / "counts.csv").read_text().splitlines()
    assert header == "arm,seed,problem,samples,correct,strategies,evaluation"
    assert first == "base,0,p0,8,4,1 1 1 1,base/seed=0/eval/step=0.jsonl"


def test_what_the_verifier_could_not_judge_is_no_sample(study):
    write_run(study / "grpo" / "seed=0", ["aaaaaaab", "aaaa---!", "--------"])
    results = results_of(collect(study, arms_in(study)), "grpo", resamples=20)
    figure = results["arms"]["grpo"]["figures"]["pass@8"]
    assert (figure["problems"], figure["pairs"]) == (3, 5)
    assert figure["by_seed"] == pytest.approx([1 / 2, 1.0])
    assert results["differences"]["base"]["pass@8"]["pairs"] == 5


def test_arms_with_other_seeds_are_compared_on_those_they_share(study):
    write_run(study / "grpo" / "seed=7", ["aaaaaaaa"] * 3)
    results = results_of(collect(study, arms_in(study)), "grpo", resamples=20)
    assert results["arms"]["grpo"]["seeds"] == [0, 1, 7]
    assert results["arms"]["replay"]["paired_seeds"] == [0, 1]
    assert results["differences"]["replay"]["strategies@8"]["mean"] == pytest.approx(7 / 3 - 7 / 6)


def test_a_study_that_cannot_be_compared_is_refused(study, counts):
    other = study / "other" / "seed=3"
    write_run(other, ANSWERS["base"][0])
    with pytest.raises(UsageError, match=r"arm other and the reference grpo share no seed \(they have \[3\] and"):
        results_of(collect(study, arms_in(study, "grpo", "other")), "grpo")
    write_run(other, ANSWERS["base"][0], names=("p0", "p1", "p9"))
    with pytest.raises(UsageError, match=r"other/seed=3/eval/step=100.jsonl is on other problems than grpo/seed=0/"):
        collect(study, arms_in(study, "grpo", "other"))
    with pytest.raises(
        UsageError, match="the reference dapo is no arm of this study: choose one of base, grpo, replay"
    ):
        results_of(counts, "dapo")
    with pytest.raises(UsageError, match="grpo has none"):
        StudyCounts({**counts.arms, "grpo": {}})
    with pytest.raises(UsageError, match=r"two runs of seed 1, grpo/seed=1 and .*/base/seed=1"):
        collect(study, {"grpo": [study / "grpo" / "seed=1", study / "base" / "seed=1"]})


def test_runs_that_have_not_ended_are_refused(study):
    run = study / "replay" / "seed=1"
    (run / "summary.json").unlink()
    for step in (100, 200):
        (run / "eval" / f"step={step}.jsonl").unlink()
    with pytest.raises(UsageError, match="replay/seed=1 is evaluated before training only, replay/seed=0 after it"):
        collect(study, arms_in(study))
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(UsageError, match="seed=1: this run has not ended"):
        collect(study, arms_in(study))
    (run / "summary.json").write_text('{"steps": 300}')
    with pytest.raises(UsageError, match=r"seed=1: step=300\.jsonl is missing"):
        collect(study, arms_in(study))
    (run / "summary.json").write_text("{}")
    with pytest.raises(UsageError, match=r"summary.json: not a run's summary \('steps'\)"):
        collect(study, arms_in(study))
    with pytest.raises(UsageError, match="ends with seed=<number>"):
        collect(study, {"replay": [(study / "replay" / "seed=0").rename(study / "first")]})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("correct,", "right,", "not a study's counts, whose columns are arm, seed"),
        ("8,4,1 1 1 1", "8,3,1 1 1 1", r"line 2: .*3 correct of 8 samples do not fit"),
        ("8,4,1 1 1 1", "3,4,1 1 1 1", "line 2: .*4 correct of 3"),
        ("8,4,1 1 1 1", "8,4,1 1 1", "line 2: .*4 correct of 8 samples do not fit"),
        ("8,4,1 1 1 1", "8,4,4 x", "line 2"),
        ("base,0,p1", "base,0,p0", "line 3: .*problem p0 is there twice"),
        ("base,0,p1", "base", "line 3"),
        ("base,1,p0,8,4,2 1 1,base/seed=1", "base,1,p0,8,4,2 1 1,base/seed=2", "two evaluations of seed 1"),
    ],
)
def test_a_broken_table_of_counts_is_refused(counts, tmp_path, old, new, message):
    path = tmp_path / "counts.csv"
    write_counts(path, counts)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        read_study_counts(path)


def shown(results, width=80, **options):
    console = Console(width=width)
    with console.capture() as capture:
        show(results, console, **options)
    return capture.get()


def cells_of(table, arm):
    row = next(line for line in table.splitlines() if line.startswith(f"| {arm}"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_markdown_shows_the_results(results):
    first, about, second, compared = markdown(results).strip().split("\n\n")
    figure = results["arms"]["replay"]["figures"]["strategies@8"]
    interval = f"[{figure['low_with_seeds']:.2f}, {figure['high_with_seeds']:.2f}]"
    assert cells_of(first, "arm")[1:] == ["pass@1", "pass@8", "strategies@8", "strategies in 4 correct"]
    assert cells_of(first, LABELS["replay"])[3] == f"2.33 {interval}"
    assert cells_of(second, LABELS["replay"])[2].endswith("(1/2)")
    assert cells_of(second, LABELS["replay"])[3].startswith("+1.17 [")
    assert cells_of(second, LABELS["replay"])[4].startswith("2.00 [")
    assert not any(line.startswith("| GRPO") for line in second.splitlines())
    assert "3 problems and 2 seeds, with 95 % bootstrap intervals over problems and seeds." in about
    assert "of the 1 to 2 problems of which an arm had so many correct samples" in about
    assert "These are 8 comparisons" in compared


def test_intervals_are_over_problems_alone_where_that_is_asked_or_a_seed_is_single(study, results):
    gap = results["differences"]["base"]["strategies@8"]
    text = markdown(results, with_seeds=False)
    expected = f"{number(gap['mean'], 2, '+')} [{number(gap['low'], 2)}, {number(gap['high'], 2)}] (2/2)"
    assert cells_of(text.split("\n\n")[2], "base")[3] == expected
    assert "intervals over problems of the means over seeds" in text
    single = results_of(collect(study, {a: r[:1] for a, r in arms_in(study).items()}), "grpo", resamples=20)
    assert "1 seed, with 95 % bootstrap intervals over problems of" in markdown(single)


def test_the_terminal_shows_the_same_within_80_columns(results):
    text = shown(results)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    joined = " ".join(text.split())
    for sentence in markdown(results).split("\n\n")[1::2]:
        assert " ".join(sentence.split()) in joined
    for part in ("figures", "differences"):
        for arm in ("base", "replay"):
            figure = (results["arms"][arm]["figures"] if part == "figures" else results[part][arm])["pass@1"]
            assert number(figure["mean"], 3, "+" if part == "differences" else "") in text
            assert f"[{number(figure['low_with_seeds'], 2)},{number(figure['high_with_seeds'], 2)}]" in text
    assert "[-" in shown(results, with_seeds=False)


def test_a_single_arm_has_no_table_of_differences(study):
    results = results_of(collect(study, arms_in(study, "grpo")), "grpo", resamples=20)
    assert len(markdown(results).split("\n\n")) == 2
    assert "minus" not in shown(results)


def test_an_undefined_figure_is_a_dash(study):
    results = results_of(collect(study, arms_in(study)), "grpo", ks=(8, 16), correct_ks=(), resamples=20)
    first, about, second, _ = markdown(results).split("\n\n")
    assert cells_of(first, "arm") == ["arm", "pass@8", "pass@16", "strategies@16"]
    assert cells_of(first, "base")[2:] == ["-", "-"]
    assert cells_of(second, "base")[2:] == ["-", "-", "-"]
    assert "correct samples" not in about


@pytest.mark.parametrize(
    ("value", "places", "sign", "text"),
    [
        (0.5892, 3, "", ".589"),
        (-0.00515, 3, "", "-.005"),
        (-0.0001, 3, "+", "+.000"),
        (0.025, 3, "+", "+.025"),
        (1.0, 3, "", "1.000"),
        (0.9999, 3, "", "1.000"),
        (10.04, 2, "", "10.04"),
        (-1.204, 2, "+", "-1.20"),
    ],
)
def test_numbers_are_short(value, places, sign, text):
    assert number(value, places, sign) == text
