"""Whatever is killed while files come in, and wherever: what is stored is whole, and the next run completes it."""

import logging
import random
import signal
from contextlib import closing
from dataclasses import dataclass

import psycopg
import pytest

from semlex.cli.exit_codes import DATABASE
from semlex.proof.children import is_alive
from semlex.proof.folders import StirredFolder, check_files
from semlex.store.indexes import choice
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.schema.names import Names
from tests.support.clients import killed_client
from tests.support.clients.killed_client import ALL, COMMANDS, GATHERING, INDEXING, POINTS, VICTIMS, Order, Point
from tests.support.databases import execute
from tests.support.folders import new_open_folder
from tests.support.programs import Program
from tests.support.retrievers import sync_opened
from tests.support.shell import Shell
from tests.support.waiting import until
from tests.support.whole_collection import answers, check_searches, indexes_of, is_made, rows_of

logger = logging.getLogger(__name__)

KEPT, NEW = "kept", "new"
CUT = {"chunk_tokens": 32, "overlap_tokens": 0}
OPTIONS = ("--model", "static", "--chunk-tokens", "32", "--overlap-tokens", "0", "--quiet")
INDEX_FROM_ROWS = 40
STIRS = 20  # of a watched folder at most: it may be looked at in the middle of a change
ASKING = "kills"  # name of connections that ask for backends; one that asked before may be ending
ANY = Point(None, batch=1, times=30)  # each run that writes a batch for each file has so many moments in transactions


@dataclass(frozen=True)
class Kill:
    """What is killed: a victim of a command, at a point or, if that is None, at any moment of a transaction."""

    command: str
    point: str | None
    victim: str

    def __str__(self):
        return f"{self.victim} of {self.command}, {self.point or 'anywhere'}"


EVERYWHERE = [
    Kill(command, name, victim) for name, point in POINTS.items() for command in point.commands for victim in VICTIMS
]
ANYWHERE = [Kill(command, None, victim) for command in COMMANDS for victim in VICTIMS]
# A client at every point and a few more; with `--full` every command and victim everywhere, often.
KILLS = [
    *(Kill(point.commands[0], name, "client") for name, point in POINTS.items()),
    Kill("sync", "a batch of another run written, not committed", "backend"),
    Kill("index", None, "client"),
    Kill("sync", None, "server"),
    Kill("watch", None, "backend"),
]


class KilledRuns:
    """A folder and a collection of it, which go through many kills; `chance` decides."""

    def __init__(self, server, base, model, chance):
        self._server, self._model, self.chance = server, model, chance
        self._folder = StirredFolder(base / "docs", chance)
        self._shell = Shell(server.url, base)

    def kill(self, kill):
        """Changes the folder, has the run over it killed, lets it be done again, and compares with a new index.

        Returns the exit code of the run: 0 where it had ended before, or has survived its server.
        """
        self._prepare(kill)
        before = set(self._log())
        code = self._killed(kill)
        entries = self._check_log(kill, before, code)
        between = self._read(rows_of, KEPT) if kill.command != "watch" and entries and all(entries.values()) else None
        self._check()
        self._run_again(kill.command)
        self._check()
        assert entries.items() <= self._log().items()
        self._compare(between)
        return code

    def _prepare(self, kill):
        collection = POINTS.get(kill.point, ANY).collection
        if collection == "new" or (collection is None and self.chance.random() < 0.2):
            self._drop(KEPT)
        elif collection == "known" or kill.command == "watch":
            self._run_again(kill.command)
        if kill.command != "watch":
            self._folder.stir(deletes=kill.command != "index")

    def _killed(self, kill):
        """Has a run killed, or its server; returns its exit code."""
        with Program(killed_client.run, self._order(kill)) as client:
            victim = self._point_reached(kill, client)
            if kill.victim != "client":
                # What still lives would be found in good health, and nobody would start it again.
                until(lambda: not is_alive(victim))
                with EmbeddedServer(self._server.folder):  # started where it is gone, and recovered
                    pass
            if kill.command == "watch":
                looks = client.said.split("reached")[0].split().count("watching")
                client.waits(lambda words: words.count("watching") > looks)  # it has gone on
                client.kill()
            code = client.ended()
            assert code in (-signal.SIGKILL, 0, DATABASE), (code, client.said)
            assert "Traceback" not in client.said, client.said
        # What a killed run has sent is done or undone when its backends have ended.
        statement = "SELECT FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> %s"
        with closing(psycopg.connect(self._server.url, autocommit=True, application_name=ASKING)) as connection:
            until(lambda: not connection.execute(statement, [ASKING]).fetchall())
        return code

    def _order(self, kill):
        command, *rest = ["sync", "--watch"] if kill.command == "watch" else [kill.command]
        point = POINTS.get(kill.point, ANY)
        limits = {
            "semlex.ingest.run": {"BATCH_CHUNKS": point.batch or self.chance.choice((1, 10, ALL))},
            "semlex.ingest.watch": {"GATHER_MS": 100},
            "semlex.store.indexes.background": {"QUIET_SECONDS": 3600},
            "semlex.store.indexes.choice": {"INDEX_FROM_ROWS": INDEX_FROM_ROWS},
            "semlex.store.write.deletes": {"BATCH_DOCUMENTS": 2},
        }
        arguments = [command, str(self._folder.root), "-c", KEPT, *OPTIONS, *rest]
        times = self.chance.randint(1, point.times)
        return Order(arguments, self._server.url, self._server.folder, kill.point, times, kill.victim, limits=limits)

    def _point_reached(self, kill, client):
        """Waits for the point; returns the victim."""
        if kill.command == "watch":
            client.until_said("watching")
            for _ in range(STIRS):
                looks = client.said.split().count("watching")
                self._folder.stir()
                # Where the folder was looked at in the middle of that, there may have been nothing to move.
                client.waits(lambda words, looks=looks: "reached" in words or words.count("watching") > looks)
                if "reached" in client.said.split():
                    break
        client.until_said("reached")
        return int(client.said.split("reached ")[1].split()[0])

    def _log(self):
        """Runs by their beginning: key -> whether it says that it has ended."""
        if not self._read(is_made, KEPT):
            return {}
        statement = f"SELECT run_id, finished_at IS NOT NULL FROM semlex.{KEPT}_ingestion_log ORDER BY started_at"
        return dict(execute(self._server.url, statement))

    def _check_log(self, kill, before, code):
        """A run that was killed has no end, one that says that all went well has; returns the new entries."""
        entries = {key: finished for key, finished in self._log().items() if key not in before}
        assert all(list(entries.values())[:-1])
        if kill.command != "watch":
            assert len(entries) <= 1
        if kill.point is not None and kill.victim == "client":
            assert list(entries.values())[-1] == (kill.point in (GATHERING, INDEXING))
        if code == 0:
            assert list(entries.values()) == [True]
        return entries

    def _check(self):
        """Everything is whole, and searches work."""
        if not self._read(is_made, KEPT):
            return
        check_files(self._server.url, Names("semlex", KEPT), self._folder, self._model, complete=False)
        with self._opened(KEPT) as store:
            check_searches(self._server.url, KEPT, store, self._folder, self.chance)

    def _run_again(self, command):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(choice, "INDEX_FROM_ROWS", INDEX_FROM_ROWS)
            if command != "watch":
                self._shell(command, str(self._folder.root), "-c", KEPT, *OPTIONS)
                return
            with self._opened(KEPT) as store, closing(store.watch(self._folder.root, **CUT)) as reports:
                next(reports)

    def _compare(self, between):
        """Nothing is lost, nothing is there twice: everything is as in a new collection."""
        self._shell("index", str(self._folder.root), "-c", NEW, *OPTIONS)
        rows = self._read(rows_of, NEW)
        assert self._read(rows_of, KEPT) == rows
        # A run that says in the log that it has ended has done all of it.
        assert between in (None, rows)
        made = self._read(indexes_of, KEPT)
        assert all(made.values())
        assert made.keys() >= {"metadata", "document_name", "hnsw_1"}
        with self._opened(KEPT) as kept, self._opened(NEW) as new:
            assert answers(kept) == answers(new)
        self._drop(NEW)

    def _read(self, reading, collection):
        with psycopg.connect(self._server.url) as connection:
            return reading(connection, collection)

    def _opened(self, collection):
        return sync_opened(self._server.url, "static", collection=collection)

    def _drop(self, collection):
        if self._read(is_made, collection):
            with self._opened(collection) as store:
                store.drop_collection()


@pytest.fixture(scope="module")
def runs(make_server_folder, tmp_path_factory, static_model):
    """On a server that may be killed, with the settings that it has for everyone."""
    with new_open_folder() as folder, EmbeddedServer(make_server_folder(folder / "server")) as server:
        # Each test seeds what decides.
        yield KilledRuns(server, tmp_path_factory.mktemp("runs"), static_model, random.Random(0))


@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_a_kill_loses_and_doubles_nothing(runs, kill):
    runs.chance.seed(random.getrandbits(64))
    runs.kill(kill)


@pytest.mark.full
@pytest.mark.timeout(6 * 3600)
def test_thousands_of_kills_lose_and_double_nothing(runs):
    for number in range(2_000):
        seed = random.getrandbits(64)
        runs.chance.seed(seed)
        kill = runs.chance.choice(EVERYWHERE if number % 2 else ANYWHERE)
        try:
            code = runs.kill(kill)
        except BaseException as error:
            error.add_note(f"seed {seed}, kill {number}: {kill}")
            raise
        logger.info("seed %d, kill %d: %s, exit code %s", seed, number, kill, code)
