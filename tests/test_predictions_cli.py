"""`test --predictions FILE` through the real command: scores by hand, no model, nothing overwritten."""

import json

import pytest
from benchmark_files import DATA, VISITS, write_ambiqt, write_bird, write_database, write_spider
from test_bad_input import complaint

from elite_lightning.cli import main

BIRD = "configs/bird.yaml"
SEPARATOR = "\t----- bird -----\t"


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    """Runs the command on a model that is nowhere; gives exit code and stderr, and the summary."""
    monkeypatch.setattr("sys.argv", ["train.py"])

    def run(config, root, predictions, *options):
        capsys.readouterr()
        command = ["test", "--config", config, "--data.root", str(root), "--predictions", str(predictions)]
        code = main([*command, "--run_dir", str(tmp_path / "run"), "--model.path", "/no/such/model", *options])
        run.out, err = capsys.readouterr()
        found = sorted((tmp_path / "run" / "predictions").glob("*/summary.json"))
        return (code, err), [json.loads(path.read_text()) for path in found]

    return run


def bird_predictions(root, changes):
    golds = [(entry["SQL"], entry["db_id"]) for entry in json.loads((root / "dev.json").read_text())]
    sql = [changes.get(index, gold) for index, (gold, _) in enumerate(golds)]
    return {str(i): f"{text}{SEPARATOR}{name}" for i, (text, (_, name)) in enumerate(zip(sql, golds, strict=True))}


def test_birds_predictions_are_scored_by_every_rule(score, tmp_path):
    (tmp_path / "data").mkdir()
    root = write_bird(tmp_path / "data")
    twice = "SELECT id FROM visitors WHERE age = 56 UNION ALL SELECT id FROM visitors WHERE age = 56"
    file = tmp_path / "predict.json"
    file.write_text(json.dumps(bird_predictions(root, {4: twice, 5: "SELECT", 6: "SELECT 'nobody'"})))
    (code, err), [summary] = score(BIRD, root, file)
    assert (code, err) == (0, "")
    rules = summary["rules"]
    assert set(rules) == {"default", "bird_ex", "soft_f1"}
    # Of thirteen, question 2's gold cannot run, 5 is no SQL, 6 has other rows, and 4 has its row twice.
    assert rules["default"]["gold_failed"] == rules["bird_ex"]["gold_failed"] == ["bird-dev-2"]
    assert rules["default"]["all"] == {"items": 13, "correct": 9, "score": 9 / 13}
    assert rules["default"]["errors"] == {"gold_failed": 1, "error": 1, "wrong_result": 2}
    assert rules["bird_ex"]["all"] == {"items": 13, "correct": 10, "score": 10 / 13}
    assert rules["bird_ex"]["by_difficulty"]["simple"] == rules["bird_ex"]["all"]
    assert "bird_ex" in score.out
    [verdicts] = (tmp_path / "run" / "predictions").glob("*/verdicts.jsonl")
    judged = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [i for i, one in enumerate(judged) if not one["default"]["correct"]] == [2, 4, 5, 6]
    assert [i for i, one in enumerate(judged) if not one["bird_ex"]["correct"]] == [2, 5, 6]


def test_spiders_predictions_are_lines(score, tmp_path):
    (tmp_path / "data").mkdir()
    root = write_spider(tmp_path / "data")
    golds = [entry["query"] for entry in json.loads((root / "dev.json").read_text())]
    file = tmp_path / "pred.txt"
    file.write_text("\n".join([*golds[:3], "SELECT 1 WHERE 0"]) + "\n")
    (code, _), [summary] = score("configs/spider.yaml", root, file)
    assert code == 0
    assert set(summary["rules"]) == {"default", "spider_exec", "test_suite", "test_suite_keep_distinct"}
    assert all(rule["all"]["items"] == 4 and rule["all"]["correct"] == 3 for rule in summary["rules"].values())


def test_copies_tell_what_is_right_by_luck(score, tmp_path):
    (tmp_path / "data").mkdir()
    root = write_spider(tmp_path / "data")
    write_database(root / "suite", "visits", VISITS + "UPDATE visitors SET age = 100 - age;")
    golds = [entry["query"] for entry in json.loads((root / "dev.json").read_text())]
    file = tmp_path / "pred.txt"
    file.write_text("\n".join(["SELECT id FROM visitors WHERE age = 56", *golds[1:]]) + "\n")
    option = ("--data.source.init_args.copies_folder_name", "suite")
    (_, _), [alone] = score("configs/spider.yaml", root, file)
    (_, _), both = score("configs/spider.yaml", root, file, *option)  # the first one is still there
    [together] = [summary for summary in both if summary != alone]
    assert len(both) == 2
    assert "suite" in together["source"]
    assert {rule: s["all"]["correct"] for rule, s in alone["rules"].items()} == dict.fromkeys(alone["rules"], 4)
    # The classic rule looks at the first database alone.
    assert {rule for rule, s in together["rules"].items() if s["all"]["correct"] == 4} == {"spider_exec"}
    assert "suites" in complaint(score("configs/spider.yaml", root, file, option[0], "suites")[0])


def test_nothing_of_the_run_folder_is_touched(score, tmp_path):
    (tmp_path / "data").mkdir()
    root = write_spider(tmp_path / "data")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("mine")
    first, second = tmp_path / "a" / "pred.txt", tmp_path / "b" / "pred.txt"
    for file, text in ((first, "SELECT 1\n" * 4), (second, "SELECT 2\n" * 4)):
        file.parent.mkdir()
        file.write_text(text)
        (code, _), summaries = score("configs/spider.yaml", root, file)
        assert code == 0
    assert {summary["predictions"] for summary in summaries} == {str(first), str(second)}
    assert (tmp_path / "run" / "summary.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("write", "config", "content", "words"),
    [
        (write_bird, BIRD, '{"0": "SELECT 1"}', ["1 predictions for", "questions"]),
        (write_bird, BIRD, "[1", ["not JSON"]),
        (write_ambiqt, "configs/ambiqt.yaml", "{}", ["AmbiqtSource", "predictions"]),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(score, tmp_path, write, config, content, words):
    (tmp_path / "data").mkdir()
    file = tmp_path / "predict.json"
    file.write_text(content)
    result, summaries = score(config, write(tmp_path / "data"), file)
    said = complaint(result)
    assert all(word in said for word in words), said
    assert summaries == []


def test_a_missing_file_is_named(score, tmp_path):
    (tmp_path / "data").mkdir()
    assert "/no/such.json" in complaint(score(BIRD, write_bird(tmp_path / "data"), "/no/such.json")[0])


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files beside the repository (../shared/data) are absent")
def test_minidevs_golds_are_all_right_as_predictions(score, tmp_path):
    root, file = DATA / "bird", tmp_path / "gold.json"
    golds = json.loads((root / "mini_dev_sqlite.json").read_text())
    file.write_text(json.dumps({str(i): f"{g['SQL']}{SEPARATOR}{g['db_id']}" for i, g in enumerate(golds)}))
    (code, _), [summary] = score(BIRD, root, file, "--data.source.init_args.evaluation", "mini_dev")
    assert code == 0
    assert all(rule["all"] == {"items": 500, "correct": 500, "score": 1.0} for rule in summary["rules"].values())
