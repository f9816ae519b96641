"""Limit requests in progress, requests of a caller per minute, and the length of bodies and answers."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

from semlex.server.addresses import is_page
from semlex.server.options import MAX_BODY_BYTES, MIB
from semlex.server.problems import Problem, request_id_of, try_later
from semlex.store.query.run import size_seen

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from semlex.server.state import ServerState


# Of the text and metadata of all chunks that a request reads; what `fields` leaves out of the answer counts.
MAX_FOUND_BYTES = 48 * MIB
# The same of all requests in progress; one that has found little is never refused because of others.
MAX_FOUND_AT_ONCE_BYTES, FOUND_LITTLE_BYTES = 64 * MIB, MIB
MAX_ANSWER_BYTES = 32 * MIB
FEWER = "ask for fewer hits or chunks (top_k, candidates, depth, limit)"


class Found:
    """Counts the bytes of chunks that a request reads; too many are refused before Python objects are made."""

    def __init__(self, requests: set[Found]) -> None:
        # `requests` are the counts of all requests in progress, this one included.
        self.size, self._requests = 0, requests
        requests.add(self)

    def add(self, size: int) -> None:
        """Add the bytes of chunks that were read; refuse the request if it, or all requests together, read too many."""
        self.size += size
        if self.size > MAX_FOUND_BYTES:
            raise _answer_too_long(f"the chunks of this request have more than {MAX_FOUND_BYTES:,} bytes: {FEWER}")
        if self.size > FOUND_LITTLE_BYTES and sum(one.size for one in self._requests) > MAX_FOUND_AT_ONCE_BYTES:
            raise try_later(
                "the chunks of all requests in progress fill the memory that the server grants them: try again later"
            )


def check_answer(size: int) -> None:
    """Raise a 413 `Problem` if an answer is longer than the limit."""
    if size > MAX_ANSWER_BYTES:
        raise _answer_too_long(
            f"the answer has more than {MAX_ANSWER_BYTES:,} bytes: {FEWER}, name the fields that you need (fields), or "
            "read a document by its chunks (GET /v1/chunks)"
        )


def _answer_too_long(detail: str) -> Problem:
    return Problem(413, detail, kind="answer-too-long")


# Monitoring must get through, above all when the server is busy.
UNCOUNTED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
MAX_CALLERS = 10_000
# If too many requests are in progress, a request waits this long, then it is refused and told when to try again. A
# longer queue would delay everybody.
MAX_WAIT_SECONDS = 1.0
ASSISTANTS_PATH = "/mcp"


def is_counted(path: str) -> bool:
    """Return whether requests to a path count among those in progress."""
    # The page's files are sent from memory to callers without a token, who could take every place.
    return path not in UNCOUNTED_PATHS and not is_page(path)


class Rates:
    """The rate limit of each caller: a bucket of requests that fills again as time passes."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str, now: float) -> float:
        """Count one request of a caller; return 0 if it is allowed, else the seconds until it would be."""
        if not self._per_minute:
            return 0.0
        left, before = self._buckets.pop(caller, (float(self._per_minute), now))
        a_second = self._per_minute / 60
        left = min(float(self._per_minute), left + (now - before) * a_second)
        is_taken = left >= 1
        self._buckets[caller] = (left - 1 if is_taken else left, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if is_taken else (1 - left) / a_second


def name_of(scope: Scope) -> str:
    """Return the name under which limits count a request: its token's name, else the client's address."""
    caller = scope.get("state", {}).get("caller")
    return caller.name if caller and caller.name else (scope.get("client") or ("",))[0]


def takes_place(scope: Scope) -> bool:
    """Return whether a request counts for the limits of requests in progress and of its caller's rate."""
    # The event stream of an MCP session stays open as long as the session.
    is_stream = scope["path"] == ASSISTANTS_PATH and scope["method"] == "GET"
    return is_counted(scope["path"]) and not is_stream


def stopping(state: ServerState) -> Problem | None:
    """Return the refusal of a request to a stopping server; None if the server is not stopping."""
    if not state.is_stopping:
        return None
    return try_later("the server is stopping; try again in a few seconds", kind="stopping", seconds=5)


class Admission:
    """Limits how many requests are in progress; a request waits up to a second, then it is refused."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state
        self._places = asyncio.Semaphore(state.options.concurrency)
        self._found: set[Found] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_place = takes_place(scope)
        problem = await self._enter() if has_place else None
        if problem is not None:
            self._state.metrics.refused[problem.kind] += 1
            await problem.response(request_id_of(scope))(scope, receive, send)
            return
        self._state.admitted += has_place
        try:
            if scope["path"] == ASSISTANTS_PATH:  # each message takes its client
                await self._app(scope, receive, send)
                return
            open_client = scope["state"]["open_client"] = self._state.take()
            found = scope["state"]["found"] = Found(self._found)
            token = size_seen.set(found.add)
            try:
                await self._app(scope, receive, send)
            finally:
                size_seen.reset(token)
                self._found.discard(found)
                open_client.release()
        finally:
            if has_place:
                self._state.admitted -= 1
                self._places.release()

    async def _enter(self) -> Problem | None:
        """Wait until fewer requests are in progress; return the refusal if that takes too long."""
        try:
            async with self._state.clock.timeout(MAX_WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            return try_later("the server is busy; try again")
        problem = stopping(self._state)
        if problem is not None:
            self._places.release()
        return problem


class ClientGoneError(Exception):
    """The client disconnected while its request was read."""


class Bodies:
    """Limits requests per minute and bodies; ends requests that take too long or whose client disconnected."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state
        self._rates = Rates(state.options.requests_a_minute)
        # Bytes of the bodies that are read or worked on, by what was announced: of all callers, and of each.
        self._held, self._held_by = 0, Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        size, name = 0, name_of(scope)
        try:
            try:
                # Before the body is read: a refusal costs the least, and comes at once.
                if is_counted(scope["path"]) and (refusal := stopping(self._state)) is not None:
                    raise refusal
                if takes_place(scope):
                    self._count(name)
                size = self._size(scope, name)
                self._held += size
                self._held_by[name] += size
                body = await self._read(receive, size)
            except Problem as problem:
                self._state.metrics.refused[problem.kind] += 1
                await problem.response(request_id_of(scope))(scope, receive, send)
                return
            except ClientGoneError:
                return
            if scope["path"] == ASSISTANTS_PATH:
                # Streams have no time limit, and handle clients that leave.
                await self._app(scope, _again(body, receive), send)
                return
            await self._run(scope, body, receive, send)
        finally:
            self._held -= size
            self._held_by[name] -= size
            if not self._held_by[name]:
                del self._held_by[name]

    def _count(self, name: str) -> None:
        if seconds := math.ceil(self._rates.wait(name, self._state.clock.monotonic())):
            detail = f"too many requests within a minute; try again in {seconds} s"
            raise Problem(429, detail, headers={"Retry-After": str(seconds)})

    def _size(self, scope: Scope, name: str) -> int:
        """Return the maximum size of a request's body in bytes; refuse a body that cannot be read."""
        options, path = self._state.options, scope["path"]
        limit = 0 if scope["state"]["caller"] is None or not is_counted(path) else options.bytes_of(path)
        headers = dict(scope["headers"])
        # Nothing is unpacked here, so nothing grows when it is.
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Problem(415, "the body is compressed: send it uncompressed, without the header Content-Encoding")
        size, length = limit, headers.get(b"content-length")
        if length is None and scope["http_version"].startswith("1") and b"transfer-encoding" not in headers:
            return 0  # no body
        if length is not None:
            if not length.isdigit() or len(length) > len(str(MAX_BODY_BYTES)) or int(length) > limit:
                raise _too_long(limit)
            size = limit if b"transfer-encoding" in headers else int(length)
        whose = "your" if self._held_by[name] + size > options.bytes_of_a_caller else "the"
        if whose == "your" or self._held + size > options.bytes_in_progress:
            raise try_later(f"{whose} bodies in progress fill the memory that the server grants them: try again later")
        return size

    async def _read(self, receive: Receive, limit: int) -> bytes:
        parts, size = [], 0
        try:
            async with self._state.clock.timeout(self._state.options.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise ClientGoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > limit:
                        raise _too_long(limit)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Problem(
                408,
                f"the body did not arrive within {self._state.options.body_seconds:g} s",
                headers={"Connection": "close"},
            ) from None

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application until it is done, the client disconnects, or the time is over."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        gone = asyncio.Event()
        has_started = False

        async def leaving() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def sending(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # After a complete answer, uvicorn reports that the client is gone.
                watching.cancel()
            await send(message)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            task.cancel()

        watching = asyncio.ensure_future(watch())
        # Not the deadline of the search: a deadline costs a search a quarter more of the processor's time.
        seconds = self._state.seconds_of(scope["path"])
        try:
            async with self._state.clock.timeout(seconds):
                await self._app(scope, _again(body, leaving), sending)
        except TimeoutError:
            if has_started:
                raise  # the end shows that the answer is not complete
            problem = Problem(504, f"the answer took longer than {seconds:g} s", kind="timeout")
            await problem.response(request_id_of(scope))(scope, receive, send)
        except asyncio.CancelledError:
            if not gone.is_set() or task.uncancel():
                raise
            self._state.metrics.refused["client-gone"] += 1
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first gives the body that was already read, then later messages."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return given.pop() if given else await receive()

    return receiving


def _too_long(limit: int) -> Problem:
    # The rest would be read in vain: the connection is closed.
    said = f"a body has at most {limit:,} bytes on this route" if limit else "this route accepts no body"
    return Problem(413, said, headers={"Connection": "close"})
