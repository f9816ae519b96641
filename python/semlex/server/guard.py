"""The first check of a request, from its head only: request id, host, origin, caller."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import TYPE_CHECKING

from semlex.ingest.files.absence import database_alone
from semlex.server.addresses import PROBE_PATHS, Addresses, is_page
from semlex.server.observability import FIELDS
from semlex.server.problems import Problem
from semlex.server.tokens import Caller, caller_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from semlex.server.state import ServerState

logger = logging.getLogger("semlex.server")

REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
MAX_LINES_BYTES = 32 * 1024
# Whatever a page of another site embeds, it gets none of the server's answers.
NOT_EMBEDDED = ((b"cross-origin-resource-policy", b"same-origin"), (b"x-frame-options", b"DENY"))
# After it a client connects again, to another process.
LAST_ANSWER = ((b"connection", b"close"),)
EXPOSED_HEADERS = ("X-Request-ID", "Retry-After")
LEFT = 499  # the status, in figures and logs, of a request whose client was gone before the answer


class Guard:
    """Gives each request an id and a caller, or refuses it; counts and logs the answers."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state
        self._addresses = Addresses(state.options.host, state.options.hosts, state.options.origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), LEFT
        headers = headers_of(scope)
        given = headers.get(b"x-request-id", [b""])[0]
        request_id = given.decode() if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}

        origin = self._addresses.named_origin(headers.get(b"origin", []))

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = list(message.get("headers", []))
                if all(name != b"cache-control" for name, _ in own):
                    own.append((b"cache-control", b"no-store"))
                if origin is not None and all(name != b"access-control-allow-origin" for name, _ in own):
                    own += _readable(origin)  # a refusal of this guard
                message["headers"] = [
                    *own,
                    *(LAST_ANSWER if self._state.is_retiring else ()),
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                    *NOT_EMBEDDED,
                ]
            await send(message)

        metrics = self._state.metrics
        metrics.in_flight += 1
        try:
            try:
                scope["state"]["caller"] = self._caller(scope, headers)
            except Problem as problem:
                metrics.refused[problem.kind] += 1
                await problem.response(request_id)(scope, receive, sending)
            else:
                with database_alone():
                    await self._app(scope, receive, sending)
        except Exception:
            logger.exception("request %s failed", request_id, extra={"request_id": request_id})
            if status != LEFT:
                raise  # the end shows that the answer is not complete
            await Problem(500, "the server failed; see its log").response(request_id)(scope, receive, sending)
        finally:
            metrics.in_flight -= 1
            self._note(scope, request_id, status, time.perf_counter() - started)

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        """Count and log a request that was answered or refused."""
        if "route" not in scope:  # refused before it was looked for
            scope["route"] = self._state.route_of(scope)
        # A path that is not a route is a text of the caller's.
        route = getattr(scope["route"], "path", "none")
        self._state.metrics.observe(scope["method"], route, status, seconds)
        caller = scope["state"].get("caller")
        name = (caller.name if caller is not None else "") or "-"
        method, milliseconds = scope["method"][:16], round(seconds * 1000, 1)
        values = request_id, method, route, status, milliseconds, name, (scope.get("client") or ("-",))[0]
        logger.info("request %s: %s %s %d in %.1f ms (%s, %s)", *values, extra=dict(zip(FIELDS, values, strict=True)))

    def _caller(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> Caller | None:
        """Return the caller of a request; None without a token on a path that needs none."""
        options = self._state.options
        lines = scope["headers"]
        if len(lines) > options.header_count or sum(len(name) + len(value) for name, value in lines) > MAX_LINES_BYTES:
            raise Problem(
                431,
                f"too many headers: send at most {options.header_count}, with {MAX_LINES_BYTES:,} bytes in all",
            )
        self._addresses.check(scope, headers)
        if options.token_file is None:
            return Caller("", options.rights)
        given = headers.get(b"authorization", [])
        caller = caller_of(given[0], self._state.tokens) if len(given) == 1 else None
        is_preflight = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
        path = scope["path"]
        # The page itself asks for a token.
        is_open = path in PROBE_PATHS or is_page(path) or is_preflight
        if caller is None and not is_open:
            raise needs_token()
        return caller


def needs_token() -> Problem:
    """Return the refusal of a request without a known token."""
    return Problem(
        401,
        "a valid token is needed, in the header Authorization: Bearer TOKEN; the operator of the server makes one with "
        "'semlex serve token add NAME'",
        headers={"WWW-Authenticate": 'Bearer realm="semlex"'},
    )


def _readable(origin: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of this origin read the answer in a browser."""
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode()),
        (b"vary", b"Origin"),
    ]


def headers_of(scope: Scope) -> dict[bytes, list[bytes]]:
    """Return the headers of a request by their names in lower case."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name, []).append(value)
    return found
