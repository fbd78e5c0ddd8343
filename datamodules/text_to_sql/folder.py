"""What all benchmarks in folders have in common: the folder, choosing databases and numbers, checks, and reports."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

from datamodules.sources import PredictionScores, ProblemSource
from datamodules.text_to_sql.golds import failing_golds, is_empty
from datamodules.text_to_sql.names import file_of, listed, require_databases, suggestion
from datamodules.text_to_sql.scoring import score_file
from datamodules.text_to_sql.splits import Splits, can_share_out, database_of, hold_out, sample, share_out
from elite_lightning.domains.sql import Limits, SqlDomain
from elite_lightning.domains.sql.ddl_prompt import DdlPrompt
from elite_lightning.domains.sql.prompts import SqlPrompt
from elite_lightning.errors import UsageError
from elite_lightning.types import Problem


class Questions(NamedTuple):
    """All problems of a data set's files: those to train on, None where there is no such file, and the others."""

    train: list[Problem] | None
    evaluation: list[Problem]


class FolderSource(ProblemSource):
    """A text-to-SQL benchmark in its official layout.

    Where the data set has a training file, training problems come from it, less those on a tenth of its databases,
    which are for validation, and the test is the whole evaluation file. Where it has none, three fifths of the
    evaluation file's databases are for training and a fifth each for validation and test (`splits.py`).

    Args:
        root: The data set's folder; `data.root` is another way to name it.
        databases: Names of databases to use; null uses all.
        train_problems: Most problems to search and train on; null for all. Fewer are drawn by a hash of their ids.
        validation_problems: Most problems to tune on.
        test_problems: Most problems to report on.
        split_evaluation: Whether the evaluation file is shared out among training, validation and test; null does so
            where there is no training file.
        check_golds: Whether every gold query is run once at the start, and problems are left out whose gold cannot
            run. Without it, such a problem stops the run when it is first drawn.
        prompts: The form of the prompt; null is `DdlPrompt`.
        limits: What one query may use on one database; null is the domain's default.
        rule: How results are compared, see docs/sql_rules.md.

    Raises:
        ValueError: If a number is below 0.
    """

    title: ClassVar[str]
    checked: ClassVar[bool] = True
    prediction_rules: ClassVar[tuple[str, ...]] = ()
    """Rules that a file of predictions is scored by; none where the benchmark has no format for one."""

    def __init__(
        self,
        root: str | None = None,
        databases: Sequence[str] | None = None,
        train_problems: int | None = None,
        validation_problems: int | None = None,
        test_problems: int | None = None,
        split_evaluation: bool | None = None,
        check_golds: bool = True,
        prompts: SqlPrompt | None = None,
        limits: Limits | None = None,
        rule: str = "default",
    ) -> None:
        self.root = root
        self.databases = None if databases is None else tuple(databases)
        self.most = (train_problems, validation_problems, test_problems)
        if any(most is not None and most < 0 for most in self.most):
            raise ValueError(f"data.source limits on problems must be at least 0, got {list(self.most)}")
        self.split_evaluation = split_evaluation
        self.check_golds = check_golds
        self.prompts = prompts or DdlPrompt()
        self.limits, self.rule = limits, rule
        self._notes: list[str] = []

    # What a data set fills in.

    @abstractmethod
    def read(self, root: Path) -> Questions:
        """All problems of the files.

        Raises:
            UsageError: If a file is missing or broken.
        """

    @abstractmethod
    def database_folder(self, root: Path) -> Path:
        """The folder that `Problem.data["database"]` is relative to."""

    def copies(self, root: Path) -> Path | None:  # noqa: ARG002
        """A folder of further copies of the databases, with other rows; none unless a data set has them."""
        return None

    def prepare(self, root: Path, problems: Sequence[Problem]) -> None:
        """See to it that the databases of these problems are there.

        Raises:
            UsageError: If some are missing.
        """
        require_databases(self.database_folder(root), [str(problem.data["database"]) for problem in problems])

    def new_domain(self, root: Path, used: Sequence[str]) -> SqlDomain:
        """The domain over the databases in use.

        Args:
            root: The data set's folder.
            used: Their names.
        """
        folder, copies = self.database_folder(root), self.copies(root)
        return SqlDomain(folder, self.limits, self.prompts, used, self.rule, copies)

    # What a problem source is.

    def at(self, root: str) -> Self:
        """The same source on this folder.

        Raises:
            UsageError: If it is set to another folder already.
        """
        if self.root is not None and Path(self.root) != Path(root):
            raise UsageError(f"data.root is {root} and data.source.init_args.root is {self.root}: set only one of them")
        other = copy.copy(self)
        other.root = root
        return other

    @cached_property
    def domain(self) -> SqlDomain:
        """The SQL domain over the databases of all splits."""
        names = sorted({str(problem.data["database"]) for part in self._splits for problem in part})
        return self.new_domain(self._folder, names)

    def train(self) -> Sequence[Problem]:
        """Problems of the training file, or of the evaluation file's training databases."""
        return self._splits.train

    def validation(self) -> Sequence[Problem]:
        """Problems on the databases that are held out of training."""
        return self._splits.validation

    def test(self) -> Sequence[Problem]:
        """Problems of the evaluation file, or those on its test databases."""
        return self._splits.test

    def score(self, predictions: Path, workers: int) -> PredictionScores:
        """Score predictions for the questions of the evaluation file, all of them and in its order."""
        if not self.prediction_rules:
            return super().score(predictions, workers)
        root = self._folder
        questions = self.read(root).evaluation
        self.prepare(root, questions)
        databases = (self.database_folder(root), self.copies(root))
        return score_file(predictions, questions, *databases, self.prediction_rules, workers)

    def notes(self) -> Sequence[str]:
        """Counts, golds that cannot run, and databases without rows."""
        counts = "{} for training, {} for validation, {} for the test".format(*map(len, self._splits))
        databases = {database_of(problem) for part in self._splits for problem in part}
        return [f"{self.title}: {counts}; on {len(databases)} databases", *self._notes]

    # How it gets there.

    @property
    def _folder(self) -> Path:
        if self.root is None:
            raise UsageError(f"where is {self.title}? Name its folder with --data.root DIR")
        root = Path(self.root).expanduser()
        if not root.is_dir():
            raise UsageError(f"no folder at {root}: data.root must be the folder of {self.title}")
        return root

    @cached_property
    def _splits(self) -> Splits:
        root = self._folder
        self._notes = []
        everything = self.read(root)
        self._note_files(everything)
        splits = self._share_out(self._chosen(everything))
        splits = Splits(*(sample(part, most) for part, most in zip(splits, self.most, strict=True)))
        problems = [problem for part in splits for problem in part]
        self.prepare(root, problems)
        self._note_empty(root, problems)
        return self._without_failing(root, splits) if self.check_golds else splits

    def _chosen(self, questions: Questions) -> Questions:
        """The problems on the databases that were asked for."""
        if self.databases is None:
            return questions
        known = {database_of(problem) for part in questions for problem in part or ()}
        for name in self.databases:
            if name not in known:
                raise UsageError(f"{self.title} has no database {name!r}{suggestion(name, known)}")
        kept = [None if part is None else [p for p in part if database_of(p) in self.databases] for part in questions]
        return Questions(kept[0], kept[1] or [])

    def _share_out(self, questions: Questions) -> Splits:
        split = questions.train is None if self.split_evaluation is None else self.split_evaluation
        if split:
            if not can_share_out(questions.evaluation):
                self._notes.append("fewer than three databases: training, validation and test share them")
            return share_out(questions.evaluation)
        train, validation = hold_out(questions.train or ())
        return Splits(train, validation, tuple(questions.evaluation))

    def _without_failing(self, root: Path, splits: Splits) -> Splits:
        domain = SqlDomain(self.database_folder(root), self.limits, copies=self.copies(root))
        failing = failing_golds(domain, [problem for part in splits for problem in part])
        if failing:
            names = [f"{problem_id} ({why})" for problem_id, why in failing.items()]
            self._notes.append(f"left out, because a gold query cannot run: {listed(names)}")
        return Splits(*(tuple(problem for problem in part if problem.id not in failing) for part in splits))

    def _note_files(self, questions: Questions) -> None:
        for name, part in zip(("training", "evaluation"), questions, strict=True):
            if part is not None:
                databases = len({database_of(problem) for problem in part})
                self._notes.append(f"{name} file: {len(part)} problems on {databases} databases")

    def _note_empty(self, root: Path, problems: Sequence[Problem]) -> None:
        folder = self.database_folder(root)
        names = Counter(str(problem.data["database"]) for problem in problems)
        empty = [f"{name} ({count} problems)" for name, count in names.items() if is_empty(file_of(folder, name))]
        if empty:
            self._notes.append(f"without a single row, so that any query without a result is right: {listed(empty)}")
