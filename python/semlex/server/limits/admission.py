"""How many requests are in progress, and how many of one caller in a minute.

A request waits for a place for a second, then it is refused. A longer queue would answer everybody late; a refusal says
when to come again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from semlex.server.limits.answers import Found
from semlex.server.page_files import is_page
from semlex.server.problems import Problem, request_id_of
from semlex.store.query.chunks import size_seen

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from semlex.server.state import ServerState

# Whoever watches the server learns how it is, above all when it has much to do.
UNCOUNTED_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
MAX_CALLERS = 10_000
# For a place among those in progress.
MAX_WAIT_SECONDS = 1.0
ASSISTANTS_PATH = "/mcp"


def is_counted(path: str) -> bool:
    """Whether a request takes a place among those in progress.

    Those of the page's files take none: they are sent from memory to callers without a token, who could take every
    place.
    """
    return path not in UNCOUNTED_PATHS and not is_page(path)


class Rates:
    """Requests of callers within a minute: each has a bucket that fills again as time passes."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str, now: float) -> float:
        """Takes one request of a caller; returns seconds until it would be taken, 0 where it was.

        Args:
            now: Seconds of a clock that does not go back.
        """
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


def is_stream(scope: Scope) -> bool:
    """Whether a request waits for what an assistant is told unasked: it is open as long as its session."""
    return bool(scope["path"] == ASSISTANTS_PATH and scope["method"] == "GET")


def name_of(scope: Scope) -> str:
    """Who makes a request, as limits count: by token, or by address."""
    caller = scope.get("state", {}).get("caller")
    return caller.name if caller and caller.name else (scope.get("client") or ("",))[0]


def takes_place(scope: Scope) -> bool:
    """Whether a request takes a place among those in progress, and counts to its caller's rate."""
    return is_counted(scope["path"]) and not is_stream(scope)


def stopping(state: ServerState) -> Problem | None:
    """The refusal of a server that stops."""
    if not state.is_stopping:
        return None
    return Problem(503, "the server is stopping", kind="stopping", headers={"Retry-After": "5"})


class Admission:
    """Lets so many requests in as the server can answer."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state
        self._places = asyncio.Semaphore(state.options.concurrency)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
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
            lease = scope["state"]["lease"] = self._state.take()
            found = scope["state"]["found"] = Found()
            token = size_seen.set(found.add)
            try:
                await self._app(scope, receive, send)
            finally:
                size_seen.reset(token)
                lease.release()
        finally:
            if has_place:
                self._state.admitted -= 1
                self._places.release()

    async def _enter(self) -> Problem | None:
        """Wait for a place; return the refusal if none is free in time."""
        try:
            async with self._state.clock.timeout(MAX_WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            return Problem(
                503, "the server has as much to do as it can; come again", kind="overload", headers={"Retry-After": "1"}
            )
        problem = stopping(self._state)
        if problem is not None:
            self._places.release()
        return problem
