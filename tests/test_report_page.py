"""The page as a browser gets it: whole, safe, self-contained, and its numbers those of the files."""

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser
from statistics import mean

import pytest
from report_runs import BASE, ELITE, GRPO, HOSTILE, run_folder, samples

from elite_lightning.evaluation import figures_of, read_counts, write_samples
from elite_lightning.html.command import main
from elite_lightning.html.page import write_report
from elite_lightning.metrics import paired_bootstrap_difference

VOID = {"meta", "input", "link", "br", "hr", "img"}


class Page(HTMLParser):
    """A page's elements, with whatever is not closed as it should be."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.text = path.read_text()
        self.elements, self._open, self.texts = [], [], []
        self.feed(self.text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append((tag, len(self.elements) - 1))
            self.texts.append("")
        else:
            self.texts.append(None)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append(None)

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        for _, number in self._open:
            self.texts[number] += data

    def of(self, tag):
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
            if name == tag
        ]

    @property
    def data(self):
        return json.loads(next(text for attributes, text in self.of("script") if attributes.get("id") == "data"))

    def table(self, key):
        """Row's head to column's head to the attributes of the cell."""
        part = self.text.split(f'<h3 id="{key}">')[1].split("</table>")[0]
        heads = re.findall(r'<th scope="col">(.*?)</th>', part)[1:]
        rows = {}
        for row in part.split("<tbody>")[1].split("</tr>")[:-1]:
            cells = [dict(re.findall(r'([\w-]+)="(.*?)"', cell)) for cell in re.findall(r"<td(.*?)>", row)]
            rows[re.search(r'<th scope="row">(.*?)</th>', row)[1]] = dict(zip(heads, cells, strict=True))
        return rows


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two arms of two seeds, with a page."""
    root = tmp_path_factory.mktemp("study")
    arms = {
        "GRPO": [run_folder(root / "grpo" / f"seed={s}", GRPO, scale=1 + s) for s in range(2)],
        HOSTILE: [run_folder(root / "elite" / f"seed={s}", t, searched=True) for s, t in enumerate((ELITE, GRPO))],
    }
    page = write_report(arms, root / "page.html", reference="GRPO")
    return arms, Page(page)


def by_hand(tables, k):
    """pass@k and strategies@k of each problem by enumeration of all draws, averaged over runs."""
    passes, kinds = [], []
    for problem in BASE:
        draws = [list(itertools.combinations(table[problem], k)) for table in tables]
        passes.append(mean(mean(any(s != "." for s in d) for d in of_run) for of_run in draws))
        kinds.append(mean(mean(len(set(d) - {"."}) for d in of_run) for of_run in draws))
    return {f"pass@{k}": passes, f"strategies@{k}": kinds}


def test_the_tables_hold_what_the_samples_give(study):
    _, page = study
    figures, differences = page.table("figures"), page.table("differences")
    label = next(name for name in figures if "alert" in name)
    tables = {"base policy": [BASE], "GRPO": [GRPO, GRPO], label: [ELITE, GRPO]}
    assert list(figures) == list(tables)
    for k in (1, 2, 8):
        expected = {arm: by_hand(of_arm, k) for arm, of_arm in tables.items()}
        for name in {f"pass@{k}", f"strategies@{k}"} - {"strategies@1"}:
            for arm in tables:
                assert float(figures[arm][name]["data-value"]) == pytest.approx(mean(expected[arm][name]))
            gap = paired_bootstrap_difference(expected[label][name], expected["GRPO"][name])
            assert float(differences[label][name]["data-value"]) == pytest.approx(gap.mean)
            assert (differences[label][name].get("class") == "more") == (gap.low > 0)
    assert "GRPO" not in differences


def test_intervals_of_one_run_are_those_of_its_summary(tmp_path):
    run = run_folder(tmp_path / "run", ELITE)
    page = Page(write_report({"trained": [run]}, tmp_path / "page.html"))
    expected = figures_of(read_counts(run / "eval/step=4.jsonl"), [8])
    for name, figure in expected.items():
        assert f">{figure.mean:.3f}<small>[{figure.low:.2f}, {figure.high:.2f}]</small>" in page.text, name
    assert list(page.table("differences")) == ["trained"]  # against the base policy


def test_every_number_names_files_that_are_as_they_were(study):
    arms, page = study
    listed = dict(re.findall(r'<tr id="(f\d+)">.*?<td class="text">(.*?)</td>', page.text))
    hashes = dict(re.findall(r'<tr id="(f\d+)">.*?<code title="(\w{64})">', page.text))
    root = arms["GRPO"][0].parent.parent
    for id_, name in listed.items():
        assert hashlib.sha256((root / name).read_bytes()).hexdigest() == hashes[id_]
    numbers = [attributes for attributes, _ in page.of("td") if "data-value" in attributes]
    assert len(numbers) > 60
    for attributes in numbers:
        names = [listed[id_] for id_ in attributes["data-source"].split()]
        assert names
        assert all(name in attributes["title"] for name in names)
    assert (
        re.findall(r"(\w+)/seed=\d/eval/step=4", page.table("differences")["base policy"]["pass@1"]["title"])
        == ["grpo"] * 2
    )


def test_budgets_are_means_of_the_runs(study):
    _, page = study
    budgets = page.table("budgets")
    assert float(budgets["GRPO"]["train: seconds"]["data-value"]) == 45
    assert float(budgets["GRPO"]["train: generations"]["data-value"]) == 4 * 8
    assert "data-value" not in budgets["GRPO"]["train: generated tokens"]  # was not counted
    assert "data-value" not in budgets["GRPO"]["search: generations"]
    assert [float(row["search: generations"]["data-value"]) for name, row in budgets.items() if name != "GRPO"] == [5]


def test_nothing_is_fetched_and_ids_are_unique(study):
    _, page = study
    assert not re.search(r"https?:|@import|url\((?!#)", page.text)
    assert not [a for _, a in page.elements if {"src", "srcset", "action"} & a.keys()]
    assert all(a.get("href", a.get("xlink:href", "#")).startswith("#") for _, a in page.elements)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for tag, a in page.elements if tag in ("a", "use") and "href" in a}
    targets |= set(re.findall(r"url\(#(.*?)\)", page.text))
    assert len(targets) > 10
    assert targets <= set(ids)


def test_the_only_script_that_may_run_is_the_page_s_own(study):
    _, page = study
    scripts = page.of("script")
    assert [attributes.get("type") for attributes, _ in scripts] == ["application/json", None]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    policy = next(a["content"] for a, _ in [(a, None) for t, a in page.elements if t == "meta"] if "http-equiv" in a)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_hostile_text_comes_back_as_text(study):
    _, page = study
    data = page.data
    assert data["arms"][2]["label"] == HOSTILE
    elites = {p["id"]: p["cells"] for p in data["problems"]}
    assert elites["train-0"] == [[0, "alone", "1", "a", 1], [0, "first", "2", HOSTILE, 1]]
    assert HOSTILE not in page.text
    assert sum(HOSTILE.replace("\u2028", "") in (text or "").replace("\u2028", "") for _, text in page.of("li")) == 1


def test_the_browser_has_questions_prompts_and_answers(study):
    _, page = study
    data = page.data
    problems = {p["id"]: p for p in data["problems"]}
    assert problems["test-1"]["question"] == "te1b"
    assert [data["lines"][line] for line in problems["test-1"]["prompt"]] == ["te1b - -:"]
    assert problems["test-1"]["data"] == {"letter": "b"}
    base, grpo, _ = problems["test-0"]["answers"]
    assert (base["samples"], base["correct"], base["strategies"]) == (8, 4, 3)
    assert [row[:2] for row in base["rows"][:4]] == [["x", 1], ["xx", 1], ["yyy", 1], ["zzzz", 1]]
    assert (grpo["samples"], grpo["correct"], grpo["strategies"]) == (16, 14, 1)
    text, count, correct, reason, strategy, run, sample = grpo["rows"][0]
    assert (text, count, correct, reason, problems["test-0"]["strategies"][strategy]) == ("x", 2, 1, None, "x")
    assert (data["arms"][1]["files"][run], sample) == ("grpo/seed=0/eval/step=4.jsonl", 0)


def test_colours_are_variables_that_both_modes_define(study):
    _, page = study
    style = page.of("style")[0][1]
    light, dark = (
        set(re.findall(r"(--[\w-]+):", part)) for part in style.split("@media (prefers-color-scheme: dark)")[:2]
    )
    assert light == dark
    drawn = "".join(page.text.split("<svg")[1:])
    used = set(re.findall(r"var\((--[\w-]+)\)", page.text))
    assert {"--ink", "--grid", "--arm-0", "--arm-1", "--arm-2"} <= used <= light
    assert not re.findall(r"(?:fill|stroke): #", drawn)


def test_parts_that_are_not_there_are_left_out_and_named(tmp_path):
    run = run_folder(tmp_path / "run", GRPO, source="toy.NoSuchSource")
    (run / "metrics.jsonl").unlink()
    (run / "summary.json").unlink()
    (run / "eval" / "step=4.jsonl").unlink()
    page = Page(write_report({"run": [run]}, tmp_path / "page.html"))
    assert "run: no run was measured on the test problems yet." in page.text
    assert "NoSuchSource" in page.text
    assert not any("question" in problem for problem in page.data["problems"])
    assert list(page.table("figures")) == ["base policy"]
    assert 'id="training"' not in page.text
    assert 'id="search"' not in page.text
    assert write_report({"run": [run]}, tmp_path / "page.html").read_text() == page.text  # nothing depends on the hour
    (run / "eval" / "step=0.jsonl").unlink()
    page = Page(write_report({"run": [run]}, tmp_path / "page.html"))
    assert "there are no figures to show" in page.text
    assert page.data["problems"] == []


def test_a_changed_domain_and_an_edited_archive_are_named(tmp_path, study):
    assert "have changed since the runs" in study[1].text  # the archive's domain is not the toy's
    run = run_folder(tmp_path / "run", ELITE, searched=True)
    lines = (run / "archive.jsonl").read_text()
    (run / "archive.jsonl").write_text(lines.replace('"approach": "first"', '"approach": "fist"'))
    assert main([str(run)]) == 0
    page = Page(run / "report.html")
    assert re.search(r"An archive is left out: .*line 2", page.text)
    assert page.data["archives"] == []


def test_a_study_s_results_are_shown_and_checked(tmp_path):
    runs = {name: [run_folder(tmp_path / name / "seed=0", table)] for name, table in (("grpo", GRPO), ("elite", ELITE))}
    figure = {
        "mean": 5 / 8,
        "low": 0.1,
        "high": 0.9,
        "low_with_seeds": 0.05,
        "high_with_seeds": 0.95,
        "by_seed": [5 / 8],
    }
    wrong, arm = {**figure, "mean": 0.77}, {"runs": ["x"], "evaluations": ["x/seed=0/eval/step=4.jsonl"]}
    budget = {"search": {"generations": 1234567}}
    results = {
        "reference": "grpo",
        "settings": {"level": 0.9, "resamples": 100, "ks": [1]},
        "arms": {
            "grpo": {"label": "GRPO", **arm, "figures": {"pass@1": figure}},
            "elite": {
                "label": "EliteReplay",
                **arm,
                "figures": {"pass@1": wrong, "gini_simpson": wrong},
                "budget": budget,
            },
        },
        "differences": {
            "elite": {
                "pass@1": {
                    **{"mean": 0.145, "low": 0.1, "high": 0.2, "low_with_seeds": -0.1, "high_with_seeds": 0.3},
                    **{"by_seed": [0.3, -0.01], "seeds_above": 1},
                }
            }
        },
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results))
    page = Page(write_report(runs, tmp_path / "page.html", results=results, results_file=file))
    assert float(page.table("figures")["EliteReplay"]["pass@1"]["data-value"]) == 0.77
    assert "results.json" in page.table("figures")["EliteReplay"]["pass@1"]["title"]
    assert "other means than the files of samples give: EliteReplay pass@1." in page.text
    assert "class" not in page.table("differences")["EliteReplay"]["pass@1"]  # with seeds the interval holds 0
    assert re.search(r"not told apart</strong>: .*EliteReplay \(\+0.14 \[-0.10, \+0.30\]\)", page.text)
    assert "above the reference in 1 of 2 seeds" in page.table("differences")["EliteReplay"]["pass@1"]["title"]
    assert "gini_simpson" not in page.table("figures")["EliteReplay"]
    assert float(page.table("all-figures")["EliteReplay"]["gini_simpson"]["data-value"]) == 0.77
    assert ">1,234,567<" in page.text
    assert "90% intervals" in page.text


def test_arms_are_compared_on_the_problems_that_all_have(tmp_path):
    one = run_folder(tmp_path / "one", GRPO)
    other = run_folder(tmp_path / "other", ELITE)
    write_samples(other / "eval" / "step=4.jsonl", samples({"test-1": ELITE["test-1"]}))
    page = Page(write_report({"one": [one], "other": [other]}, tmp_path / "page.html", reference="one"))
    assert float(page.table("figures")["one"]["strategies@8"]["data-value"]) == 2
    assert "Means over 1 problems" in page.text


def test_pictures_are_there_as_png_too(study):
    arms, page = study
    folder = arms["GRPO"][0].parent.parent / "page_pictures"
    names = {path.stem for path in folder.glob("*.png")}
    training = {f"training_{name}" for name in ("correct", "entropy", "replay", "gradient")}
    assert names == {"kept", "pass_over_k", "strategies_over_k", "coverage_cells", "coverage_problems"} | training
    assert len(page.of("svg")) == len(names)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.glob("*.png"))
