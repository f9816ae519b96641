"""A server of models on this machine: right answers in the public wire formats, and every fault in between on demand.

Faults are taken one per request, in order; a request for which none is left gets the right answer.
"""

import base64
import hashlib
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

DRIP_SECONDS = 0.05
KEY = "sk-Secret-0123456789"
# Statuses that pass by themselves.
RETRIED = [408, 429, 500, 502, 503, 504]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]  # names in lower case
    body: Any
    method: str = "POST"

    @property
    def size(self):
        names = ("input", "requests", "documents", "texts", "inputs")
        return next(len(self.body[name]) for name in names if name in self.body)


@dataclass(frozen=True)
class Reply:
    """What the server sends: `manner` is ``whole``, ``cut`` (half of the body, then the end) or ``drip`` (bytewise).

    After a byte of a drip the server waits for a moment, or calls `tick`, which may let the time of a test pass.
    """

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    manner: str = "whole"
    tick: Callable[[], object] | None = None


class ModelServerDouble:
    """A server on 127.0.0.1, from `with` to its end.

    `answer` makes the right answer to a request, or a `Reply`; `faults` are those of the first requests.
    """

    def __init__(self, answer, faults=()):
        self.answer, self.requests = answer, []
        self.most_at_once = self._now = 0
        self._faults, self._lock, self.stopped = list(faults), threading.Lock(), threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.double = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def then(self, *faults):
        with self._lock:
            self._faults += faults

    def reply(self, request):
        with self._lock:
            self.requests.append(request)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            fault = self._faults.pop(0) if self._faults else right
        try:
            return fault(request, self.answer)
        finally:
            with self._lock:
                self._now -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *address):
        if not isinstance(sys.exception(), OSError):  # a client that has gone is no error
            super().handle_error(*address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        double = self.server.double
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = double.reply(Request(self.path, headers, json.loads(content or "null"), self.command))
        try:
            self._send(reply, double.stopped)
        except OSError:  # the client has gone
            self.close_connection = True

    do_GET = do_HEAD = do_POST  # noqa: N815

    def _send(self, reply, stopped):
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.manner == "whole":
            self.wfile.write(b"" if self.command == "HEAD" else reply.body)
        elif reply.manner == "cut":
            self.wfile.write(reply.body[: len(reply.body) // 2])
            self.close_connection = True
        else:
            for byte in reply.body:
                self.wfile.write(bytes([byte]))
                if stopped.wait(0 if reply.tick else DRIP_SECONDS):
                    break
                if reply.tick:
                    reply.tick()

    def log_message(self, *_):
        pass


def echoed(request):
    """The right answer where none is asked for: the body as it came."""
    return {"path": request.path, "body": request.body}


def right(request, answer):
    content = answer(request)
    return content if isinstance(content, Reply) else Reply(json.dumps(content).encode())


def status(code, error=None, **headers):
    """Refuses with a status; `error` is the body; a header's ``_`` stands for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, _answer: Reply(json.dumps(error).encode(), code, named)


def echo(code):
    """Refuses, and repeats all that was sent, key and texts, in every field that servers have for errors."""

    def fault(request, _answer):
        everything = json.dumps([request.body, request.headers])
        error = dict.fromkeys(("message", "type", "code", "status", "error_type"), everything)
        return Reply(json.dumps({**error, "error": error}).encode(), code)

    return fault


def cut(request, answer):
    return Reply(right(request, answer).body, manner="cut")


def drip(request, answer, tick=None):
    return Reply(right(request, answer).body, manner="drip", tick=tick)


def raw(body):
    """Answers 200 with these bytes."""
    return lambda _request, _answer: Reply(body)


def altered(change):
    """Answers with the right content after a change; `change` may work in place."""

    def fault(request, answer):
        content = answer(request)
        changed = change(content)
        return Reply(json.dumps(content if changed is None else changed).encode())

    return fault


def vector(text, dimensions):
    """A vector that depends on the text alone, of a length other than 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return (np.random.default_rng(seed).standard_normal(dimensions) * 3).astype(np.float32)


def openai_embeddings(dimensions=8, *, floats_only=False):
    """``POST /embeddings`` as OpenAI documents it; `floats_only` for servers that know no base64."""

    def answer(request):
        wanted = request.body.get("dimensions", dimensions)
        as_bytes = request.body.get("encoding_format") == "base64" and not floats_only

        def encoded(text):
            values = vector(text, dimensions)[:wanted]
            return base64.b64encode(values.tobytes()).decode() if as_bytes else values.tolist()

        texts, usage = enumerate(request.body["input"]), {"prompt_tokens": 1, "total_tokens": 1}
        data = [{"object": "embedding", "index": index, "embedding": encoded(text)} for index, text in texts]
        return {"object": "list", "data": data, "model": request.body["model"], "usage": usage}

    return answer


def gemini_embeddings(dimensions=8):
    """``POST /v1beta/models/MODEL:batchEmbedContents`` as Google documents it."""

    def answer(request):
        entries = request.body["requests"]
        vectors = [vector(entry["content"]["parts"][0]["text"], dimensions) for entry in entries]
        wanted = [entry.get("outputDimensionality", dimensions) for entry in entries]
        return {"embeddings": [{"values": one[:count].tolist()} for one, count in zip(vectors, wanted, strict=True)]}

    return answer
