"""Groups: problems, the responses that the policy gave to them, and what the verifier said.

Training and evaluation sample through the same function, so that they cannot disagree about prompts or verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from elite_lightning.types import (
    Codec,
    Completion,
    Domain,
    FinishReason,
    Judgement,
    Problem,
    Reason,
    RolloutEngine,
    Sampling,
    Verdict,
)
from elite_lightning.verify import VerificationPool, Want
from elite_lightning.work import Numbered

_TRUNCATED = Judgement(None, Verdict(False, 0.0, Reason.TRUNCATED))


@dataclass(frozen=True, slots=True)
class Group:
    """The responses to one problem.

    Args:
        index: The problem's number in the global batch or data set.
        problem: What was asked.
        prompt_ids: The prompt as the policy saw it.
        completions: The responses.
        judgements: What the verifier said about each.
    """

    index: int
    problem: Problem
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    judgements: tuple[Judgement, ...]


@dataclass(frozen=True)
class PendingGroups:
    """Sampled responses whose verdicts may still be on their way.

    Args:
        chunk: The numbered problems.
        prompts: Token ids of each prompt.
        completions: Responses to each problem.
        verdicts: Judgements of the responses that ended by themselves, in order.
    """

    chunk: Sequence[Numbered]
    prompts: Sequence[Sequence[int]]
    completions: Sequence[Sequence[Completion]]
    verdicts: Future[list[Judgement]]

    def groups(self) -> list[Group]:
        """Wait for the verdicts; one group a problem, in order."""
        verdicts = iter(self.verdicts.result())
        return [
            Group(
                numbered.index,
                numbered.problem,
                tuple(prompt),
                tuple(completions),
                # A response that was cut off is wrong whatever it says so far: it was not verified.
                tuple(_TRUNCATED if c.finish_reason is FinishReason.LENGTH else next(verdicts) for c in completions),
            )
            for numbered, prompt, completions in zip(self.chunk, self.prompts, self.completions, strict=True)
        ]


@dataclass(frozen=True)
class Roller:
    """Samples responses and hands them to the verifier, which works on them while the next ones are generated.

    Args:
        engine: Samples responses.
        codec: Text to token ids.
        domain: Writes prompts.
        verifier: Judges responses.
    """

    engine: RolloutEngine
    codec: Codec
    domain: Domain
    verifier: VerificationPool

    def start(self, chunk: Sequence[Numbered], n: int, sampling: Sampling, seed: int, want: Want) -> PendingGroups:
        """Sample `n` responses to every problem of a chunk, and have them judged.

        Args:
            chunk: Numbered problems, sampled in one call of the engine.
            n: Responses to a problem.
            sampling: How tokens are drawn.
            seed: Seed of this chunk's draws.
            want: What to find out about correct responses.
        """
        prompts = [self.codec.encode_prompt(self.domain.prompt(numbered.problem)) for numbered in chunk]
        completions = self.engine.generate(prompts, n, sampling, seed)
        finished = [
            (numbered.problem, completion.text)
            for numbered, group in zip(chunk, completions, strict=True)
            for completion in group
            if completion.finish_reason is FinishReason.STOP
        ]
        return PendingGroups(chunk, prompts, completions, self.verifier.submit(finished, want))
