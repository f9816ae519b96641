"""A connection for HTTP/1.1 that costs next to nothing: what is measured is the server, not a library of clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


class Answer(NamedTuple):
    """What a server has answered.

    Attributes:
        status: Of HTTP.
        headers: By their names in small letters.
        body: Whole.
    """

    status: int
    headers: dict[str, str]
    body: bytes


class BareConnection:
    """One connection that stays open, for one request after the other.

    Args:
        reader: Of the connection.
        writer: Of the connection.
        host: Host and port, as the header says.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader, self._writer, self._host = reader, writer, host

    @classmethod
    async def open(cls, address: str) -> Self:
        """Connects to the host of an address."""
        parts = urlsplit(address)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        return cls(reader, writer, parts.netloc)

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Sends JSON and reads the answer."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._host}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        self._writer.write("\r\n".join(lines).encode() + body)
        first, *rest = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        if found.get("transfer-encoding") == "chunked":
            read = await self._chunks()
        else:
            read = await self._reader.readexactly(int(found.get("content-length", "0")))
        return Answer(int(first.split()[1]), found, read)

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)
