"""A network that swallows everything: calls come back when their deadline is over, and the next search works."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import SearchTimeoutError
from semlex.proof.check import Fault, expect
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import documents, draw_text
from semlex.proof.transaction_pooler import open_server
from semlex.store.postgres.database import DEADLINE_GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from semlex.types.results import SearchResults

CLIENTS = 6  # that wait at the same time
DEADLINES = (0.1, 0.2, 0.4)
# How much later than its deadline a call may come back: the time that semlex gives the server, and a busy machine.
LATE_SECONDS = DEADLINE_GRACE_SECONDS + 2.0
TEXTS = 20
LATEST = "latest in ms after the deadline"


class Proxy:
    """Forwards bytes to a server until it has to discard them; connections stay open."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.hearing = asyncio.Event()
        self.hearing.set()
        self.swallowed = 0  # messages that are kept while it does not hear
        self.tasks: set[asyncio.Task[None]] = set()
        self.writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client with the server."""
        self.writers.append(writer)
        opened = await open_server(self._url)
        self.writers.append(opened[1])
        for source, target in ((reader, opened[1]), (opened[0], writer)):
            task = asyncio.ensure_future(self._forward(source, target))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                self.swallowed += not self.hearing.is_set()
                await self.hearing.wait()
                target.write(data)
                await target.drain()
        target.close()

    async def close(self) -> None:
        """End all connections."""
        self.hearing.set()
        # Before the first wait, which another client's fault may cancel.
        for task in list(self.tasks):
            task.cancel()
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Yield a proxy of a server, and the address of its database through it."""
    proxy = Proxy(url)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    host = str(conninfo_to_dict(url).get("host") or "")
    # A server's certificate is checked against the name of its host, which stays.
    where = {"host": host, "hostaddr": "127.0.0.1"} if host and not host.startswith("/") else {"host": "127.0.0.1"}
    try:
        yield proxy, make_conninfo(url, **where, port=port)
    finally:
        listener.close()
        await proxy.close()
        await listener.wait_closed()


class BlackHole(Scenario):
    """Searches of several clients, each behind a proxy that goes silent at some moment of the search."""

    name = "black-hole"
    what = (
        "a network that goes silent in the middle of a search with a deadline: the call comes back, the next one works"
    )

    def begin(self) -> None:
        with self.site.client(self.site.application(self.name)) as client:
            self.texts = {f"d{n}": draw_text(self.chance) for n in range(TEXTS)}
            client.collection(self.names.collection).add_documents(documents(self.texts))

    def attempt(self) -> Tries:
        asyncio.run(self._round())
        self.check_texts()
        return Tries(CLIENTS)

    async def _round(self) -> None:
        await asyncio.gather(*(self._silence() for _ in range(CLIENTS)))

    async def _silence(self) -> None:
        async with (
            proxied(self.site.url) as (proxy, url),
            self.site.async_client(self.site.application(self.name), url, max_connections=2) as client,
        ):
            collection = client.collection(self.names.collection)
            try:
                expected = _found(await collection.search("key vault", 5))
                deadline, before = self.chance.choice(DEADLINES), self.chance.choice((0.0, 0.0, 0.002, 0.01))
                loop = asyncio.get_running_loop()
                began = time.monotonic()
                if before:
                    loop.call_later(before, proxy.hearing.clear)
                else:
                    proxy.hearing.clear()
                try:
                    async with asyncio.timeout(deadline + LATE_SECONDS):
                        await collection.search(draw_text(self.chance, 3), 5, deadline=deadline)
                    self.notes["answered before the silence"] += 1
                except SearchTimeoutError:
                    late = round(1000 * (time.monotonic() - began - deadline))
                    self.notes[LATEST] = max(self.notes[LATEST], late)
                except TimeoutError:
                    raise Fault("hung", f"a search had not returned {LATE_SECONDS:g} s after its deadline") from None
                await asyncio.sleep(before)
                proxy.hearing.set()
                is_same = _found(await collection.search("key vault", 5)) == expected
                expect(is_same, "wrong", "a search after a silence finds something else than before")
            finally:
                proxy.hearing.set()  # nothing is closed in silence


def _found(results: SearchResults) -> list[tuple[str, float | None]]:
    return [(hit.id, hit.fused_score) for hit in results]
