"""Assistants at ``/mcp``: the Model Context Protocol beside the routes, for the same callers, over the same client."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.routing import Route

from semlex.server.mcp.access import Access
from semlex.server.mcp.http import mcp_app, signed_in
from semlex.server.problems import Problem, request_id_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from semlex.server.state import ServerState


class Assistants:
    """Answers at one path, as long as `run` goes on. Who asks, and from where, was looked at before.

    Attributes:
        route: Where it answers.
    """

    def __init__(self, state: ServerState) -> None:
        self._is_stateless = state.options.stateless
        folders = tuple(Path(os.path.realpath(folder)) for folder in state.options.allow)
        self._app = mcp_app(
            state.lent,
            Access(None, "admin", folders),
            caller_of=lambda request: request.scope["state"]["caller"],
            stateless=state.options.stateless,
        )
        (inner,) = self._app.routes
        assert isinstance(inner, Route)  # noqa: S101 - it has one path
        self._answer = inner.app
        self._runs = asyncio.Event()
        self.route = Route(inner.path, endpoint=self, include_in_schema=False)

    async def run(self) -> None:
        """Keeps the sessions until it is cancelled."""
        async with self._app.router.lifespan_context(self._app):
            self._runs.set()
            await asyncio.Event().wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        await self._runs.wait()
        scope["route"] = self.route  # for figures and logs
        if self._is_stateless and scope["method"] == "GET":  # the stream of a session
            refusal = Problem(405, "the server keeps no sessions, so it offers no stream", headers={"Allow": "POST"})
            await refusal.response(request_id_of(scope))(scope, receive, send)
            return
        # A session is for whoever has begun it.
        scope["user"] = signed_in(scope["state"]["caller"])
        await self._answer(scope, receive, send)
