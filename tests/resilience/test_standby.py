"""A hot standby: its answers are those of the primary, and clients that read on it write on the primary."""

import asyncio
import logging
import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

from semlex import Client, open_collection
from semlex.errors import ConfigurationError, ModelMismatchError, ReadOnlyError, StoreError
from semlex.proof.check import plain_bm25
from semlex.proof.interruptions import proxied
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.store.postgres import replica
from semlex.store.postgres.database import DEADLINE_GRACE_SECONDS, Database
from semlex.store.postgres.replica import Replica, StandbyReads
from semlex.store.write.copy import BulkIngestConfig
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from semlex.types.results import ReadServer
from tests.support.compared_searches import QUESTIONS, compare, many, told
from tests.support.databases import execute
from tests.support.folders import new_open_folder
from tests.support.keyword_index import check_index
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import ids_of, opened, sync_opened
from tests.support.shell import Shell
from tests.support.standbys import replicated
from tests.support.two_models import OtherEmbedder
from tests.support.waiting import LIMIT, eventually, turns

SEARCHERS = 3
END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

retriever_of = partial(opened, model=16)
reading = partial(opened, model=16, read_from="replica")


@pytest.fixture(scope="module")
def pair(make_server_folder):
    """A primary and its standby; each test has collections of its own there."""
    with new_open_folder() as folder, replicated(folder, make_server_folder) as pair:
        yield pair


@asynccontextmanager
async def on_both(pair, collection, count):
    """Retrievers on the primary and on the standby, of a collection with so many documents."""
    async with retriever_of(pair.primary, collection=collection) as primary:
        await primary.add_documents(many(count))
        await pair.catch_up()
        async with retriever_of(pair.standby, collection=collection) as standby:
            yield primary, standby


def vacuum(pair, collection):
    """Removes dead rows from the tables of a collection of the primary."""
    listed = "SELECT string_agg(format('semlex.%%I', tablename), ', ') FROM pg_tables WHERE starts_with(tablename, %s)"
    [(tables,)] = execute(pair.primary, listed, [f"{collection}_"])
    execute(pair.primary, f"VACUUM {tables}")


async def compare_both(pair, collection):
    await pair.catch_up()
    async with (
        retriever_of(pair.primary, collection=collection) as primary,
        retriever_of(pair.standby, collection=collection) as standby,
    ):
        await compare(standby, primary)
        figures = attrgetter("chunks", "embedded", "index_segments", "index_tombstones")
        assert figures(await standby.status()) == figures(await primary.status())
    check_index(pair.standby, collection)


async def test_a_standby_answers_as_its_primary(pair):
    async with retriever_of(pair.primary, collection="answers") as primary:
        await primary.add_documents(many(400))
        await compare_both(pair, "answers")
        for start in range(400, 460, 5):
            await primary.add_documents(many(5, start))
        await primary.delete([f"d{number}" for number in range(50, 150)])
        await compare_both(pair, "answers")
        assert await primary.indexes.optimize() > 0
        assert "hnsw_1" in await primary.indexes.create()
        await compare_both(pair, "answers")
        assert (await primary.indexes.rebuild_keyword()).generation == 2
        await compare_both(pair, "answers")


async def test_a_standby_refuses_writes(pair):
    async with on_both(pair, "refusals", 20) as (primary, standby):
        for work in (
            lambda: standby.add_documents(many(1)),
            lambda: standby.add_documents(many(100)),
            lambda: standby.delete(["d1"]),
            lambda: standby.index(Path(__file__)),
            standby.indexes.create,
            standby.indexes.optimize,
            standby.indexes.rebuild_keyword,
            standby.embeddings.fill,
            standby.drop_collection,
        ):
            with pytest.raises(ReadOnlyError):
                await work()
        assert (await standby.health_check()).read_only
        assert len(await standby.search("cat", 20)) == await standby.count() == 20
        with pytest.raises(ReadOnlyError):
            await retriever_of(pair.standby, collection="new").initialize()
        assert await primary.count() == 20


async def test_a_standby_is_dumped_as_its_primary(pair, tmp_path):
    async with on_both(pair, "dumps", 300) as (primary, standby):
        for name, retriever in (("primary", primary), ("standby", standby)):
            report = await retriever.tables.dump(tmp_path / name)
            assert (report.chunks, report.vectors) == (300, 300)
        for file in (tmp_path / "primary").glob("*.parquet"):
            assert file.read_bytes() == (tmp_path / "standby" / file.name).read_bytes()
        async with Client(pair.primary, HashEmbedder(16), use_reranking=False) as client:
            await client.restore(tmp_path / "standby", "dumps_again")
        async with retriever_of(pair.primary, collection="dumps_again") as again:
            for question in QUESTIONS:
                assert ids_of(await again.search(**question)) == ids_of(await primary.search(**question))


async def test_a_program_of_the_old_model_goes_on(pair, monkeypatch):
    """Another model serves on the primary; on the standby the old one answers, until its vectors are dropped."""
    monkeypatch.setattr(open_collection, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(open_collection, "NOTE_SECONDS", 0.0)
    async with on_both(pair, "models", 40) as (primary, standby):
        before = told(await standby.search("yellow fruit"))
        await primary.embeddings.change(OtherEmbedder(16))
        await pair.catch_up()
        [note] = (await standby.search("yellow fruit")).warnings
        assert "keeps using version 1" in note
        assert told(await standby.search("yellow fruit")) == before
        async with retriever_of(pair.standby, model=OtherEmbedder(16), collection="models") as new:
            assert (await new.search("yellow fruit")).embedding_model == "tests/other"
        for work in (
            lambda: standby.embeddings.change(OtherEmbedder(16)),
            standby.embeddings.roll_back,
            lambda: standby.embeddings.drop(1),
        ):
            with pytest.raises(ReadOnlyError):
                await work()
        assert [one.state for one in await standby.embeddings.list()] == ["old", "serving"]
        await primary.embeddings.drop(1, force=True)
        await pair.catch_up()
        with pytest.raises(ModelMismatchError, match="were dropped"):
            await standby.search("yellow fruit")


class Following:
    """One writer on the primary, searchers on the standby.

    The writer notes the texts after each of its transactions. What is found must be exactly what one of these states
    gives, and no searcher ever sees an older one than it has seen.
    """

    collection = "following"

    def __init__(self, pair, rounds):
        self.pair, self.rounds = pair, rounds
        self.states = []
        self.searches = [0] * SEARCHERS
        self.done = False
        self._scores = {}

    async def run(self):
        bulk = BulkIngestConfig(small_batch_rows=8)
        async with retriever_of(self.pair.primary, collection=self.collection, bulk=bulk) as primary:
            documents = many(60)
            await primary.add_documents(documents)
            self.states.append({one.id: one.content for one in documents})
            await self.pair.catch_up()
            await asyncio.gather(self._write(primary), *(self._search(seed) for seed in range(SEARCHERS)))

    async def _write(self, primary):
        numbers = random.Random("write")
        try:
            for turn in range(1, self.rounds + 1):
                added = many(numbers.choice([1, 5, 20]), numbers.randrange(100))
                gone = [f"d{number}" for number in numbers.sample(range(100), 5)]
                # Noted first: a searcher may see it before we know that it is done.
                self.states.append(self.states[-1] | {one.id: one.content for one in added})
                await primary.add_documents(added)
                self.states.append({key: text for key, text in self.states[-1].items() if key not in gone})
                await primary.delete(gone)
                if turn % 4 == 0:
                    await primary.indexes.optimize()
                if turn % 10 == 5:
                    await primary.indexes.rebuild_keyword()
                await asyncio.to_thread(vacuum, self.pair, self.collection)
                await eventually(lambda turn=turn: min(self.searches) >= turn)
        finally:
            self.done = True

    async def _search(self, seed):
        numbers = random.Random(f"search {seed}")
        state = 0
        async with retriever_of(self.pair.standby, collection=self.collection) as standby:
            while not self.done:
                query = numbers.choice(["yellow fruit", "key rotation", "dog ship"])
                found = await standby.search(query, 1000, mode="keyword")
                assert [one for one in found.warnings if "no word" not in one] == []
                state = await asyncio.to_thread(self._state_of, state, query, found)
                hybrid = await standby.search(query, 10, deadline=60.0)
                assert (len(hybrid), hybrid.warnings) == (10, [])
                self.searches[seed] += 1

    def _state_of(self, first, query, found):
        """Number of the first state that gives this answer, from `first` on."""
        scores = {one.id: one.keyword_score for one in found}
        texts = {one.id: one.content for one in found}
        for number in range(first, len(self.states)):
            state = self.states[number]
            key = (number, query)
            if key not in self._scores:
                self._scores[key] = plain_bm25({one: ("english", text) for one, text in state.items()}, query)
            if scores == pytest.approx(self._scores[key], rel=1e-9) and texts.items() <= state.items():
                return number
        pytest.fail(f"no state since {first} of {len(self.states)} gives this answer to {query!r}: {scores}")


@pytest.mark.timeout(3600)
async def test_searches_are_exact_while_the_primary_writes(pair, full, caplog):
    caplog.set_level(logging.WARNING, "semlex")
    await Following(pair, 300 if full else 10).run()
    assert [one.getMessage() for one in caplog.records if one.name == "semlex"] == []
    await compare_both(pair, "following")


async def test_a_search_that_the_standby_ends_is_run_again(pair, monkeypatch, caplog):
    """It has begun to read when rows that it sees are removed on the primary, for whose sake the standby ends it."""
    caplog.set_level(logging.INFO, "semlex")
    reading, let_go = asyncio.Event(), asyncio.Event()
    read_snapshot = Database.read_snapshot

    async def held(database, doing, work, **options):
        async def begun(snapshot):
            if not reading.is_set():
                await (await snapshot.connection.execute("SELECT count(*) FROM semlex.ended_chunk")).fetchone()
                reading.set()
                await let_go.wait()
            return await work(snapshot)

        return await read_snapshot(database, doing, begun, **options)

    async with on_both(pair, "ended", 60) as (primary, standby):
        conflicts = pair.conflicts()
        monkeypatch.setattr(Database, "read_snapshot", held)
        search = asyncio.create_task(standby.search("yellow fruit", 50, mode="keyword"))
        await eventually(reading.is_set)
        monkeypatch.setattr(Database, "read_snapshot", read_snapshot)
        await primary.delete([f"d{number}" for number in range(30)])
        await asyncio.to_thread(vacuum, pair, "ended")
        await eventually(lambda: pair.conflicts() > conflicts)
        let_go.set()
        assert told(await search) == told(await primary.search("yellow fruit", 50, mode="keyword"))
    assert sum("search: retry" in one.getMessage() for one in caplog.records) == 1


async def test_a_standby_is_diagnosed_and_keeps_no_questions(pair):
    async with retriever_of(pair.primary, collection="asked") as primary:
        await primary.add_documents(many(30))
        await pair.catch_up()
        async with retriever_of(pair.standby, collection="asked", query_log="text") as standby:
            assert await standby.search("cat")
            log = (await standby.status()).query_log
            assert (log.waiting, log.problem) == (0, "the server accepts no writes")
        async with Client(pair.standby, HashEmbedder(16), use_reranking=False) as client:
            found = await client.diagnose("asked")
        assert (found.is_well, found.collections) == (True, ("asked",))
        assert "dead rows" in {skipped.check for skipped in found.not_checked}
        assert (await primary.queries.summary()).logged == 0


async def test_hits_are_put_into_a_table_of_the_primary(pair):
    """What was found on a standby, which takes no temporary table itself."""
    async with on_both(pair, "joined", 30) as (_, standby):
        found = await standby.search("cat")
        async with await psycopg.AsyncConnection.connect(pair.standby) as mine:
            with pytest.raises(ReadOnlyError, match="standby"):
                await standby.tables.hits_into(mine, found, "hits")
            cursor = await mine.execute((await standby.tables.hits_as_sql(found)).encode())
            assert [row[0] for row in await cursor.fetchall()] == [hit.rank for hit in found]
        async with await psycopg.AsyncConnection.connect(pair.primary) as mine:
            assert await standby.tables.hits_into(mine, found, "hits") == len(found) > 0


# --- clients that read on the standby ---------------------------------------------------------------------------------


@asynccontextmanager
async def reading_of(pair, collection, count=40, **options):
    """Both servers of a pair with so many documents in a collection, which the standby has as well."""
    async with reading(pair.both(), collection=collection, **options) as both:
        await both.add_documents(many(count))
        await pair.catch_up()
        yield both


@contextmanager
def paused(pair):
    """Lets the standby receive and replay nothing inside the block."""
    execute(pair.standby, "SELECT pg_wal_replay_pause()")
    try:
        yield
    finally:
        execute(pair.standby, "SELECT pg_wal_replay_resume()")


def of_replica(found, count=None):
    """The standby that answered, with so many hits."""
    assert (found.read_from.kind, found.read_from.reason) == ("replica", None)
    assert count is None or len(found) == count
    return found.read_from


def of_primary(found, count=None):
    """Why the primary answered, with so many hits."""
    assert found.read_from.kind == "primary", found.read_from
    assert found.read_from.lag_seconds is None
    assert count is None or len(found) == count
    assert any("the primary answered instead of a replica" in one for one in found.warnings)
    return found.read_from.reason


async def test_reads_are_on_the_standby_and_writes_on_the_primary(pair):
    async with reading(pair.both(), collection="both") as both, opened(pair.primary, 16, collection="both") as primary:
        await both.add_documents(many(400))
        await both.delete([f"d{number}" for number in range(50, 100)])
        assert "hnsw_1" in await both.indexes.create()
        await pair.catch_up()
        await compare(both, primary, of_replica)
        assert (await primary.search("cat")).read_from is None
        explained = await both.search("key rotation", explain=True)
        of_replica(explained)
        assert explained.explanation is not None
        status, other = await both.status(), await primary.status()
        of_replica(status)
        assert status.server.startswith(f"host={conninfo_to_dict(pair.standby)['host']} ")
        assert (status.chunks, other.chunks, other.read_from) == (350, 350, None)
    check_index(pair.standby, "both")


async def test_what_is_not_replayed_yet_is_missing_and_the_lag_says_so(pair, monkeypatch):
    monkeypatch.setattr(replica, "LOOK_SECONDS", 0.0)
    async with reading_of(pair, "lag") as both, opened(pair.primary, 16, collection="lag") as primary:
        assert of_replica(await both.search("cat")).lag_seconds == 0.0
        with paused(pair):
            await both.add_documents([Document("a zebra", id="zebra")])
            assert ids_of(await primary.search("zebra", 1, mode="keyword")) == ["zebra"]

            async def behind():
                found = await both.search("zebra", mode="keyword")
                assert ids_of(found) == []
                server = of_replica(found)
                return (server.lag_bytes or 0) > 0 and (server.lag_seconds or 0) > 0

            await eventually(behind)
            # A whole collection is missing: the primary has it.
            async with reading(pair.both(), collection="unseen") as new:
                await new.add_documents(many(10))
                assert of_primary(await new.search("cat", 10), 10)
                assert await new.count() == 10
        await pair.catch_up()
        found = await both.search("zebra", 1, mode="keyword")
        assert ids_of(found) == ["zebra"]
        assert of_replica(found).lag_bytes == 0
    assert ReadServer("replica", 3.0, 10).warnings == []
    [warning] = ReadServer("replica", 61.0, 10).warnings
    assert "lags 61 s behind" in warning


async def test_a_changed_model_is_found_on_a_standby_that_lacks_it(pair):
    """The new vectors are not there yet: the primary answers, and writes go on with the new model."""
    async with reading_of(pair, "moved") as both:
        of_replica(await both.search("yellow fruit"))
        with paused(pair):
            await both.embeddings.change(HashEmbedder(24))
            async with reading(pair.both(), model=HashEmbedder(24), collection="moved") as new:
                assert of_primary(await new.search("yellow fruit"), 5)
                await new.add_documents(many(5, 40))
                assert of_primary(await new.search("yellow fruit"))
                assert (await new.status()).chunks >= 40
        await pair.catch_up()
        async with reading(pair.both(), model=HashEmbedder(24), collection="moved") as new:
            of_replica(await new.search("yellow fruit", 45), 45)


async def test_jobs_work_on_the_primary(pair):
    async with Client(pair.both(), HashEmbedder(16), use_reranking=False, read_from="replica") as client:
        with paused(pair):
            job = await client.collection("jobs").jobs.submit("add", {"documents": [Document("a stone", id="stone")]})
            assert await client.work(drain=True) == 1
            assert (await job.status()).state == "done"
        await pair.catch_up()
        found = await client.collection("jobs").search("stone")
        assert ids_of(found) == ["stone"]
        of_replica(found)


class Alternating(Following):
    """Searchers that read now on the standby, now on the primary, whose states differ."""

    collection = "alternating"

    async def _search(self, seed):
        numbers = random.Random(f"search {seed}")
        kinds = set()
        async with reading(self.pair.both(), collection=self.collection) as both:
            while not self.done:
                query = numbers.choice(["yellow fruit", "key rotation", "dog ship"])
                found = await both.search(query, 1000, mode="keyword")
                await asyncio.to_thread(self._state_of, 0, query, found)
                kinds.add(found.read_from.kind)
                even = await both.search(query, 1000, {"even": True}, mode="vector")
                assert self._is_one({one.id: one.content for one in even})
                assert len(await both.search(query, 10, deadline=60.0)) == 10
                self.searches[seed] += 1
        assert kinds == {"replica", "primary"}

    def _is_one(self, even):
        """Whether these are the even documents of one of the states."""
        return any(even == {key: text for key, text in state.items() if not int(key[1:]) % 2} for state in self.states)


@pytest.mark.timeout(3600)
async def test_answers_are_exact_whichever_server_gives_them(pair, full, monkeypatch):
    numbers = random.Random("which")
    unreachable = Replica._unreachable

    async def sometimes(replica, ends):
        return "not this time" if numbers.random() < 0.4 else await unreachable(replica, ends)

    monkeypatch.setattr(Replica, "_unreachable", sometimes)
    await Alternating(pair, 300 if full else 8).run()


async def test_a_lost_connection_costs_no_search(pair):
    async with reading_of(pair, "lost") as both:
        of_replica(await both.search("cat"))
        execute(pair.standby, END_SESSIONS)
        for _ in range(3):
            of_replica(await both.search("cat", 40, mode="vector"), 40)


async def test_a_replica_that_falls_silent_costs_no_search(pair, monkeypatch):
    """Its connections stay open, and nothing comes: the primary answers in what is left of the deadline."""
    monkeypatch.setattr(replica, "RETRY_SECONDS", 0.0)
    clock, primary = ManualClock(), conninfo_to_dict(pair.primary)
    async with proxied(pair.standby) as (proxy, address):
        hosts = {name: f"{primary[name]},{conninfo_to_dict(address)[name]}" for name in ("host", "port")}
        url = make_conninfo(pair.primary, **hosts)
        async with reading(url, collection="silent", clock=clock, timeout=LIMIT) as both:

            async def from_(kind):
                found = await both.search("cat", 40, mode="vector", deadline=LIMIT)
                assert len(found) == 40
                return found.read_from.kind == kind

            await both.add_documents(many(40))
            await pair.catch_up()
            await eventually(lambda: from_("replica"))
            proxy.hearing.clear()
            searches = [asyncio.create_task(from_("primary")) for _ in range(8)]
            await eventually(lambda: proxy.swallowed)
            clock.advance(LIMIT * replica.DEADLINE_SHARE + DEADLINE_GRACE_SECONDS)
            assert await asyncio.gather(*searches) == [True] * 8
            assert await from_("primary")
            proxy.hearing.set()
            await eventually(lambda: from_("replica"))


async def test_a_replica_that_never_answers_is_not_waited_for(pair):
    parts = conninfo_to_dict(pair.primary)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and never answers
        port = f"{parts['port']},{silent.getsockname()[1]}"
        url = make_conninfo(pair.primary, host=f"{parts['host']},127.0.0.1", port=port)
        async with reading(url, collection="mute", clock=ManualClock()) as both:
            await both.add_documents(many(40))
            assert of_primary(await both.search("cat", 40, deadline=60.0, mode="vector"), 40)


async def test_closing_can_be_cancelled_while_a_replica_is_looked_for():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        away = Replica(f"host=127.0.0.1 port={silent.getsockname()[1]}", max_size=1, timeout=LIMIT, clock=ManualClock())
        away._probing()
        await turns()
        closing = asyncio.create_task(away.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing


async def test_a_read_under_way_opens_nothing_after_the_close(pair):
    before = asyncio.all_tasks()
    async with Database(pair.primary) as primary:

        async def read_from(snapshot):
            return snapshot.read_from

        away = Replica(pair.both(), max_size=1, timeout=LIMIT, clock=ManualClock())
        await asyncio.gather(away.close(), away.read_snapshot(primary, "read", read_from))
        found = await away.read_snapshot(primary, "read", read_from)
        assert away._database.pool_figures == {}
        assert found == ReadServer("primary", reason=replica.CLOSED)
    assert asyncio.all_tasks() == before


async def test_whatever_a_replica_fails_with_the_primary_answers_at_once(pair, monkeypatch, caplog):
    looks = []

    async def fail(self):
        looks.append(self)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(StandbyReads, "open", fail)
    async with reading(pair.both(), collection="broken", clock=ManualClock()) as both:
        await both.add_documents(many(10))
        for _ in range(3):
            assert of_primary(await both.search("cat")) == replica.UNREACHABLE
    assert len(looks) == 1
    assert "can't start new thread" in caplog.text


async def test_a_primary_alone(pair, caplog):
    async with reading(pair.primary, collection="alone") as alone:
        await alone.add_documents(many(10))
        for _ in range(2):
            assert of_primary(found := await alone.search("cat")) == replica.UNREACHABLE
        assert caplog.text.count("the address must contain a host that is a standby") == 1
        # Who searches is not told where the servers are.
        assert not re.search("host|socket", repr([found.read_from, *found.warnings]))


def test_what_cannot_be():
    for options, message in (
        ({"read_from": "anywhere"}, "'primary' or 'replica'|'primary', 'replica'"),
        ({"read_from": "replica"}, "needs a database URL"),
        ({"read_from": "replica", "pool": AsyncConnectionPool(open=False)}, "needs a database URL"),
        ({"read_from": "replica", "db_url": "postgresql://a,b/x?target_session_attrs=standby"}, "target_session_attrs"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            PostgreSQLRetriever(**options)


def test_from_threads_and_on_the_command_line(pair, tmp_path):
    with sync_opened(pair.both(), 16, collection="threads", read_from="replica") as one:
        one.add_documents(many(40))
        asyncio.run(pair.catch_up())
        with ThreadPoolExecutor(8) as threads:
            assert len([of_replica(found) for found in threads.map(one.search, ["cat"] * 8)]) == 8
    shell = Shell(pair.both(), tmp_path)
    found = shell("search", "cat", "-c", "threads", "--mode", "keyword", "--read-from", "replica", "--json")
    assert '"kind": "replica"' in found.stdout


async def test_a_replica_goes_and_comes_back_and_is_promoted(make_server_folder, open_folder, monkeypatch):
    """Searches never fail; writes are refused only while no primary is there."""
    monkeypatch.setattr(replica, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(replica, "LOOK_SECONDS", 0.0)
    with replicated(open_folder, make_server_folder) as pair:
        async with reading_of(pair, "words", 60, timeout=3) as both:  # expires
            expected = told(await both.search("yellow fruit", 20))

            async def from_(kind):
                found = await both.search("yellow fruit", 20, deadline=60.0)
                assert ids_of(found) == [one[0] for one in expected]
                return found.read_from.kind == kind

            assert await from_("replica")
            await asyncio.to_thread(pair.stop_standby)
            await eventually(lambda: from_("primary"))
            await asyncio.to_thread(pair.start_standby)
            await eventually(lambda: from_("replica"))
            # The primary is gone: searches go on, writes do not.
            await pair.catch_up()
            await asyncio.to_thread(pair.stop_primary)
            assert await from_("replica")
            assert (await both.health_check()).ok
            execute(pair.standby, END_SESSIONS)
            assert await from_("replica")
            with pytest.raises(StoreError):
                await both.add_documents([Document("a zebra", id="zebra")])
            assert await from_("replica")
            await asyncio.to_thread(pair.promote)

            async def is_written():
                try:
                    await both.add_documents([Document("a zebra", id="zebra")])
                except StoreError:
                    return False
                return True

            await eventually(is_written)
            await eventually(lambda: from_("primary"))
            found = await both.search("zebra", 1, mode="keyword")
            assert ids_of(found) == ["zebra"]
            assert of_primary(found) == replica.UNREACHABLE
        check_index(pair.standby, "words")
