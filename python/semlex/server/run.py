"""Runs the server process: a socket, uvicorn, and a stop that lets requests in progress end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn

from semlex.server.addresses import address_to_ask, bound_socket
from semlex.server.app import create_app
from semlex.server.connections import StoppingServer, uvicorn_options

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from fastapi import FastAPI

    from semlex.server.options import ServeOptions
    from semlex.settings.load import WatchedSettings

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 5


class Server(StoppingServer):
    """A uvicorn server that tells the application as soon as it stops."""

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
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests and let those in progress end."""
        self._served.state.server.is_stopping = True
        self._tell("stopping: requests in progress end first; Ctrl-C once more ends them at once")
        await super().shutdown(sockets)


def config_of(app: FastAPI, options: ServeOptions) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        app,
        **uvicorn_options(options, app.state.server.clock),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def serve(
    options: ServeOptions,
    source: WatchedSettings,
    tell: Callable[[str], None],
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run the server until a signal stops it."""
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
    try:
        address = address_to_ask(listening)
        if ready is None:
            tell(f"semlex serves on {address}{'' if options.token_file is None else ', to callers with a token'}")
            tell(f"ask: {example(address, needs_token=options.token_file is not None)}")
        listens = (lambda: None) if ready is None else (lambda: ready(address))
        await Server(config_of(app, options), app, options.stop_seconds, tell, listens).serve([listening])
    finally:
        await state.stop()


def example(address: str, *, needs_token: bool) -> str:
    """Return a shell command that sends a search to the server."""
    token = "-H 'Authorization: Bearer TOKEN' " if needs_token else ""
    return (
        f"curl -s {address}/v1/search {token}-H 'Content-Type: application/json' -d '{{\"query\": \"your question\"}}'"
    )
