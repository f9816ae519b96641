"""A transaction pooler for tests: what PgBouncer does with ``pool_mode = transaction``, and no more.

A client gets a server connection with the first message of a transaction and gives it back when the server says that it
is idle. Nothing is reset in between, and the connections are lent in turn: the session state of a client is missing
in its next transaction, and turns up in another client's. Prepared statements with a name are refused, as older
PgBouncers fail on them, and so are start-up parameters that PgBouncer does not take.

Protocol 3.0 of the manual's chapter "Frontend/Backend Protocol". Nobody is authenticated.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PROTOCOL, CANCEL, TLS, GSS = 196608, 80877102, 80877103, 80877104
# PgBouncer takes a few more, among them the encoding, and keeps them for each client.
STARTUP_PARAMETERS = {"user", "database", "application_name", "client_encoding"}
KEYS = itertools.count(1)
LOST = (ConnectionError, asyncio.IncompleteReadError)


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a message; return its type and all its bytes (the body begins at the sixth)."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read the start-up message of a connection, which has no type; return its code and body."""
    length, code = struct.unpack("!ii", await reader.readexactly(8))
    return code, await reader.readexactly(length - 8)


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of a type."""
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(code: int, body: bytes) -> bytes:
    """Return a start-up message: the first message of a connection, which has no type."""
    return struct.pack("!ii", len(body) + 8, code) + body


def failure(state: str, text: str) -> bytes:
    """Return an error that ends a connection."""
    fields = {"S": "FATAL", "V": "FATAL", "C": state, "M": text}
    return message(b"E", b"".join(f"{name}{value}\0".encode() for name, value in fields.items()) + b"\0")


async def open_server(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first server of an address, on a Unix socket or a port."""
    parts = conninfo_to_dict(url)
    host = str(parts.get("hostaddr") or parts.get("host") or "localhost").split(",")[0]
    port = str(parts.get("port") or 5432).split(",")[0]
    if host.startswith("/"):
        return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
    return await asyncio.open_connection(host, port)


@asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close a stream at the end of the block."""
    try:
        yield
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


class Client:
    """A connection from a client, to which the pooler acts as the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.key = next(KEYS).to_bytes(8)  # for cancelling: number of a process and secret
        self.server: Server | None = None


class Server:
    """A connection to the server.

    Attributes:
        client: The client that uses it, or None.
        parameters: The messages with which it reported its settings at the start.
        key: Process number and secret, with which its queries are cancelled.
        cancelling: Held while a cancellation is on its way, which must not hit the next client.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.client: Client | None = None
        self.parameters = self.key = b""
        self.cancelling = asyncio.Lock()
        self._answers_due = 0  # how often it will still say that it is ready
        self._batch_begun = False  # whether a Sync has yet to come
        self._ended_by = b""

    async def start(self, user: str, database: str) -> None:
        self.writer.write(startup(PROTOCOL, f"user\0{user}\0database\0{database}\0\0".encode()))
        kind = b""
        while kind != b"Z":
            kind, data = await read_message(self.reader)
            if kind not in b"RSKZN":
                raise ConnectionError(data)
            self.parameters += data if kind == b"S" else b""
            self.key = data[5:] if kind == b"K" else self.key

    def note_sent(self, kind: bytes) -> None:
        if kind in b"QSF":  # Query, Sync, FunctionCall: each is answered with ReadyForQuery
            self._answers_due, self._batch_begun, self._ended_by = self._answers_due + 1, False, kind
        elif kind in b"PBDEC":  # Parse, Bind, Describe, Execute, Close
            self._batch_begun = True

    def is_free_after(self, kind: bytes, data: bytes) -> bool:
        """Return whether the server has finished the client's work after this message."""
        if kind == b"Z":
            self._answers_due -= 1
        elif kind == b"G" and self._ended_by == b"S":
            self._answers_due -= 1  # a server that waits for rows ignores a Sync; another one follows the rows
        return kind == b"Z" and data[5:] == b"I" and self._answers_due == 0 and not self._batch_begun


class TransactionPooler:
    """Few connections to a server, for many clients.

    Args:
        url: A database, on a Unix socket or a port.
        size: Number of connections to it; also an attribute.

    Attributes:
        address: Address for clients, once the pooler is open.
        lent: How often a server connection was given to a client.
        discarded: Number of connections closed because their client vanished in the middle of a query or transaction.
    """

    def __init__(self, url: str, size: int = 2, port: int = 0) -> None:
        parts = conninfo_to_dict(url)
        self._url = url
        self._user, self._database = str(parts["user"]), str(parts["dbname"])
        self.size = size
        self._wanted_port = port  # 0: any
        self._idle: asyncio.Queue[Server] = asyncio.Queue()  # first in, first out: lent in turn
        self._clients: dict[bytes, Client] = {}
        self._parameters = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.lent = self.discarded = 0

    async def __aenter__(self) -> Self:
        for _ in range(self.size):
            await self._connect()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._wanted_port)
        host, port = self._listener.sockets[0].getsockname()
        self.address = make_conninfo(host=host, port=port, user=self._user, dbname=self._database)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the server's side ------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        server = Server(*await open_server(self._url))
        await server.start(self._user, self._database)
        self._parameters = server.parameters
        self._run(self._answer(server))
        self._idle.put_nowait(server)

    async def _answer(self, server: Server) -> None:
        """Forward the messages of a server until its connection is lost; then open another."""
        async with closing(server.writer):
            with suppress(*LOST):
                while True:
                    kind, data = await read_message(server.reader)
                    client = server.client
                    if client is None:
                        continue
                    client.writer.write(data)
                    if server.is_free_after(kind, data):
                        server.client = client.server = None
                        self._idle.put_nowait(server)
                    with suppress(ConnectionError):
                        await client.writer.drain()
            if server.client is not None:
                server.client.writer.close()
                server.client.server = None
        await self._connect()

    async def _lend(self, client: Client) -> Server:
        while True:
            server = await self._idle.get()
            async with server.cancelling:
                if not server.writer.is_closing():
                    server.client, client.server = client, server
                    self.lent += 1
                    return server

    async def _cancel(self, client: Client | None) -> None:
        server = None if client is None else client.server
        if server is None:
            return
        async with server.cancelling:
            if server.client is client:
                reader, writer = await open_server(self._url)
                async with closing(writer):
                    writer.write(startup(CANCEL, server.key))
                    await reader.read()  # ends when the server has passed it on

    # --- the clients' side ------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._run(self._attend(Client(reader, writer)))

    async def _attend(self, client: Client) -> None:
        async with closing(client.writer):
            try:
                with suppress(*LOST):
                    if await self._greet(client):
                        await self._serve(client)
            finally:
                self._clients.pop(client.key, None)
                if client.server is not None:
                    self.discarded += 1
                    client.server.client = None
                    client.server.writer.close()

    async def _greet(self, client: Client) -> bool:
        """Answer the start of a connection; return False if the connection ends there."""
        code, body = await read_startup(client.reader)
        while code in (TLS, GSS):
            client.writer.write(b"N")
            code, body = await read_startup(client.reader)
        if code == CANCEL:
            await self._cancel(self._clients.get(body))
            return False
        unknown = {name.decode() for name in body.split(b"\0")[:-2:2]} - STARTUP_PARAMETERS
        if code != PROTOCOL or unknown:
            client.writer.write(failure("08P01", f"unsupported protocol or startup parameters: {code} {unknown}"))
            return False
        self._clients[client.key] = client
        client.writer.write(
            message(b"R", bytes(4)) + self._parameters + message(b"K", client.key) + message(b"Z", b"I")
        )
        return True

    async def _serve(self, client: Client) -> None:
        """Forward the messages of a client until it disconnects."""
        while True:
            kind, data = await read_message(client.reader)
            if kind == b"X":
                return
            if kind == b"P" and data[5]:
                client.writer.write(failure("0A000", "prepared statements with a name do not work behind this pooler"))
                return
            server = client.server
            if server is None:
                if kind in b"dcfH":  # a Flush of nothing, or rows that were under way when their COPY failed
                    continue  # a server ignores them, too
                server = await self._lend(client)
            server.note_sent(kind)
            server.writer.write(data)
            await server.writer.drain()
