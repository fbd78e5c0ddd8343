"""Language models that answer prompts at temperature 0: an endpoint that speaks OpenAI's protocol, or the policy."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, Protocol

from elite_lightning.errors import UsageError
from elite_lightning.types import Codec, RolloutEngine, Sampling

MAX_WAIT_S = 30.0
MAX_ANSWER_BYTES = 16 * 2**20
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})


class Chat(Protocol):
    """Something that answers prompts."""

    def complete(self, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Index and answer of each prompt, in the order in which the answers come in."""
        ...


@dataclass(frozen=True)  # no slots: the command line reads a default's values from its __dict__
class Endpoint:
    """A server that speaks OpenAI's chat completions protocol, such as vLLM, llama.cpp, Ollama or OpenAI itself.

    Args:
        model: The model's name at the server.
        base_url: Address up to and including the version, such as `http://localhost:8000/v1`. Null takes the
            environment variable `OPENAI_BASE_URL`.
        api_key_variable: Environment variable that holds the key. Nothing is sent where it is not set.
        timeout_s: Seconds to wait for the server each time that it keeps silent.
        retries: Further tries after a failure that may pass: no connection, silence, HTTP 408, 409, 425, 429 or 5xx,
            or an answer that is not the protocol's. They wait 0.5 s, 1 s, 2 s and so on up to 30 s, or as long as the
            server asks for.
        concurrency: Prompts that are on their way at the same time.
        extra: Further fields of the request's body, such as `{"max_completion_tokens": 64, "max_tokens": null}`;
            null removes a field.

    Raises:
        UsageError: If a number is out of range.
    """

    model: str
    base_url: str | None = None
    api_key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = 60.0
    retries: int = 5
    concurrency: int = 16
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check ranges."""
        for name, least in (("timeout_s", 1e-3), ("retries", 0), ("concurrency", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"endpoint.{name} must be at least {least}, got {getattr(self, name)}")

    @property
    def url(self) -> str:
        """Where completions are asked for.

        Raises:
            UsageError: If there is no address, or it is not one of HTTP.
        """
        base = self.base_url or os.environ.get("OPENAI_BASE_URL")
        if not base or not base.startswith(("http://", "https://")):
            raise UsageError(
                f"the labeler's endpoint has the address {base!r}: set endpoint.base_url or the environment variable "
                "OPENAI_BASE_URL, such as http://localhost:8000/v1"
            )
        return f"{base.rstrip('/')}/chat/completions"


class _FailedTryError(Exception):
    """A try that failed; `wait_s` is what the server asks for, None where it may not be tried again."""

    def __init__(self, why: str, wait_s: float | None = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: following it would hand the key to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


class EndpointChat:
    """Asks an endpoint, several prompts at a time.

    Args:
        endpoint: The server.
        max_new_tokens: Longest answer.
    """

    def __init__(self, endpoint: Endpoint, max_new_tokens: int) -> None:
        self._endpoint, self._max_new_tokens = endpoint, max_new_tokens
        self._url = endpoint.url
        self._opener = urllib.request.build_opener(_NoRedirect)

    def complete(self, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Index and answer of each prompt as they come in.

        Raises:
            UsageError: If the server refuses, or does not answer after all retries.
        """
        workers = min(self._endpoint.concurrency, len(prompts))
        with ThreadPoolExecutor(max(1, workers)) as threads:
            asked = {threads.submit(self._ask, prompt): index for index, prompt in enumerate(prompts)}
            try:
                for answered in as_completed(asked):
                    yield asked[answered], answered.result()
            finally:
                threads.shutdown(cancel_futures=True)

    def _ask(self, prompt: str) -> str:
        """One prompt, with retries."""
        wait_s, tries = 0.5, self._endpoint.retries + 1
        for number in range(1, tries + 1):
            try:
                return self._try(prompt)
            except _FailedTryError as failure:
                if failure.wait_s is None or number == tries:
                    raise UsageError(self._advice(failure, number)) from failure
                # Spread, so that prompts that failed together do not come back together.
                time.sleep(min(MAX_WAIT_S, max(failure.wait_s, wait_s * random.uniform(0.75, 1.25))))
                wait_s *= 2
        raise AssertionError("the last try returns or raises")

    def _try(self, prompt: str) -> str:
        try:
            with self._opener.open(self._request(prompt), timeout=self._endpoint.timeout_s) as response:
                return _content_of(response.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            raise _http_failure(error) from error
        except (OSError, http.client.HTTPException) as error:
            raise _FailedTryError(str(getattr(error, "reason", error)) or type(error).__name__) from error

    def _request(self, prompt: str) -> urllib.request.Request:
        message = {"role": "user", "content": prompt}
        body = {"model": self._endpoint.model, "messages": [message], "temperature": 0}
        body |= {"max_tokens": self._max_new_tokens, **self._endpoint.extra}
        data = json.dumps({name: value for name, value in body.items() if value is not None}).encode()
        headers = {"Content-Type": "application/json"}
        key = os.environ.get(self._endpoint.api_key_variable)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return urllib.request.Request(self._url, data, headers)

    def _advice(self, failure: _FailedTryError, tries: int) -> str:
        count = "" if tries == 1 else f" after {tries} tries"
        return (
            f"the labeler's endpoint {self._url} gave no answer{count} ({failure}): check the server, endpoint.model "
            f"({self._endpoint.model!r}) and the key in {self._endpoint.api_key_variable}, then run the same command "
            "again: the search goes on from where it got to"
        )


def _http_failure(error: urllib.error.HTTPError) -> _FailedTryError:
    with error:
        detail = " ".join(error.read(500).decode(errors="replace").split())
    why = f"HTTP {error.code} {error.reason}: {detail}"
    if error.code < 500 and error.code not in _WORTH_ANOTHER_TRY:
        return _FailedTryError(why, None)
    try:
        return _FailedTryError(why, max(0.0, float(error.headers.get("Retry-After", 0))))
    except ValueError:  # the header may hold a date
        return _FailedTryError(why)


def _content_of(body: bytes) -> str:
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
        if content is not None and not isinstance(content, str):
            raise TypeError(f"its content is {content!r}")
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        shown = body[:200].decode(errors="replace")
        raise _FailedTryError(
            f"not a chat completion, {type(error).__name__}: {error}; it begins with {shown!r}"
        ) from error
    return content or ""  # a model that refuses, or thinks up to the limit, has no content


class PolicyChat:
    """Asks the frozen policy itself, greedily.

    Args:
        engine: Generates.
        codec: Text to tokens.
        max_new_tokens: Longest answer.
        batch: Prompts in one call of the engine; the answers of a batch come in together.
    """

    def __init__(self, engine: RolloutEngine, codec: Codec, max_new_tokens: int, batch: int = 64) -> None:
        self._engine, self._codec, self._batch = engine, codec, batch
        self._sampling = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)

    def complete(self, prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Index and answer of each prompt, batch by batch."""
        for start in range(0, len(prompts), self._batch):
            encoded = [self._codec.encode_prompt(prompt) for prompt in prompts[start : start + self._batch]]
            groups = self._engine.generate(encoded, 1, self._sampling, seed=0)
            for index, (completion,) in enumerate(groups, start):
                yield index, completion.text
