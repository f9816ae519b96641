"""The server: the ASGI application, and the process that runs it on a socket and lets requests end when it stops."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from semlex.clock import SYSTEM, Clock
from semlex.errors import SemlexError
from semlex.server.addresses import address_to_ask, bound_socket, places
from semlex.server.answers import Schemas
from semlex.server.connections import StoppingServer, uvicorn_options
from semlex.server.guard import EXPOSED_HEADERS, Guard
from semlex.server.limits import Admission, Bodies
from semlex.server.observability import OWN_TELEMETRY, Traces
from semlex.server.options import ServeOptions
from semlex.server.problems import Problem, answer_error, answer_http, answer_problem, answer_refusal
from semlex.server.processes import follow
from semlex.server.request_context import RETURNS
from semlex.server.routes import ROUTERS
from semlex.server.state import ServerState

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable

    from semlex.retriever.client import Client
    from semlex.settings.sources import WatchedSettings

# What an assistant in a page sends.
ASSISTANTS_HEADERS = ("Last-Event-ID", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Mcp-Session-Id")
PROBLEM_SCHEMA = {
    "type": "object",
    "description": "A problem of a request (RFC 9457).",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def create_app(
    options: ServeOptions | None = None,
    source: WatchedSettings | None = None,
    client: Client | None = None,
    *,
    clock: Clock = SYSTEM,
) -> FastAPI:
    """Return the server as an ASGI application."""
    if source is None:
        from semlex.settings.sources import WatchedSettings  # noqa: PLC0415 - reads files

        source = WatchedSettings()
    state = ServerState(options or ServeOptions(), source, client, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await state.start()
        try:
            yield
        finally:
            await state.stop()

    app = FastAPI(
        title="semlex",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        exception_handlers={
            Problem: answer_problem,
            SemlexError: answer_error,
            RequestValidationError: answer_refusal,
            HTTPException: answer_http,
        },
        redirect_slashes=False,
        telemetry=OWN_TELEMETRY,
    )
    app.state.server = state
    for router in ROUTERS:
        app.include_router(router)
        state.routes += router.routes
    if find_spec("mcp") is not None:
        from semlex.server.mcp.http import Assistants  # noqa: PLC0415 - of the extra `mcp`

        assistants = Assistants(state)
        state.beside.append(assistants.run)
        app.router.routes.append(assistants.route)
        state.routes.append(assistants.route)
    # The last one added is the first that a request meets.
    app.add_middleware(Admission, state=state)
    app.add_middleware(Bodies, state=state)
    if state.options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(state.options.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID", *ASSISTANTS_HEADERS],
            expose_headers=[*EXPOSED_HEADERS, "Mcp-Session-Id"],
        )
    app.add_middleware(Guard, state=state)
    app.add_middleware(Traces)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    return app


def _schema(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        from semlex import __version__  # noqa: PLC0415 - the package as a whole

        made = get_openapi(title=app.title, version=__version__, routes=app.routes)
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
        for name in ("HTTPValidationError", "ValidationError"):
            parts["schemas"].pop(name, None)
        if app.state.server.options.token_file is not None:
            parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"token": []}]
        schemas = Schemas("#/components/schemas/")
        for operation in (one for path in made["paths"].values() for one in path.values()):
            if (returned := RETURNS.get(operation["operationId"])) is not None:
                status = min(operation["responses"])
                operation["responses"][status]["content"]["application/json"]["schema"] = schemas.of(returned)
        parts["schemas"] |= schemas.definitions
        app.openapi_schema = made
    return app.openapi_schema


BACKLOG = 2048
KEEP_ALIVE_SECONDS = 5


class Server(StoppingServer):
    """A uvicorn server that notifies the application as soon as it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: FastAPI,
        seconds: float,
        tell: Callable[[str], None],
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config, seconds, app.state.server.clock)
        self._served, self._tell, self._ready = app, tell, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then report that the server is ready."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)
        self._ready()

    def retire(self) -> None:
        """Take no new connections, and end the open ones with their next answers."""
        self._served.state.server.is_retiring = True
        super().retire()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests and let those in progress end."""
        self._served.state.server.is_stopping = True
        self._tell("stopping: requests in progress end first; a second Ctrl-C ends them immediately")
        await super().shutdown(sockets)


def config_of(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        app,
        **uvicorn_options(options, app.state.server.clock),
        lifespan="off",
        # So many connections are accepted at a time: processes that share an address leave the others some.
        backlog=1 if options.processes > 1 else BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def serve(
    options: ServeOptions,
    source: WatchedSettings,
    tell: Callable[[str], None],
    ready: Callable[[str], None] | None = None,
    listening: socket.socket | None = None,
) -> None:
    """Run the server until a signal stops it; one of several processes gets the socket that they share."""
    if listening is None:
        listening = bound_socket(options.host, options.port)
    try:
        asyncio.run(_serve(listening, options, source, tell, ready))
    finally:
        listening.close()


async def _serve(
    listening: socket.socket,
    options: ServeOptions,
    source: WatchedSettings,
    tell: Callable[[str], None],
    ready: Callable[[str], None] | None,
) -> None:
    app = create_app(options, source)
    state = app.state.server
    # Not in the application's lifespan: problems are errors of semlex here.
    await state.start()
    # What is loaded by now stays. Every full garbage collection would scan it, for 30 ms each time.
    gc.collect()
    gc.freeze()
    try:
        address = address_to_ask(listening)
        if ready is None:
            callers = "" if options.token_file is None else ", to callers with a token"
            tell(f"semlex serves on {places(listening)}{callers}")
            tell(f"ask: {example(address, needs_token=options.token_file is not None)}")
        listens = (lambda: None) if ready is None else (lambda: ready(address))
        server = Server(config_of(app, options), app, options.stop_seconds, tell, listens)
        if options.processes > 1:
            follow(server)
        await server.serve([listening])
    finally:
        await state.stop()


def example(address: str, *, needs_token: bool) -> str:
    """Return a shell command that sends a search to the server."""
    token = "-H 'Authorization: Bearer TOKEN' " if needs_token else ""
    return (
        f"curl -s {address}/v1/search {token}-H 'Content-Type: application/json' -d '{{\"query\": \"your question\"}}'"
    )
