"""Servers and networks that fail while clients write and search: acknowledged writes stay, clients reconnect."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.errors import EmbeddedServerError, SearchTimeoutError, SemlexError
from semlex.proof.check import Fault, check_stored, expect
from semlex.proof.children import is_alive, until
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import WordDirections, documents, draw_text
from semlex.proof.traffic import PAUSE_SECONDS, Traffic, begun, eventually, in_time
from semlex.proof.transaction_pooler import TransactionPooler, open_server
from semlex.store.postgres.database import DEADLINE_GRACE_SECONDS
from semlex.store.postgres.embedded.folder import find_installations, run_as, server_account
from semlex.store.postgres.embedded.process import read_postmaster
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving import (
    backends,
    connected,
    end_backends,
    has_busy_backends,
    promote,
    set_server,
    waits_for_standby,
)

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator
    from pathlib import Path

    from semlex.retriever.collection import Collection
    from semlex.types.results import SearchResults

WRITERS, SEARCHERS = 3, 2


class Interrupted(Scenario):
    """Interrupt the server or the network repeatedly while clients write, search and merge index segments."""

    _server: EmbeddedServer  # that has the stored data
    _application = ""  # name of the clients in this round

    @property
    def address(self) -> str:
        """Address that clients connect to."""
        return self._server.url

    @abstractmethod
    async def interrupt(self, traffic: Traffic) -> None:
        """Interrupt the server or the network, and repair it."""

    def attempt(self) -> Tries:
        asyncio.run(self._round())
        self.check_texts(self._server.url)
        return Tries(kills=1)

    async def _round(self) -> None:
        """Interrupt the server or the network during traffic, then check the stored data."""
        self._application = self.site.application(self.name)
        async with self.site.async_client(self._application, self.address) as client:
            collection = client.collection(self.names.collection)
            await begun(collection, self.texts)
            async with Traffic(collection, self.texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS, optimizer=True)
                await traffic.progress(self.chance.randint(1, 4))
                await self.interrupt(traffic)
                await traffic.stop()
            self.notes["calls that failed meanwhile"] += len(traffic.failed)
            states = traffic.states()
            self.texts = await asyncio.to_thread(check_stored, self._server.url, self.names, states, WordDirections())
            await _comes_back(collection)


async def _comes_back(collection: Collection) -> None:
    """Check that the same client can search again."""
    async with in_time("a search after an interruption"):
        while True:
            try:
                await collection.search("key vault", 5)
            except SemlexError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return


WAYS = ("server killed", "server stopped at once", "backend killed")


class Crashes(Interrupted):
    """Crash a separate server repeatedly."""

    name = "crash"
    what = "the server killed, stopped at once, or one backend killed, while clients write, search and merge segments"
    own_server = True
    weight = 2.0

    def begin(self) -> None:
        self._server = self.site.server("crashing")

    async def interrupt(self, traffic: Traffic) -> None:
        del traffic
        way = self.chance.choice(WAYS)
        await asyncio.to_thread(self._crash, way)
        await asyncio.to_thread(start, self._server.folder)
        self.notes[way] += 1

    def _crash(self, way: str) -> None:
        if way == "backend killed":
            with connected(self._server.url) as connection:
                victim = self.chance.choice(backends(connection, self._application))
            os.kill(victim, signal.SIGKILL)
            until(lambda: not is_alive(victim), "the end of a killed backend")
        else:
            kill_server(self._server.folder, signal.SIGKILL if way == "server killed" else signal.SIGQUIT)


def kill_server(folder: Path, number: signal.Signals) -> None:
    """Send a signal to the server of a folder, and wait until it is gone."""
    postmaster = read_postmaster(folder)
    if postmaster is not None and is_alive(postmaster.pid):
        os.kill(postmaster.pid, number)
        until(lambda: not is_alive(postmaster.pid), "the end of a killed server")


def start(folder: Path) -> None:
    """Start the server of a folder if it is gone, and wait until it has recovered."""
    with EmbeddedServer(folder):
        pass


class Failovers(Interrupted):
    """Kill a primary and promote its standby, for which commits wait; after each failover, make a new standby."""

    name = "failover"
    what = (
        "the primary killed and its standby promoted while clients write, search and merge segments; commits wait for "
        "the standby"
    )
    own_server = True
    _standby: EmbeddedServer | None = None

    def begin(self) -> None:
        self._server = self.site.new_server("primary")
        self.opened.callback(self._close_servers)

    @property
    def address(self) -> str:
        assert self._standby is not None  # noqa: S101 - made before each round
        return address_of_both(self._standby.url, self._server.url, target_session_attrs="read-write")

    async def _round(self) -> None:
        await asyncio.to_thread(self._make_standby)
        await super()._round()

    def _make_standby(self) -> None:
        folder = self.site.new_folder("standby")
        copy_for_standby(self._server, folder)
        self._standby = EmbeddedServer(folder, major=self._server.major)
        self._standby.start()
        with connected(self._server.url) as connection:
            set_server(connection, {"synchronous_standby_names": "*"})
            until(lambda: waits_for_standby(connection), "commits that wait for the standby")

    async def interrupt(self, traffic: Traffic) -> None:
        await asyncio.to_thread(self._fail_over)
        await traffic.progress()

    def _fail_over(self) -> None:
        standby = self._standby
        assert standby is not None  # noqa: S101 - made before each round
        kill_server(self._server.folder, self.chance.choice((signal.SIGKILL, signal.SIGQUIT)))
        with connected(standby.url) as connection:
            expect(promote(connection), "wrong", "the standby was not promoted")
        self._server.close()
        # Its next start, in a place that no client knows, removes what it has left in shared memory.
        former = self._server.folder.rename(self.site.new_folder("former"))
        start(former)
        shutil.rmtree(former, ignore_errors=True)
        self._server, self._standby = standby, None

    def _close_servers(self) -> None:
        for server in (self._standby, self._server):
            if server is not None:
                server.close()


def copy_for_standby(primary: EmbeddedServer, folder: Path) -> None:
    """Make a standby's folder: a copy of the primary's data, with the primary's address in its settings."""
    account = server_account(primary.folder / "data")
    folder.mkdir(mode=0o711)
    (folder / "start.lock").touch()  # by which the embedded server knows a folder of its own
    (folder / "data").mkdir(mode=0o700)
    if account is not None:
        shutil.chown(folder / "data", account.uid, account.gid)
    program = find_installations(account)[primary.major] / "pg_basebackup"
    options = ["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--wal-method=stream"]
    made = run_as(account, [str(program), f"--dbname={primary.url}", "--pgdata=data", *options], folder=folder)
    if made.returncode != 0:
        raise EmbeddedServerError(f"the standby in {folder} was not made: {made.stderr}")


def address_of_both(first: str, second: str, **options: str) -> str:
    """Return the address of two servers, which a client tries in this order."""
    parts = [conninfo_to_dict(one) for one in (first, second)]
    hosts = {name: ",".join(str(one[name]) for one in parts) for name in ("host", "port")}
    return make_conninfo(first, **hosts, **options)


MIB = 1024**2
DISK_MIB = 320
BLOCK_BYTES = 64 * 1024
# The write-ahead log must fit with the data.
SMALL = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
NEEDS = "needs a file system in memory, which only root on Linux can mount"


class FullDisks(Interrupted):
    """Fill and empty the disk of a server: a small file system in memory."""

    name = "disk-full"
    what = "the server's disk filled, until writes are refused, and emptied, while clients write, search and merge"
    own_server = True
    needs = "" if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount") else NEEDS

    def begin(self) -> None:
        self._disk = self.site.new_folder("disk")
        self._disk.mkdir(mode=0o711)
        options = f"size={DISK_MIB}m,mode=0711"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._disk)], check=True)
        self.opened.callback(subprocess.run, ["umount", str(self._disk)], check=False)
        self._server = self.site.new_server("postgres", self._disk)
        self.opened.callback(self._server.close)
        with connected(self._server.url) as connection:
            set_server(connection, SMALL)

    async def interrupt(self, traffic: Traffic) -> None:
        ballast = self._disk / "ballast"
        try:
            await eventually(lambda: self._fill(ballast) and traffic.is_refused(), "a write that the disk refuses")
        finally:
            ballast.unlink(missing_ok=True)
        await asyncio.to_thread(start, self._server.folder)

    @staticmethod
    def _fill(ballast: os.PathLike[str]) -> bool:
        with suppress(OSError), open(ballast, "ab", buffering=0) as file:  # noqa: PTH123 - it is appended to
            while file.write(bytes(BLOCK_BYTES)):
                pass
        return True


POOL_SIZE = 4


class PoolerRestarts(Interrupted):
    """Restart a pooler in transaction mode at the same address."""

    name = "pooler"
    what = "a pooler in transaction mode restarted while clients write, search and merge segments"
    own_server = True

    def begin(self) -> None:
        self._server = self.site.server("pooled")

    @property
    def address(self) -> str:
        return self._pooler.address

    async def _round(self) -> None:
        self._pooler = await TransactionPooler(self._server.url, POOL_SIZE).__aenter__()
        try:
            await super()._round()
        finally:
            await self._pooler.__aexit__()

    async def interrupt(self, traffic: Traffic) -> None:
        port = int(str(conninfo_to_dict(self._pooler.address)["port"]))
        await self._pooler.__aexit__()
        # What was on its way is done or undone.
        with connected(self._server.url) as connection:
            await eventually(lambda: not has_busy_backends(connection), "the end of broken transactions")
        self._pooler = await TransactionPooler(self._server.url, POOL_SIZE, port=port).__aenter__()
        await traffic.progress()


ROUNDS = 8


class EndedBackends(Scenario):
    """End one or two backends each time every client has made another call."""

    name = "backends"
    what = "one or two of a client's backends ended repeatedly while it writes and searches; no call may fail"

    def attempt(self) -> Tries:
        ended = asyncio.run(self._round())
        self.check_texts()
        return Tries(ROUNDS, ended)

    async def _round(self) -> int:
        application = self.site.application(self.name)
        ended = 0
        async with self.site.async_client(application) as client:
            collection = client.collection(self.names.collection)
            await begun(collection, self.texts)
            async with Traffic(collection, self.texts, self.chance) as traffic:
                traffic.start(WRITERS, SEARCHERS)
                for _ in range(ROUNDS):
                    await traffic.progress()
                    most = self.chance.choice((1, 1, 2))
                    ended += await asyncio.to_thread(end_some, self.site.url, application, most, self.chance)
                await traffic.progress()
                await traffic.stop()
            if traffic.failed:
                raise Fault("wrong", f"a call failed although only a backend was ended: {traffic.failed[0]}")
        return ended


def end_some(url: str, application: str, most: int, chance: random.Random) -> int:
    """End up to `most` backends of a client; return how many were ended."""
    with connected(url) as connection:
        found = backends(connection, application)
        return end_backends(connection, chance.sample(found, min(len(found), most)))


# A network that swallows everything: calls return at their deadline, and the next search works.
CLIENTS = 6  # that wait at the same time
DEADLINES = (0.1, 0.2, 0.4)
# How much later than its deadline a call may come back: the time that semlex gives the server, and a busy machine.
LATE_SECONDS = DEADLINE_GRACE_SECONDS + 2.0
TEXTS = 20
LATEST = "latest answer after the deadline, in ms"


class Proxy:
    """Forwards bytes between clients and a server, or holds them back while `hearing` is not set; nothing is closed."""

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
    """Let several clients search, each through a proxy that stops forwarding at some point of the search."""

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
                expect(is_same, "wrong", "a search after a silence finds other chunks than before")
            finally:
                proxy.hearing.set()  # nothing is closed in silence


def _found(results: SearchResults) -> list[tuple[str, float | None]]:
    return [(hit.id, hit.fused_score) for hit in results]
