"""The browser's data: of every problem what was asked, which elites the archive holds, and what each arm answered."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from elite_lightning.html.arms import Arm
from elite_lightning.html.problems import ProblemTexts
from elite_lightning.types import Elite


class Limit(NamedTuple):
    """How much is shown.

    Args:
        answers: Most frequent answers of an arm to a problem; other correct strategies come on top.
        characters: Of one text.
        archived: Problems that only the archive knows, such as training problems.
    """

    answers: int
    characters: int
    archived: int


LIMITS = (Limit(10, 4000, 2000), Limit(8, 2000, 500), Limit(6, 1000, 250), Limit(3, 600, 100), Limit(1, 300, 25))
"""The first with which the data is small enough is taken."""


class Answer(NamedTuple):
    """What several samples have in common; a response without a solution stands for itself."""

    text: str
    correct: bool
    reason: str | None
    strategy: str | None


@dataclass
class Answers:
    """All that one arm answered to one problem, over its runs.

    Args:
        counts: How many samples gave each answer.
        first: The run's number and the sample's number that gave it first.
    """

    counts: Counter[Answer] = field(default_factory=Counter)
    first: dict[Answer, tuple[int, int]] = field(default_factory=dict)

    def chosen(self, most: int) -> list[Answer]:
        """The most frequent answers, and of every other correct strategy its most frequent one.

        Args:
            most: Answers that are kept whatever they are.
        """
        ranked = sorted(self.counts, key=lambda answer: (-self.counts[answer], not answer.correct, answer.text))
        kept = ranked[:most]
        seen = {answer.strategy for answer in kept if answer.correct}
        for answer in ranked[most:]:
            if answer.correct and answer.strategy not in seen:
                seen.add(answer.strategy)
                kept.append(answer)
        return kept


def read_answers(files: Iterable[Path]) -> dict[str, Answers]:
    """Answers by problem, in the order of the files.

    Args:
        files: Files of samples, one a run.
    """
    found: defaultdict[str, Answers] = defaultdict(Answers)
    for run, path in enumerate(files):
        for number, line in enumerate(path.read_text().splitlines()):
            record = json.loads(line)
            text = record["solution"] if record.get("solution") is not None else record.get("response", "")
            answer = Answer(text, record["correct"], record["reason"], record["strategy"] or None)
            of_problem = found[record["problem_id"]]
            of_problem.counts[answer] += 1
            of_problem.first.setdefault(answer, (run, record.get("sample", number)))
    return dict(found)


class Browsable(NamedTuple):
    """What the browser shows, before it is cut to size.

    Args:
        arms: In their order.
        answers: Of each arm, by problem.
        archives: Name of each archive to its elites.
        texts: What was asked.
    """

    arms: Sequence[Arm]
    answers: Sequence[Mapping[str, Answers]]
    archives: Mapping[str, Sequence[Elite]]
    texts: ProblemTexts


def browser_data(found: Browsable, names: Sequence[Sequence[str]], budget: int) -> dict[str, Any]:
    """The browser's data as JSON-serialisable values, small enough for the page.

    Args:
        found: What there is.
        names: Of each arm the names of its files of samples.
        budget: Most bytes; answers, and then texts, are cut until the data fits, and how much is said beside them.

    Returns:
        `arms`, `archives`, `lines` of prompts, `problems`, and the limits that were applied.
    """
    data: dict[str, Any] = {}
    for limit in LIMITS:
        data = _packed(found, names, limit)
        if len(json.dumps(data)) <= budget:
            break
    return data


def _packed(found: Browsable, names: Sequence[Sequence[str]], limit: Limit) -> dict[str, Any]:
    lines: dict[str, int] = {}
    cells = _cells(found.archives, limit.characters)
    measured = list(dict.fromkeys(i for answers in found.answers for i in answers))
    archived = [problem_id for problem_id in cells if problem_id not in set(measured)]
    shown = archived[:: -(-len(archived) // limit.archived)] if archived else []  # spread over all of them
    problems = []
    for problem_id in [*measured, *shown]:
        problem: dict[str, Any] = {"id": problem_id, **_text(found.texts, problem_id, lines, limit.characters)}
        problem["strategies"], problem["answers"] = _answers(found.answers, problem_id, limit)
        problem["cells"] = cells.get(problem_id, [])
        problems.append(problem)
    return {
        "arms": [{"label": arm.label, "files": list(n)} for arm, n in zip(found.arms, names, strict=True)],
        "archives": list(found.archives),
        "lines": list(lines),
        "problems": problems,
        "limits": {**limit._asdict(), "archived_left_out": len(archived) - len(shown)},
    }


def _text(texts: ProblemTexts, problem_id: str, lines: dict[str, int], characters: int) -> dict[str, Any]:
    """Prompts as numbers of lines: problems on one database have nearly all of them in common."""
    text = texts.get(problem_id)
    if text is None:
        return {}
    prompt = None
    if text.prompt is not None:
        prompt = [lines.setdefault(line, len(lines)) for line in text.prompt.split("\n")]
    data = {k: cut(v if isinstance(v, str) else json.dumps(v, default=str), characters) for k, v in text.data.items()}
    return {"question": text.question, "prompt": prompt, "golds": list(text.golds), "data": data}


def _answers(arms: Sequence[Mapping[str, Answers]], problem_id: str, limit: Limit) -> tuple[list[str], list[Any]]:
    """Strategies of the problem, and of each arm its answers; None for an arm that was not asked."""
    strategies: dict[str, int] = {}
    rows: list[Any] = []
    for of_arm in arms:
        answers = of_arm.get(problem_id)
        rows.append(None if answers is None else _of_arm(answers, strategies, limit))
    return list(strategies), rows


def _of_arm(answers: Answers, strategies: dict[str, int], limit: Limit) -> dict[str, Any]:
    kept = answers.chosen(limit.answers)
    correct = [answer for answer in answers.counts if answer.correct]
    rows = []
    for answer in sorted(kept, key=lambda answer: not answer.correct):  # right ones first, each part by frequency
        strategy = strategies.setdefault(answer.strategy or "", len(strategies)) if answer.correct else None
        text, count = cut(answer.text, limit.characters), answers.counts[answer]
        rows.append([text, count, int(answer.correct), answer.reason, strategy, *answers.first[answer]])
    return {
        "samples": answers.counts.total(),
        "correct": sum(answers.counts[answer] for answer in correct),
        "strategies": len({answer.strategy for answer in correct}),
        "rows": rows,
        "left_out": len(answers.counts) - len(kept),
        "left_out_samples": answers.counts.total() - sum(answers.counts[answer] for answer in kept),
    }


def _cells(archives: Mapping[str, Sequence[Elite]], characters: int) -> dict[str, list[Any]]:
    """By problem: archive, cell, solution, and how often an archive of samples holds it."""
    found: dict[str, Counter[tuple[int, str, str, str]]] = {}
    for number, elites in enumerate(archives.values()):
        for elite in elites:
            of_problem = found.setdefault(elite.problem_id, Counter())
            of_problem[number, elite.cell.approach, elite.cell.structure, elite.solution] += 1
    return {
        problem_id: [[*place, cut(solution, characters), n] for (*place, solution), n in counts.items()]
        for problem_id, counts in found.items()
    }


def cut(text: str, characters: int) -> str:
    """The beginning of a text, and how much of it is left out."""
    return text if len(text) <= characters else f"{text[:characters]} … ({len(text) - characters} characters more)"


def embedded(data: Any) -> str:
    """JSON that may stand inside a `<script>` element: no `<`, so nothing in it can end the element."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
