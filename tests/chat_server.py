"""A real HTTP server on a free port that speaks OpenAI's chat completions protocol, with faults on demand.

What it answers in a search over arithmetic is computed here, from the text of the solutions alone: it shares nothing
with the labeler or the domain.
"""

import contextlib
import json
import re
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text):
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner = self.server.owner
        with owner.lock:
            owner.requests.append((self.path, dict(self.headers), body))
            fault = owner.faults.pop(0) if owner.faults else None
        if owner.stop_after is not None and len(owner.requests) > owner.stop_after:
            fault = {"status": 503, "body": b"stopped"}
        fault = fault or {}
        time.sleep(fault.get("seconds", 0))
        default = fault.get("body", None)
        if default is None:
            default = json.dumps(completion(owner.answer(body["messages"][0]["content"]))).encode()
        self._send(fault.get("status", 200), default, fault.get("headers", {}))

    def _send(self, status, body, headers):
        with contextlib.suppress(OSError):  # the client may have given up
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class ChatServer:
    """Answers every prompt with `answer(prompt)`, after the faults in `faults`, a dict each.

    A fault may have `status`, `body` (bytes), `headers` and `seconds` to wait. After `stop_after` requests it is down.
    """

    def __init__(self, answer=lambda prompt: "OK", faults=()):
        self.answer, self.faults = answer, list(faults)
        self.requests, self.lock, self.stop_after = [], threading.Lock(), None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def prompts(self):
        return [body["messages"][0]["content"] for _, _, body in self.requests]

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


# What each kind of expression is called, one by one; every form goes by two names.
NAMES = {
    "copied": ("Copied: the same expression again", "Verbatim copy: nothing is changed"),
    "swapped": ("Swapped operands: operands change places", "**Reordering**: other order, same tree"),
    "spread": ("Spread out: multiply the factor into every term", "full-expansion: no bracket is left"),
    "regrouped": ("Regrouped: brackets elsewhere", "Partial expansion: the factor is multiplied into some terms"),
}
MERGED = [
    {"name": "Copied", "definition": "the same again", "merges": ["copied", "verbatim_copy"]},
    {"name": "Swapped operands", "definition": "operands change places", "merges": ["swapped_operands", "reordering"]},
    {"name": "Full expansion", "definition": "no bracket is left", "merges": ["spread_out", "full_expansion"]},
    # Nobody listed "regrouped": such solutions are to end under OTHER.
]


def kind_of(expression, solution):
    """The form of a rewritten `a * (b + c + d)`, read off its text."""
    text, given = solution.replace(" ", ""), expression.replace(" ", "")
    if text == given:
        return "copied"
    if "(" not in text:
        return "spread"
    if text.count("*") == 1 and re.fullmatch(r"\(\d\+\d\+\d\)\*\d", text):
        return "swapped"
    return "regrouped"


LABELS = {"copied": "copied", "swapped": "swapped_operands", "spread": "full_expansion", "regrouped": "other"}
ANSWERS = {
    "copied": ("copied", "COPIED.", "verbatim copy", "<think>swapped operands? no</think>\nCopied"),
    "swapped": ("Swapped operands", "`swapped_operands`", "The approach is: reordering."),
    "spread": ("full_expansion", "Full Expansion", "This one takes the spread out approach"),
    "regrouped": ("OTHER", "partial expansion", "Either copied or full expansion, hard to say", ""),
}


def label_arithmetic(prompt):
    """What a language model would answer to the labeler's three kinds of prompts, over arithmetic."""
    if "Merge synonyms" in prompt:
        return "Here is the list:\n```json\n" + json.dumps(MERGED) + "\n```"
    if "Problem:" not in prompt:
        return "OK"
    expression = re.search(r"Problem: Rewrite (.*)", prompt)[1]
    solution = re.search(r"Solution:\n(.*)\n", prompt)[1]
    table = ANSWERS if "Approaches:" in prompt else NAMES
    variants = table[kind_of(expression, solution)]
    return variants[zlib.crc32(solution.encode()) % len(variants)]
