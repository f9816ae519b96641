"""Whatever is killed while files come in, and wherever: what is stored is whole, and the next run completes it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
import pytest

from semlex import SyncRetriever
from semlex.cli.exit_codes import DATABASE
from semlex.store.indexes import wanted
from semlex.store.postgres.embedded.server import EmbeddedServer
from tests.support.clients import killed_client
from tests.support.clients.killed_client import ALL, COMMANDS, GATHERING, POINTS, VICTIMS, Order
from tests.support.embedded_servers import postmaster_pid
from tests.support.shell import Shell
from tests.support.stirred_folder import StirredFolder
from tests.support.whole_collection import answers, check_searches, check_whole, indexes_of, is_made, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from semlex.embedding.static import StaticEmbedder

logger = logging.getLogger(__name__)

# Processes are made out of one that has imported everything, and begin at once.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", killed_client.__name__])

KEPT, NEW = "kept", "new"
CUT = {"chunk_tokens": 32, "overlap_tokens": 0}
OPTIONS = ("--model", "static", "--chunk-tokens", "32", "--overlap-tokens", "0", "--quiet")
INDEX_FROM_ROWS = 40
WAIT = 60.0  # seconds: a bound for a machine that is busy
STIRS = 20  # of a watched folder at most: it may be looked at in the middle of a change
ASKING = "kills"  # name of the connection that asks for backends
FULL = 2_000  # kills of `--full`
LONGEST = 0.7  # seconds in which most runs end


@dataclass(frozen=True)
class Kill:
    """What is killed.

    Attributes:
        command: What runs: one of `COMMANDS`.
        point: Where it is killed; None: at any moment.
        victim: One of `VICTIMS`.
    """

    command: str
    point: str | None
    victim: str


def kills(full: bool, chance: random.Random) -> list[Kill]:
    """A client at every point and a few kills more; with `--full` every command and victim everywhere, often."""
    if not full:
        named = [Kill(point.commands[0], name, "client") for name, point in POINTS.items()]
        point = chance.choice([name for name in POINTS if name != GATHERING])
        others = [Kill(chance.choice(COMMANDS), None, victim) for victim in VICTIMS]
        return [*named, Kill("sync", point, "backend"), *others]
    everywhere = [
        Kill(command, name, victim)
        for name, point in POINTS.items()
        for command in point.commands
        for victim in VICTIMS
    ]
    anywhere = [Kill(command, None, victim) for command in COMMANDS for victim in VICTIMS]
    found: list[Kill] = []
    while len(found) < FULL:
        found += [*chance.sample(everywhere, len(everywhere)), *chance.choices(anywhere, k=len(everywhere))]
    return found[:FULL]


def is_dead(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has collected it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def backends(connection: psycopg.Connection) -> list[int]:
    """The processes of a server that serve others; one of an earlier `_asking` may be ending."""
    statement = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> %s"
    return [pid for (pid,) in connection.execute(statement, [ASKING]).fetchall()]


@pytest.fixture
def server(make_server_folder: Callable[[Path], Path], open_folder: Path) -> Iterator[EmbeddedServer]:
    """A server that may be killed, with the settings that it has for everyone."""
    with EmbeddedServer(make_server_folder(open_folder / "server")) as server:
        yield server


class Client:
    """A run of `semlex` in a process of its own.

    Args:
        order: What it does.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        order.said.write_bytes(b"")
        self._process = PROCESSES.Process(target=killed_client.run, args=(order,))
        self._process.start()

    @property
    def said(self) -> str:
        """All that it has written."""
        return self._order.said.read_text(encoding="utf-8")

    def has_come_to(self, mark: str) -> bool:
        """Waits until it has said so, has ended, or the time is over; returns whether it has."""
        return self.waits(lambda words: mark in words)

    def waits(self, is_there: Callable[[list[str]], bool]) -> bool:
        """Waits until its words are such, it has ended, or the time is over; returns whether they are."""
        until = time.monotonic() + WAIT
        while not is_there(self.said.split()) and time.monotonic() < until and self._process.is_alive():
            time.sleep(0.005)
        return is_there(self.said.split())

    @property
    def victim(self) -> int:
        """The process that it kills at the point."""
        return int(self.said.split("reached ")[1].split()[0])

    def kill(self) -> None:
        """Kills it, wherever it is."""
        self._process.kill()

    def ended(self, seconds: float = WAIT) -> int | None:
        """Its exit code; None where it does not end in time."""
        self._process.join(seconds)
        return self._process.exitcode

    def close(self) -> None:
        """Ends it."""
        self.kill()
        self.ended()
        self._process.close()


class KilledRuns:
    """A folder and a collection of it, which go through many kills.

    Args:
        server: What the collection is on.
        base: Where the folder is made.
        model: The collection's.
        chance: What decides.
    """

    def __init__(self, server: EmbeddedServer, base: Path, model: StaticEmbedder, chance: random.Random) -> None:
        self._server, self._model, self._chance = server, model, chance
        self._folder = StirredFolder(base / "docs", chance)
        self._shell = Shell(server.url, base)

    def kill(self, kill: Kill) -> int | None:
        """Changes the folder, has the run over it killed, lets it be done again, and compares with a new index.

        Returns:
            The exit code of the run: 0 where it had ended before, or has survived its server.
        """
        self._prepare(kill)
        before = set(self._log())
        code = self._killed(kill)
        entries = self._check_log(kill, before, code)
        between = self._rows(KEPT) if kill.command != "watch" and entries and all(entries.values()) else None
        self._check()
        self._run_again(kill.command)
        self._check()
        assert entries.items() <= self._log().items()
        self._compare(between)
        return code

    # --- the kill -----------------------------------------------------------------------------------------------------

    def _prepare(self, kill: Kill) -> None:
        collection = None if kill.point is None else POINTS[kill.point].collection
        if collection == "new" or (collection is None and self._chance.random() < 0.2):
            self._drop(KEPT)
        elif collection == "known" or kill.command == "watch":
            self._run_again(kill.command)
        if kill.command != "watch":
            self._folder.stir(deletes=kill.command != "index")

    def _killed(self, kill: Kill) -> int | None:
        """Has a run killed, or its server; returns its exit code."""
        client = Client(self._order(kill))
        try:
            reach = self._kill_at_any_moment if kill.point is None else self._point_reached
            victim = reach(kill, client)
            if kill.victim != "client":
                # What still lives would be found in good health, and nobody would start it again.
                self._wait_until(lambda: victim is None or is_dead(victim))
                time.sleep(self._chance.uniform(0, 0.3))
                self._start_server()
            if kill.command == "watch" and client.ended(self._chance.uniform(0, 0.5)) is None:
                client.kill()
            code = client.ended()
            assert code in (-signal.SIGKILL, 0, DATABASE), (code, client.said)
            assert "Traceback" not in client.said, client.said
        finally:
            client.close()
        self._wait_for_backends()
        return code

    def _order(self, kill: Kill) -> Order:
        command, *rest = ["sync", "--watch"] if kill.command == "watch" else [kill.command]
        point = None if kill.point is None else POINTS[kill.point]
        batch = self._chance.choice((1, 10, ALL)) if point is None or point.batch is None else point.batch
        limits = {
            "semlex.ingest.pipeline": {"BATCH_CHUNKS": batch},
            "semlex.ingest.sync.watch": {"GATHER_MS": 100},
            "semlex.store.indexes.wanted": {"INDEX_FROM_ROWS": INDEX_FROM_ROWS},
            "semlex.store.write.deletes": {"BATCH_DOCUMENTS": 2},
        }
        arguments = [command, str(self._folder.root), "-c", KEPT, *OPTIONS, *rest]
        times = 1 if point is None else self._chance.randint(1, point.times)
        said = self._shell.folder / "said"
        return Order(arguments, self._server.url, self._server.folder, said, kill.point, times, kill.victim, limits)

    def _point_reached(self, kill: Kill, client: Client) -> int:
        """Waits for the point; returns the victim."""
        if kill.command == "watch":
            assert client.has_come_to("watching"), client.said
            for _ in range(STIRS):
                looks = client.said.split().count("watching")
                self._folder.stir()
                # Where the folder was looked at in the middle of that, there may have been nothing to move.
                client.waits(lambda words, looks=looks: "reached" in words or words.count("watching") > looks)
                if "reached" in client.said.split():
                    break
        assert client.has_come_to("reached"), f"it never came there: {client.said}"
        return client.victim

    def _kill_at_any_moment(self, kill: Kill, client: Client) -> int | None:
        """Kills; returns the victim, None where the run had ended before it had one."""
        assert client.has_come_to("watching" if kill.command == "watch" else "begun"), client.said
        until = time.monotonic() + self._chance.uniform(0, LONGEST)
        while time.monotonic() < until:
            if kill.command == "watch":
                self._folder.stir()
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))
        if kill.victim == "client":
            client.kill()
        elif kill.victim == "server":
            victim = postmaster_pid(self._server.folder)
            os.kill(victim, signal.SIGKILL)
            return victim
        else:
            with closing(self._asking()) as connection:
                while client.ended(0) is None:
                    for backend in backends(connection):
                        with suppress(ProcessLookupError):  # it has ended by itself
                            os.kill(backend, signal.SIGKILL)
                            return backend
                    time.sleep(0.005)
        return None

    # --- the server ---------------------------------------------------------------------------------------------------

    def _start_server(self) -> None:
        """Waits until the server has recovered, after it was started where it is gone."""
        with EmbeddedServer(self._server.folder):
            pass

    def _asking(self) -> psycopg.Connection:
        return psycopg.connect(self._server.url, autocommit=True, application_name=ASKING)

    def _wait_for_backends(self) -> None:
        """What a killed run has sent is done or undone when its backends have ended."""
        with closing(self._asking()) as connection:
            self._wait_until(lambda: not backends(connection))

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.005)

    # --- what is stored -----------------------------------------------------------------------------------------------

    def _log(self) -> dict[Any, bool]:
        """Runs by their beginning: key -> whether it says that it has ended."""
        with psycopg.connect(self._server.url) as connection:
            if not is_made(connection, KEPT):
                return {}
            statement = f"SELECT run_id, finished_at IS NOT NULL FROM semlex.{KEPT}_ingestion_log ORDER BY started_at"  # noqa: S608
            return dict(connection.execute(statement).fetchall())

    def _check_log(self, kill: Kill, before: set[Any], code: int | None) -> dict[Any, bool]:
        """A run that was killed has no end, one that says that all went well has; returns the new entries."""
        entries = {key: finished for key, finished in self._log().items() if key not in before}
        assert all(list(entries.values())[:-1])
        if kill.command != "watch":
            assert len(entries) <= 1
        if kill.point is not None and kill.victim == "client":
            assert list(entries.values())[-1] == (kill.point == GATHERING)
        if code == 0:
            assert list(entries.values()) == [True]
        return entries

    def _check(self) -> None:
        """Everything is whole, and searches work."""
        with psycopg.connect(self._server.url) as connection:
            if not is_made(connection, KEPT):
                return
        check_whole(self._server.url, KEPT, self._folder, self._model)
        with self._opened(KEPT) as store:
            check_searches(self._server.url, KEPT, store, self._folder, self._chance)

    def _run_again(self, command: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wanted, "INDEX_FROM_ROWS", INDEX_FROM_ROWS)
            if command != "watch":
                self._shell(command, str(self._folder.root), "-c", KEPT, *OPTIONS)
                return
            with self._opened(KEPT) as store, closing(store.watch(self._folder.root, **CUT)) as reports:
                next(reports)

    def _compare(self, between: dict[str, Any] | None) -> None:
        """Nothing is lost, nothing is there twice: everything is as in a new collection."""
        self._shell("index", str(self._folder.root), "-c", NEW, *OPTIONS)
        rows = self._rows(NEW)
        assert self._rows(KEPT) == rows
        # A run that says in the log that it has ended has done all of it.
        assert between in (None, rows)
        with psycopg.connect(self._server.url) as connection:
            made = indexes_of(connection, KEPT)
            assert all(made.values())
            assert made.keys() >= {"metadata", "source_name", "hnsw_1"}
        with self._opened(KEPT) as kept, self._opened(NEW) as new:
            assert answers(kept) == answers(new)
        self._drop(NEW)

    def _rows(self, collection: str) -> dict[str, Any]:
        with psycopg.connect(self._server.url) as connection:
            return rows_of(connection, collection)

    def _opened(self, collection: str) -> SyncRetriever:
        return SyncRetriever(self._server.url, "static", use_reranking=False, collection=collection)

    def _drop(self, collection: str) -> None:
        with psycopg.connect(self._server.url) as connection:
            if not is_made(connection, collection):
                return
        with self._opened(collection) as store:
            store.drop_collection()


@pytest.mark.timeout(6 * 3600)
def test_a_kill_loses_and_doubles_nothing(
    server: EmbeddedServer, tmp_path: Path, static_model: StaticEmbedder, full: bool
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    runs = KilledRuns(server, tmp_path, static_model, chance)
    for number, kill in enumerate(kills(full, chance)):
        try:
            code = runs.kill(kill)
        except BaseException as error:
            error.add_note(f"seed {seed}, kill {number}: {kill}")
            raise
        logger.info("seed %d, kill %d: %s, exit code %s", seed, number, kill, code)
