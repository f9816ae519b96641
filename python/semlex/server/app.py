"""The ASGI application: routes, the checks before them, and a client that is opened once."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from semlex.clock import SYSTEM, Clock
from semlex.errors import SemlexError
from semlex.server.answers import Schemas
from semlex.server.guard import EXPOSED_HEADERS, Guard
from semlex.server.limits import Admission, Bodies
from semlex.server.observability import OWN_TELEMETRY, Traces
from semlex.server.options import ServeOptions
from semlex.server.problems import Problem, answer_error, answer_http, answer_problem, answer_refusal
from semlex.server.request_context import RETURNS
from semlex.server.routes import ROUTERS
from semlex.server.state import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.retriever.client import Client
    from semlex.settings.load import WatchedSettings

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
        from semlex.settings.load import WatchedSettings  # noqa: PLC0415 - reads files

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
