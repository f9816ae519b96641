"""The span of a request, below that of whoever sent it: method, route and status, and nothing that the caller wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.server.metrics import METHODS
from semlex.telemetry.names import REQUEST_ID, ROUTE, STATUS, Work
from semlex.telemetry.spans import is_on, span

if TYPE_CHECKING:
    from fastapi.telemetry import TelemetryConfig
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# What FastAPI would record by itself holds paths, query strings, and messages of errors. Its metrics hold routes.
OWN_TELEMETRY: TelemetryConfig = {"tracing": False, "operation_spans": False, "logs": False}
PROPAGATED = (b"traceparent", b"tracestate")
SERVER_ERRORS = 500


class Traces:
    """Records a span of each request, where the program has set OpenTelemetry up."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] != "http" or not is_on():
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else "HTTP"
        with span(Work.REQUEST, method, parent=_parent(scope)) as told:
            try:
                await self._app(scope, receive, sending)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    told.rename(f"{method} {route}")
                told.note({ROUTE: route, STATUS: status, REQUEST_ID: scope.get("state", {}).get("request_id")})
                if status is not None and status >= SERVER_ERRORS:
                    told.fail(str(status))


def _parent(scope: Scope) -> Any:
    from opentelemetry import propagate  # noqa: PLC0415 - FastAPI brings it, and here somebody wants spans

    given = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in PROPAGATED}
    return propagate.extract(given)
