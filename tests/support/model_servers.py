"""A server of models on this machine: right answers in the public wire formats, and every fault in between on demand.

Faults are taken one per request, in order; a request for which none is left gets the right answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DRIP_SECONDS = 0.05
KEY = "sk-Secret-0123456789"
# Statuses that pass by themselves.
RETRIED = [408, 429, 500, 502, 503, 504]


@dataclass(frozen=True)
class Request:
    """What the server received."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: Any

    @property
    def size(self) -> int:
        """Texts of the request, however its format calls them."""
        return next(
            len(self.body[name]) for name in ("input", "requests", "documents", "texts", "inputs") if name in self.body
        )


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


if TYPE_CHECKING:
    Answer = Callable[[Request], Any]  # the right answer, as JSON
    Fault = Callable[[Request, Answer], Reply]


class ModelServerDouble:
    """A server on 127.0.0.1, from `with` to its end.

    Args:
        answer: Makes the right answer to a request, or a `Reply` of its own.
        faults: Faults of the first requests; `then` adds more.
    """

    def __init__(self, answer: Answer, faults: Iterable[Fault] = ()) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.most_at_once = 0
        self.stopped = threading.Event()
        self._now = 0
        self._faults = list(faults)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.double = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def then(self, *faults: Fault) -> None:
        """Adds faults for the next requests."""
        with self._lock:
            self._faults += faults

    def reply(self, request: Request) -> Reply:
        """Notes a request, and answers it."""
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

    def handle_error(self, *address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that has gone is no error
            super().handle_error(*address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        double: ModelServerDouble = self.server.double  # type: ignore[attr-defined]
        content = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = double.reply(Request(self.path, headers, json.loads(content)))
        try:
            self._send(reply, double.stopped)
        except OSError:  # the client has gone
            self.close_connection = True

    def _send(self, reply: Reply, stopped: threading.Event) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if reply.manner == "whole":
            self.wfile.write(reply.body)
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

    def log_message(self, *_: object) -> None:
        pass


def echoed(request: Request) -> Any:
    """The right answer where none is asked for: the body as it came."""
    return {"path": request.path, "body": request.body}


def right(request: Request, answer: Answer) -> Reply:
    """No fault."""
    content = answer(request)
    return content if isinstance(content, Reply) else Reply(json.dumps(content).encode())


def status(code: int, error: object = None, **headers: str) -> Fault:
    """Refuses with a status; `error` is the body; a header's ``_`` stands for ``-``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request, _answer: Reply(json.dumps(error).encode(), code, named)


def echo(code: int) -> Fault:
    """Refuses, and repeats all that was sent, key and texts, in every field that servers have for errors."""

    def fault(request: Request, _answer: Answer) -> Reply:
        everything = json.dumps([request.body, request.headers])
        error = dict.fromkeys(("message", "type", "code", "status", "error_type"), everything)
        return Reply(json.dumps({**error, "error": error}).encode(), code)

    return fault


def cut(request: Request, answer: Answer) -> Reply:
    """Breaks the connection in the middle of the answer."""
    return Reply(right(request, answer).body, manner="cut")


def drip(request: Request, answer: Answer, tick: Callable[[], object] | None = None) -> Reply:
    """Sends the answer byte by byte."""
    return Reply(right(request, answer).body, manner="drip", tick=tick)


def raw(body: bytes) -> Fault:
    """Answers 200 with these bytes."""
    return lambda _request, _answer: Reply(body)


def altered(change: Callable[[Any], Any]) -> Fault:
    """Answers with the right content after a change; `change` may work in place."""

    def fault(request: Request, answer: Answer) -> Reply:
        content = answer(request)
        changed = change(content)
        return Reply(json.dumps(content if changed is None else changed).encode())

    return fault


def vector(text: str, dimensions: int) -> np.ndarray:
    """A vector that depends on the text alone, of a length other than 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return (np.random.default_rng(seed).standard_normal(dimensions) * 3).astype(np.float32)


def openai_embeddings(dimensions: int = 8, *, floats_only: bool = False) -> Answer:
    """``POST /embeddings`` as OpenAI documents it; `floats_only` for servers that know no base64."""

    def answer(request: Request) -> Any:
        wanted = request.body.get("dimensions", dimensions)
        as_bytes = request.body.get("encoding_format") == "base64" and not floats_only

        def encoded(text: str) -> Any:
            values = vector(text, dimensions)[:wanted]
            return base64.b64encode(values.tobytes()).decode() if as_bytes else [float(value) for value in values]

        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": encoded(text)}
                for index, text in enumerate(request.body["input"])
            ],
            "model": request.body["model"],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    return answer


def gemini_embeddings(dimensions: int = 8) -> Answer:
    """``POST /v1beta/models/MODEL:batchEmbedContents`` as Google documents it."""

    def answer(request: Request) -> Any:
        return {
            "embeddings": [
                {
                    "values": [
                        float(value)
                        for value in vector(entry["content"]["parts"][0]["text"], dimensions)[
                            : entry.get("outputDimensionality", dimensions)
                        ]
                    ]
                }
                for entry in request.body["requests"]
            ]
        }

    return answer
