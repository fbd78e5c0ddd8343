"""Asking a real HTTP server: retries, refusals, and one clear line for the user."""

import socket
import sqlite3
import threading
import time

import pytest
from chat_server import ChatServer

from elite_lightning.errors import UsageError
from elite_lightning.search import Endpoint
from elite_lightning.search.labeling.cache import CachedChat
from elite_lightning.search.labeling.chat import EndpointChat


def ask(server, *prompts, **settings):
    endpoint = Endpoint("m", server if isinstance(server, str) else server.url, **settings)
    answers = dict(EndpointChat(endpoint, 32).complete(prompts))
    return [answers[index] for index in range(len(prompts))]


def test_a_request_is_what_the_protocol_asks_for(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    with ChatServer(str.upper) as server:
        assert ask(server, "a", "b", "ü", api_key_variable="SOME_KEY", extra={"top_k": 1}) == ["A", "B", "Ü"]
        assert {path for path, _, _ in server.requests} == {"/v1/chat/completions"}
        _, headers, body = server.requests[0]
    assert headers["Authorization"] == "Bearer secret"
    expected = {"model": "m", "temperature": 0, "max_tokens": 32, "top_k": 1}
    assert {name: body[name] for name in expected} == expected
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_a_field_is_left_out_and_no_key_is_sent_where_there_is_none(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ChatServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/")
        chat = EndpointChat(Endpoint("m", extra={"max_tokens": None, "max_completion_tokens": 8}), 32)
        assert list(chat.complete(["x"])) == [(0, "OK")]
        _, headers, body = server.requests[0]
    assert "Authorization" not in headers
    assert "max_tokens" not in body
    assert body["max_completion_tokens"] == 8


PASSING = {
    "limit": {"status": 429, "body": b"slow down"},
    "server error": {"status": 500, "body": b"oops"},
    "no JSON": {"body": b'{"choices": [{"mess'},
    "no completion": {"body": b'{"error": "loading"}'},
    "deep": {"body": b"[" * 100_000},
    "odd content": {"body": b'{"choices": [{"message": {"content": 5}}]}'},
    "silence": {"seconds": 1.0},
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_tried_again(fault):
    with ChatServer(faults=[fault]) as server:
        assert ask(server, "x", timeout_s=0.4, retries=1) == ["OK"]
        assert len(server.requests) == 2


def test_the_server_says_how_long_to_wait():
    with ChatServer(faults=[{"status": 429, "body": b"", "headers": {"Retry-After": "1.2"}}]) as server:
        started = time.monotonic()
        assert ask(server, "x") == ["OK"]
        assert 1.2 <= time.monotonic() - started < 5


def test_retries_come_to_an_end_with_one_line_that_says_what_to_do():
    with ChatServer(faults=[{"status": 500, "body": b"out of\nmemory"}] * 3) as server:
        with pytest.raises(UsageError) as caught:
            ask(server, "x", retries=1)
        assert len(server.requests) == 2
    message = str(caught.value)
    assert "\n" not in message
    assert f"{server.url}/chat/completions gave no answer after 2 tries (HTTP 500" in message
    assert "out of memory" in message
    assert "run the same command again" in message


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ({"status": 401, "body": b"bad key"}, "HTTP 401 Unauthorized: bad key"),
        ({"status": 404, "body": b"no such model"}, "no such model"),
        ({"status": 302, "body": b"", "headers": {"Location": "http://127.0.0.1:9/v1"}}, "HTTP 302"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(fault, shown):
    with ChatServer(faults=[fault] * 2) as server:
        with pytest.raises(UsageError, match=shown):
            ask(server, "x")
        assert len(server.requests) == 1


def test_a_server_that_is_down_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(UsageError, match=rf"{url}/chat/completions gave no answer \(.*refused"):
        ask(url, "x", retries=0)


def test_no_content_is_an_empty_answer():
    with ChatServer(faults=[{"body": b'{"choices": [{"message": {"content": null}}]}'}]) as server:
        assert ask(server, "x") == [""]


def test_prompts_are_on_their_way_together_but_not_more_than_allowed():
    gate, now, most = threading.Barrier(4, timeout=10), 0, 0
    lock = threading.Lock()

    def answer(prompt):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()  # opens only when four are there at once
        with lock:
            now -= 1
        return prompt

    with ChatServer(answer) as server:
        prompts = [str(i) for i in range(8)]
        assert ask(server, *prompts, concurrency=4) == prompts
    assert most == 4


@pytest.mark.parametrize("address", ["localhost:8000", "file:///etc", ""])
def test_an_address_that_is_none_is_refused(address, monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match=r"endpoint\.base_url"):
        EndpointChat(Endpoint("m", address), 8)


@pytest.mark.parametrize("settings", [{"timeout_s": 0}, {"retries": -1}, {"concurrency": 0}])
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        Endpoint("m", **settings)


def test_answers_are_asked_for_once_and_survive_a_failure(tmp_path):
    with ChatServer(str.upper) as server:
        server.stop_after = 2
        chat = EndpointChat(Endpoint("m", server.url, retries=0, concurrency=1), 8)
        cached = CachedChat(chat, tmp_path / "labels.sqlite", "who")
        with pytest.raises(UsageError, match="503"):
            cached.ask(["a", "b", "c", "d"])
        cached.close()
        server.stop_after = None
        again = CachedChat(chat, tmp_path / "labels.sqlite", "who")
        del server.requests[:]
        assert again.ask(["d", "a", "c", "b", "a"]) == ["D", "A", "C", "B", "A"]
        assert sorted(server.prompts) == ["c", "d"]
        other = CachedChat(chat, tmp_path / "labels.sqlite", "somebody else")
        assert other.ask(["a"]) == ["A"]
        assert server.prompts[-1] == "a"


def test_a_file_that_is_no_cache_is_named(tmp_path):
    (tmp_path / "labels.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(UsageError, match=r"labels\.sqlite: file is not a database"):
        CachedChat(None, tmp_path / "labels.sqlite", "who")


def test_text_that_no_file_can_hold_is_kept_without_it(tmp_path):
    class Odd:
        def complete(self, prompts):
            yield 0, "a\ud800"

    assert CachedChat(Odd(), tmp_path / "labels.sqlite", "who").ask(["x"]) == ["a?"]
    assert sqlite3.connect(tmp_path / "labels.sqlite").execute("SELECT answer FROM answers").fetchall() == [("a?",)]
