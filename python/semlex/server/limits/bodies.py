"""The body of a request, and the client behind it: read whole, within bytes and seconds; who leaves is not worked for.

A body is read before a place among the requests in progress is taken, so that slow senders take none. What is announced
counts as held from then on; one caller holds a share, so that nobody keeps others out by sending nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from semlex.server.limits.admission import (
    ASSISTANTS_PATH,
    Rates,
    is_counted,
    name_of,
    stopping,
    takes_place,
)
from semlex.server.options import MAX_BODY_BYTES
from semlex.server.problems import Problem, request_id_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from semlex.server.state import ServerState


class ClientGoneError(Exception):
    """The client left while its request was read."""


class Bodies:
    """Reads bodies, ends what takes too long, and cancels what nobody waits for."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state
        self._rates = Rates(state.options.requests_a_minute)
        # Bytes of the bodies that are read or worked on, by what was announced: of all callers, and of each.
        self._held, self._held_by = 0, Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
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
                # Streams without a time of their own; they look after clients that leave by themselves.
                await self._app(scope, _again(body, receive), send)
                return
            await self._run(scope, body, receive, send)
        finally:
            self._held -= size
            self._held_by[name] -= size
            if not self._held_by[name]:
                del self._held_by[name]

    def _count(self, name: str) -> None:
        """Count a request of a caller."""
        if seconds := self._rates.wait(name, self._state.clock.monotonic()):
            raise Problem(429, "too many requests within a minute", headers={"Retry-After": str(math.ceil(seconds))})

    def _size(self, scope: Scope, name: str) -> int:
        """How many bytes the body has, at most."""
        options, path = self._state.options, scope["path"]
        limit = 0 if scope["state"]["caller"] is None or not is_counted(path) else options.bytes_of(path)
        headers = dict(scope["headers"])
        # Nothing is unpacked here, so nothing grows when it is.
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Problem(415, "a body is read as it is: leave the header Content-Encoding out")
        size, length = limit, headers.get(b"content-length")
        if length is None and scope["http_version"].startswith("1") and b"transfer-encoding" not in headers:
            return 0  # there is none
        if length is not None:
            if not length.isdigit() or len(length) > len(str(MAX_BODY_BYTES)) or int(length) > limit:
                raise _too_long(limit)
            size = limit if b"transfer-encoding" in headers else int(length)
        whose = "your" if self._held_by[name] + size > options.bytes_of_a_caller else "the"
        if whose == "your" or self._held + size > options.bytes_in_progress:
            raise Problem(
                503,
                f"{whose} bodies in progress are as long as the server can hold; come again",
                kind="overload",
                headers={"Retry-After": "1"},
            )
        return size

    async def _read(self, receive: Receive, limit: int) -> bytes:
        """The whole body."""
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
        """Runs the application until it is done, the client leaves, or the time is over."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.Event()
        has_started = False

        async def receiving() -> Message:
            if given:
                return given.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def sending(message: Message) -> None:
            nonlocal has_started
            has_started = True
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # Of every whole answer the server says that its client is gone.
                watching.cancel()
            await send(message)

        async def watch() -> None:
            await _leaving(receive)
            gone.set()
            task.cancel()

        watching = asyncio.ensure_future(watch())
        seconds = self._state.seconds_of(scope["path"])
        try:
            async with self._state.clock.timeout(seconds):
                await self._app(scope, receiving, sending)
        except TimeoutError:
            if has_started:
                raise  # an answer that is cut off is told from a whole one by its end
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


async def _leaving(receive: Receive) -> None:
    """Waits until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives a body that was read, and then what comes."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return given.pop() if given else await receive()

    return receiving


def _too_long(limit: int) -> Problem:
    # The rest would be read for nobody: the connection ends with it.
    said = f"a body has at most {limit:,} bytes on this route" if limit else "this route takes no body"
    return Problem(413, said, headers={"Connection": "close"})
