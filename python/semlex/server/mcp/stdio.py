"""The MCP server on standard input and output; nothing but messages is written to stdout."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError
from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from mcp.shared._stream_protocols import ReadStream, WriteStream

    from semlex.server.mcp.server import AssistantServer

# As the bodies of requests over HTTP; the longest argument has 4 KiB.
MAX_FRAME_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
# Stands for a frame that is too long: it is not JSON, and is answered so.
TOO_LONG = "(a frame of more than 1 MiB was dropped)"
# Replaces a request with an invalid id: the SDK would take it for a notification, without an answer.
NO_ID = "{}"
NO_FRAME = ErrorData(code=PARSE_ERROR, message="not a frame: send each JSON-RPC message on one line of at most 1 MiB")
NO_MESSAGE = ErrorData(
    code=INVALID_REQUEST,
    message="not a JSON-RPC 2.0 message: a request has a method, and an id that is a whole number or a text",
)


class Lines:
    """Reads lines from a file descriptor in a separate thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        # What was read and not taken is bounded: the other side waits.
        self._room = threading.Semaphore(16)
        # A read of a pipe cannot be cancelled; a thread that is not a daemon would delay the end of the process.
        threading.Thread(target=self._read, name="semlex-stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            self._room.release()
            yield NO_ID if _lacks_id(line) else line

    def _read(self) -> None:
        rest, dropping = b"", False
        while True:
            try:
                block = os.read(self._descriptor, READ_BYTES)
            except OSError:
                block = b""
            if not block:
                break
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if not dropping:
                    self._put_line(line)
                dropping = False
            if len(rest) > MAX_FRAME_BYTES:
                if not dropping:
                    self._put(TOO_LONG)
                rest, dropping = b"", True
        if not dropping:
            self._put_line(rest)  # the last line has no end
        self._put(None)

    def _put_line(self, line: bytes) -> None:
        if len(line) > MAX_FRAME_BYTES:
            self._put(TOO_LONG)
        elif line.strip():
            self._put(line.decode("utf-8", "replace"))

    def _put(self, line: str | None) -> None:
        if line is not None:
            self._room.acquire()
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            return  # the loop is closed


def _lacks_id(line: str) -> bool:
    """Return whether a line is a request whose id is neither a whole number nor text, so that it is answered here."""
    try:
        found = from_json(line)
    except ValueError:
        return False  # not JSON, which the SDK reports
    if not isinstance(found, dict) or not {"id", "method"} <= found.keys():
        return False
    return isinstance(found["id"], bool) or not isinstance(found["id"], (int, str))


class Frames:
    """Gives the valid messages to the SDK, and answers invalid lines, which the SDK would not."""

    def __init__(self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]) -> None:
        self._read, self._write = read, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._read, name)

    def __aiter__(self) -> Frames:
        return self

    async def __anext__(self) -> SessionMessage:
        while not isinstance(found := await anext(self._read), SessionMessage):
            is_json = isinstance(found, ValidationError) and found.errors()[0]["type"] != "json_invalid"
            said = JSONRPCError(jsonrpc="2.0", id=None, error=NO_MESSAGE if is_json else NO_FRAME)
            await self._write.send(SessionMessage(said))
        return found


@contextmanager
def own_streams() -> Iterator[tuple[int, int]]:
    """Yield file descriptors of standard input and output for messages only; other output goes elsewhere."""
    # A library that prints would break a message.
    incoming, outgoing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield incoming, outgoing
    finally:
        # `incoming` stays open: a thread may wait in it.
        os.dup2(outgoing, 1)
        os.close(outgoing)


async def serve_standard_streams(server: AssistantServer) -> None:
    """Serve until the client closes standard input."""
    with own_streams() as (incoming, outgoing), os.fdopen(outgoing, "w", encoding="utf-8", closefd=False) as frames:
        lines = cast("Any", Lines(incoming))
        async with stdio_server(stdin=lines, stdout=anyio.wrap_file(frames)) as (read, write):
            lowlevel = server._lowlevel_server  # noqa: SLF001 - as its own `run_stdio_async`
            await lowlevel.run(cast("Any", Frames(read, write)), write, lowlevel.create_initialization_options())
