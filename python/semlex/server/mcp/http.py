"""The MCP server over streamable HTTP: callers, hosts and limits."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from sse_starlette.sse import AppStatus
from starlette.routing import Route

from semlex.errors import ConfigurationError
from semlex.server.addresses import Addresses, bound_socket, is_loopback
from semlex.server.connections import STOPPING, StoppingServer, uvicorn_options
from semlex.server.guard import headers_of, needs_token
from semlex.server.limits import name_of
from semlex.server.mcp.access import Access
from semlex.server.mcp.server import mcp_server
from semlex.server.options import ServeOptions
from semlex.server.problems import Problem, request_id_of, try_later

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from semlex.retriever.client import Client
    from semlex.server.open_client import OpenClient
    from semlex.server.state import ServerState
    from semlex.server.tokens import Caller


PATH = "/mcp"
DEFAULT_PORT = 8322
MAX_BODY_BYTES = 1024 * 1024
MAX_SESSIONS = 1_000
MAX_SESSIONS_OF_A_CALLER = 50
IDLE_SECONDS = 600.0
STOP_SECONDS = 5
SESSION, REVISION = b"mcp-session-id", b"mcp-protocol-version"


class Entrance:
    """Checks the host, the origin and the token of a request before it is answered."""

    def __init__(self, app: ASGIApp, addresses: Addresses, find_caller: Callable[[str], Caller | None] | None) -> None:
        self._app, self._addresses, self._find = app, addresses, find_caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        try:
            caller = self._caller(scope)
        except Problem as problem:
            await problem.response(secrets.token_hex(8))(scope, receive, send)
            return
        scope["state"] = {**scope.get("state", {}), "caller": caller}
        if caller is not None:  # a session belongs to the caller who began it
            scope["user"] = signed_in(caller)
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        headers = headers_of(scope)
        self._addresses.check(scope, headers)
        if self._find is None:
            return None
        given = headers.get(b"authorization", [])
        scheme, _, token = (given[0] if len(given) == 1 else b"").partition(b" ")
        caller = self._find(token.strip().decode("latin-1")) if scheme.lower() == b"bearer" else None
        if caller is None:
            raise needs_token()
        return caller


class Streams:
    """Ends event streams in order: each ends after a time, and all end when the server stops, even silent ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        stopping: asyncio.Event | None = scope.get("state", {}).get(STOPPING)
        is_open = False

        async def sending(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        if stopping is not None:
            # Left alone, the package would cut off calls in progress, too, as soon as a signal comes.
            AppStatus.enable_automatic_graceful_drain = False
            AppStatus.should_exit = False  # set where another server of this process was stopped before
            if scope["method"] == "GET":
                receive = _until(stopping, receive)
        await self._app(scope, receive, sending)
        if is_open:
            await send({"type": "http.response.body", "body": b""})


class Sessions:
    """Limits the sessions of each caller: a new one ends the caller's session that has been idle for longest."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # Caller -> session -> its requests in progress; the session that was used last is the last one.
        self._open: dict[str, dict[str, int]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        headers = headers_of(scope)
        revision, session = (headers.get(name, [b""])[0].decode("latin-1") for name in (REVISION, SESSION))
        own = self._open.setdefault(name_of(scope), {})
        # Other revisions of the protocol have no sessions.
        opens = scope["method"] == "POST" and not session and (not revision or revision in HANDSHAKE_PROTOCOL_VERSIONS)
        if opens:
            idle = next((one for one, requests in own.items() if not requests), None)
            is_full = len(own) >= MAX_SESSIONS_OF_A_CALLER
            if is_full and idle is None:
                detail = f"all {MAX_SESSIONS_OF_A_CALLER} sessions of this caller are in use; end one, then try again"
                await try_later(detail).response(request_id_of(scope) or secrets.token_hex(8))(scope, receive, send)
                return
            session = secrets.token_hex(8)  # until it has a name
            own[session] = 0
            if is_full and idle is not None:
                del own[idle]
                ending = {**scope, "method": "DELETE", "headers": [(SESSION, idle.encode("latin-1"))]}
                await self._app(ending, _no_body, _to_nobody)
        await self._count(own, session, scope, receive, send, opens=opens)

    async def _count(
        self, own: dict[str, int], session: str, scope: Scope, receive: Receive, send: Send, *, opens: bool
    ) -> None:
        """Answer a request, and count it as in progress in its session until it ends."""
        is_over = opens

        async def sending(message: Message) -> None:
            nonlocal session, is_over
            if message["type"] == "http.response.start":
                status, given = message["status"], dict(message["headers"]).get(SESSION)
                if opens and given is not None and status < HTTPStatus.BAD_REQUEST:
                    own[given.decode("latin-1")] = own.pop(session)
                    session, is_over = given.decode("latin-1"), False
                elif status == HTTPStatus.NOT_FOUND or scope["method"] == "DELETE":
                    is_over = True
            await send(message)

        if session in own:
            own[session] += 1
        try:
            await self._app(scope, receive, sending)
        finally:
            if session in own:
                requests = own.pop(session) - 1
                if not is_over:
                    own[session] = requests
            if not own:
                self._open.pop(name_of(scope), None)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _to_nobody(message: Message) -> None:
    del message


def _until(stopping: asyncio.Event, receive: Receive) -> Receive:
    """Return a `receive` that reports the client as disconnected when the server stops."""

    async def receiving() -> Message:
        waiting = (asyncio.ensure_future(receive()), asyncio.ensure_future(stopping.wait()))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return waiting[0].result() if waiting[0].done() else {"type": "http.disconnect"}
        finally:
            for one in waiting:
                one.cancel()

    return receiving


def signed_in(caller: Caller) -> AuthenticatedUser:
    """Return a caller as the user object to which the SDK ties sessions; the SDK does not get the token."""
    collections = None if caller.collections is None else sorted(caller.collections)
    claims = {"rights": caller.rights, "collections": collections}
    return AuthenticatedUser(
        AccessToken(token="", client_id=caller.name, scopes=[], subject=caller.name, claims=claims)
    )


def found_caller(request: Request) -> Caller | None:
    """Return the caller that `Entrance` or `Guard` has found for a request."""
    caller: Caller | None = request.scope["state"]["caller"]
    return caller


def mcp_app(
    client: Client | OpenClient | Callable[[], AbstractContextManager[OpenClient]],
    access: Access,
    *,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    find_caller: Callable[[str], Caller | None] | None = None,
    caller_of: Callable[[Request], Caller | None] | None = None,
    stateless: bool = False,
) -> Starlette:
    """Return the server as an ASGI application that answers at ``/mcp``.

    To embed it, add its routes to your application and enter its lifespan (``app.router.lifespan_context(app)``) in
    yours.

    Args:
        client: A client that is open as long as the application runs, or a function that lends one for each request.
        access: The widest access that an assistant can have.
        host: Address that the server listens on.
        names: Additional host names that requests may name.
        find_caller: Function that returns the caller of a token; requests without a known token are refused.
        caller_of: Function that returns the caller of a request, if your application checks callers, hosts and origins.
        stateless: Whether this process keeps no sessions.
    """
    server = mcp_server(client, access, caller_of=caller_of or found_caller)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # looked at by `Entrance`
        max_request_body_size=MAX_BODY_BYTES,
        stateless_http=stateless,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=IDLE_SECONDS,
    )
    (inner,) = app.routes
    assert isinstance(inner, Route)  # noqa: S101 - it has one path
    answering: ASGIApp = Streams(Sessions(inner.app))
    if caller_of is None:
        remedy = "only web pages from the server's own host and port may call it"
        addresses = Addresses(host, names, remedy=remedy)
        answering = Entrance(answering, addresses, find_caller)
    app.router.routes[:] = [Route(PATH, endpoint=answering)]
    return app


def listening_socket(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """Return a socket that listens on an address; without a token file, it must be a loopback address."""
    if not has_tokens and not is_loopback(host):
        raise ConfigurationError(
            f"{host[:80]!a} can be reached from other machines, and no token file is given: listen on 127.0.0.1, or "
            "give --token-file FILE"
        )
    return bound_socket(host, port)


class WebServer(StoppingServer):
    """A uvicorn server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals; `should_exit` ends the server."""
        yield


def web_server(app: Starlette) -> WebServer:
    """Return a server that runs until ``should_exit`` is set, and then waits shortly for requests in progress."""
    return WebServer(
        uvicorn.Config(app, **uvicorn_options(ServeOptions())),
        STOP_SECONDS,
    )


class Assistants:
    """Serves MCP at one path of the HTTP server, which has checked the caller, while `run` is running."""

    def __init__(self, state: ServerState) -> None:
        self._is_stateless = state.options.stateless
        self._app = mcp_app(
            state.lent,
            Access.of(writes=True, folders=state.options.allow),
            caller_of=found_caller,
            stateless=state.options.stateless,
        )
        (inner,) = self._app.routes
        assert isinstance(inner, Route)  # noqa: S101 - it has one path
        self._answer = inner.app
        self._runs = asyncio.Event()
        self.route = Route(inner.path, endpoint=self, include_in_schema=False)

    async def run(self) -> None:
        """Keep the MCP sessions until cancelled."""
        async with self._app.router.lifespan_context(self._app):
            self._runs.set()
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        await self._runs.wait()
        scope["route"] = self.route  # for figures and logs
        if self._is_stateless and scope["method"] == "GET":  # the stream of a session
            refusal = Problem(405, "the server keeps no sessions, so it offers no stream", headers={"Allow": "POST"})
            await refusal.response(request_id_of(scope))(scope, receive, send)
            return
        # A session belongs to the caller who began it.
        scope["user"] = signed_in(scope["state"]["caller"])
        await self._answer(scope, receive, send)
