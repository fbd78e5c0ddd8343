"""What travels between processes arrives whole."""

import itertools
import pickle

import pytest

from elite_lightning.errors import UsageError
from elite_lightning.judging import Job, Want
from elite_lightning.types import Cell, Judgement, Problem, Reason, Verdict
from elite_lightning.wire import pack_answer, pack_job, unpack_answer, unpack_job

PROBLEM = Problem("p", "why", {"database": "d", "golds": ["a", "b"]})
JUDGEMENTS = [
    Judgement("s", Verdict(True, 0.5), Cell("join", "1"), "key", (True, False)),
    Judgement("s", Verdict(False, 0.25, Reason.WRONG_RESULT, "rows"), hits=()),
    Judgement(None, Verdict(False, 0.0, Reason.NO_SOLUTION, "none")),
]


@pytest.mark.parametrize("known", [None, *JUDGEMENTS])
def test_a_job_arrives_whole(known):
    for flags in itertools.product([False, True], repeat=3):
        job = Job(PROBLEM, "select 1", Want(*flags), known)
        assert unpack_job(pickle.loads(pickle.dumps(pack_job(job)))) == job


@pytest.mark.parametrize("judgement", JUDGEMENTS)
def test_an_answer_arrives_whole(judgement):
    assert unpack_answer(pickle.loads(pickle.dumps(pack_answer(judgement)))) == judgement


def test_an_error_of_the_users_arrives_as_it_is():
    error = unpack_answer(pickle.loads(pickle.dumps(pack_answer(UsageError("repair it")))))
    assert isinstance(error, UsageError)
    assert str(error) == "repair it"
