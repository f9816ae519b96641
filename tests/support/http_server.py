"""The HTTP server for tests: the application in this process, or behind uvicorn on a port of its own."""

import asyncio
import re
import socket
import ssl
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI

from semlex import Client, SyncClient
from semlex.clock import SYSTEM
from semlex.server.addresses import bound_socket
from semlex.server.app import Server, config_of, create_app
from semlex.server.options import ServeOptions
from semlex.server.state import ServerState
from semlex.settings.sources import Reload, Settings
from semlex.testing import HashEmbedder
from tests.support.waiting import LIMIT

COLLECTION = "handbook"


class FixedSettings:
    """Settings that change when a test says so."""

    def __init__(self, settings):
        self.settings, self.next, self.problems = settings, None, ()

    def has_changed(self):
        return self.next is not None or bool(self.problems)

    def reload(self):
        problems, self.problems = self.problems, ()
        if self.next is not None and not problems:
            self.settings, self.next = self.next, None
        return Reload(self.settings, problems, ())


@dataclass
class Served:
    app: FastAPI
    state: ServerState
    http: httpx2.AsyncClient
    source: FixedSettings
    address: tuple[str, int] = ("127.0.0.1", 0)
    connections: Any = ()  # the protocols of those that are open, behind uvicorn
    server: Any = None  # that of uvicorn

    @property
    def url(self):
        return "http://{}:{}".format(*self.address)

    async def post(self, path, body, **options):
        return await self.http.post(path, json=body, **options)

    @asynccontextmanager
    async def connection(self, sent=b""):
        """A reader and a writer on a connection of its own, on which these bytes are sent."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(sent)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def changed(self, url=None, **given):
        """Whether other settings are used from now on."""
        self.source.next = settings_for(url, **given)
        return await self.state.reload()


def settings_for(url=None, **given):
    values = {"database_url": url, "collection": COLLECTION, "embedding_model": "none", **given}
    return Settings(**values, origins=dict.fromkeys(values, "argument"))


def app_of(**options):
    """The application, which serves nothing yet."""
    return create_app(ServeOptions(**options), FixedSettings(settings_for()))


def client_of(url):
    """A client with hashed vectors and without reranking."""
    return Client(url, HashEmbedder(), use_reranking=False)


def sync_client_of(url):
    """The same for ``with``."""
    return SyncClient(url, HashEmbedder(), use_reranking=False)


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def without_tls(**options):
    """A client that reads no certificates, which takes longer than most tests do."""
    return httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), **options)


@asynccontextmanager
async def _begun(made, client, url, clock):
    source = FixedSettings(settings_for(url))
    app = create_app(made, source, client, clock=clock)
    state = app.state.server
    await state.start()
    try:
        yield app, state, source
    finally:
        await state.stop()


@asynccontextmanager
async def in_process(client=None, url=None, *, clock=SYSTEM, **options):
    async with _begun(ServeOptions(**options), client, url, clock) as (app, state, source):
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Served(app, state, http, source)


@asynccontextmanager
async def on_a_port(client=None, url=None, *, clock=SYSTEM, below="", **options):
    """The application behind uvicorn; `below` is a path that a proxy takes away."""
    made = ServeOptions(port=0, **options)
    async with _begun(made, client, url, clock) as (app, state, source):
        listening = bound_socket(made.host, 0)
        # Who does not read an answer is noticed soon: its connection inherits that.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        config = config_of(app, made)
        config.app = below_a_path(app, below)
        config.timeout_keep_alive = int(LIMIT)  # of uvicorn, by the machine's time
        config.load()
        server = Server(config, app, made.stop_seconds, lambda _line: None)
        server.lifespan = config.lifespan_class(config)
        await server.startup([listening])
        await server.on_tick(0)
        host, port = listening.getsockname()[:2]
        try:
            async with without_tls(base_url=f"http://{host}:{port}", timeout=LIMIT) as http:
                yield Served(app, state, http, source, (host, port), server.server_state.connections, server)
        finally:
            await server.shutdown([listening])


def below_a_path(app, path):
    """The application as it is seen through a proxy that forwards one path, and takes it away."""

    async def forward(scope, receive, send):
        inner = scope["path"].removeprefix(path) if scope["path"].startswith(f"{path}/") else "/not-forwarded"
        await app({**scope, "path": inner, "raw_path": inner.encode()}, receive, send)

    return forward if path else app


@contextmanager
def in_a_thread(url, **options):
    """The address of a server that runs in a thread, for clients without an event loop."""
    client = client_of(url)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client),
        portal.wrap_async_context_manager(on_a_port(client, **options)) as served,
    ):
        yield served.address


async def raw(address, *parts):
    """What the server answers to bytes, until it closes the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def answer_of(reader):
    """Status and body of the next answer on a connection that stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)
