"""One round of a search: generate batch after batch, verify each beside the next, insert, write down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from elite_lightning.archive import Outcome
from elite_lightning.search.approaches import Approaches
from elite_lightning.search.attempt import Attempt
from elite_lightning.search.journal import JournalError, SearchJournal
from elite_lightning.search.readback import insert_again
from elite_lightning.search.settings import SearchSettings
from elite_lightning.search.state import Request, SearchState
from elite_lightning.seeds import derive_seed
from elite_lightning.types import Codec, Domain, FinishReason, Judgement, RolloutEngine
from elite_lightning.verify import VerificationPool, Want


@dataclass(frozen=True, slots=True)
class _Candidate:
    request: Request
    response: str
    is_whole: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch that was generated and is being verified; the judgements are those of the whole candidates."""

    round: int
    index: int
    candidates: list[_Candidate]
    judgements: Future[list[Judgement]]


class RoundRunner:
    """Carries out rounds; what they ask is decided elsewhere.

    Args:
        domain: How to ask, and what is right.
        engine: Samples responses.
        codec: Text to tokens.
        pool: Verifies beside generation.
        approaches: Names the approach of what is right; judges for the archive.
        settings: How attempts are spent.
        rank: Enters the seed of every batch, so that ranks do not draw alike.
        state: What the search knows; changed as attempts come in.
        journal: Every attempt goes there; batches that are there already are not generated again.
        on_batch: Called with the round after every batch.
    """

    def __init__(
        self,
        domain: Domain,
        engine: RolloutEngine,
        codec: Codec,
        pool: VerificationPool,
        approaches: Approaches,
        settings: SearchSettings,
        rank: int,
        state: SearchState,
        journal: SearchJournal,
        on_batch: Callable[[int], None],
    ) -> None:
        self._domain, self._engine, self._codec, self._pool = domain, engine, codec, pool
        self._approaches, self._settings, self._rank = approaches, settings, rank
        self._state, self._journal, self._on_batch = state, journal, on_batch

    def run(self, round_: int, samples: int, requests: Sequence[Request]) -> None:
        """Carry out one round.

        A batch is verified while the next one is generated, but batches are inserted in their fixed order and the
        round ends with the last one, so that speed decides nothing.

        Args:
            round_: Index of the round.
            samples: Samples per request.
            requests: What to ask.
        """
        verifying: _Batch | None = None
        size = self._settings.batch_problems
        for index, start in enumerate(range(0, len(requests), size)):
            batch = requests[start : start + size]
            stored = self._journal.batch(round_, index)
            if stored:
                self._read_back([r for r in batch for _ in range(samples)], stored)
                continue
            generated = self._generate(round_, index, batch, samples)
            if verifying is not None:
                self._settle(verifying)
            verifying = generated
        if verifying is not None:
            self._settle(verifying)

    def _generate(self, round_: int, index: int, requests: Sequence[Request], samples: int) -> _Batch:
        prompts = [self._codec.encode_prompt(self._prompt(request)) for request in requests]
        seed = derive_seed(self._settings.seed or 0, "generate", self._rank, round_, index)
        groups = self._engine.generate(prompts, samples, self._settings.sampling, seed)
        candidates = [
            _Candidate(
                request,
                _storable(completion.text),
                completion.finish_reason is FinishReason.STOP,
                len(completion.token_ids),
            )
            for request, group in zip(requests, groups, strict=True)
            for completion in group
        ]
        whole = [(c.request.problem, c.response) for c in candidates if c.is_whole]
        return _Batch(round_, index, candidates, self._pool.submit(whole, Want(cell=True)))

    def _prompt(self, request: Request) -> str:
        parent = None if request.parent is None else request.parent.solution
        target = None if request.target is None else self._approaches.describe(request.target)
        return self._domain.prompt(request.problem, target, parent)

    def _settle(self, batch: _Batch) -> None:
        """Insert a verified batch and write it down."""
        problems = [c.request.problem for c in batch.candidates if c.is_whole]
        judgements = iter(self._approaches.named(problems, batch.judgements.result()))
        attempts = [self._insert(batch, c, next(judgements) if c.is_whole else None) for c in batch.candidates]
        self._journal.append(attempts)
        self._state.record([c.request for c in batch.candidates], attempts)
        self._on_batch(batch.round)

    def _insert(self, batch: _Batch, candidate: _Candidate, judgement: Judgement | None) -> Attempt:
        request, archive = candidate.request, self._state.archive
        id_ = archive.attempts
        if judgement is None:
            outcome = archive.reject(request.problem, Outcome.TRUNCATED)
        elif not judgement.verdict.counted:
            outcome = archive.reject(request.problem, Outcome.VERIFIER_FAILURE)
        else:
            outcome = archive.insert(request.problem, candidate.response)
        return Attempt(
            id=id_,
            round=batch.round,
            batch=batch.index,
            problem_id=request.problem.id,
            asked=request.target,
            parents=self._state.parents(request),
            response=candidate.response,
            solution=judgement.solution if judgement else None,
            outcome=outcome,
            reward=judgement.verdict.reward if judgement else 0.0,
            cell=judgement.cell if judgement else None,
            tokens=candidate.tokens,
        )

    def _read_back(self, requests: Sequence[Request], attempts: Sequence[Attempt]) -> None:
        """Insert a batch that an earlier process wrote down, if it is what this process would have asked for."""
        asked = [(r.problem.id, r.target, self._state.parents(r)) for r in requests]
        if asked != [(a.problem_id, a.asked, a.parents) for a in attempts]:
            raise JournalError(
                f"round {attempts[0].round} of the search journal {self._journal.path} does not follow from the rounds "
                "before it, so another release wrote it; finish it with that one, or choose another run folder"
            )
        problems = {r.problem.id: r.problem for r in requests}
        insert_again(self._state.archive, self._approaches, self._pool, problems, attempts)
        self._state.record(requests, attempts)
        self._on_batch(attempts[0].round)


def _storable(text: str) -> str:
    """The text with what no file can hold (halves of surrogate pairs) replaced by question marks."""
    return text.encode("utf-8", "replace").decode()
