"""Reads on a standby beside writes on the primary, with all that can go wrong between them."""

import asyncio
import random
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool

from semlex import Client
from semlex.errors import ConfigurationError, StoreError
from semlex.proof.interruptions import proxied
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.store.postgres import replica
from semlex.store.postgres.database import DEADLINE_GRACE_SECONDS, Database
from semlex.store.postgres.replica import Replica, StandbyReads
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from semlex.types.results import ReadServer
from tests.resilience.test_standby import Following
from tests.support.compared_searches import compare, many, told
from tests.support.databases import execute
from tests.support.keyword_index import check_index
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import ids_of, opened, sync_opened
from tests.support.shell import Shell
from tests.support.standbys import replicated
from tests.support.waiting import LIMIT, eventually, turns

END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

reading = partial(opened, model=16, read_from="replica")


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


async def test_a_replica_far_behind_is_worth_a_warning():
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
