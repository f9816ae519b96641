"""A hot standby by streaming replication: the answers of the primary, no writes, and recovery conflicts unseen."""

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

import psycopg
import pytest

from semlex import Client, open_collection
from semlex.errors import ModelMismatchError, ReadOnlyError
from semlex.proof.check import plain_bm25
from semlex.store.postgres.database import Database
from semlex.store.write.copy import BulkIngestConfig
from semlex.testing import HashEmbedder
from tests.support.compared_searches import QUESTIONS, compare, many, told
from tests.support.databases import execute
from tests.support.keyword_index import check_index
from tests.support.retrievers import ids_of, opened
from tests.support.two_models import OtherEmbedder
from tests.support.waiting import eventually

SEARCHERS = 3


retriever_of = partial(opened, model=16)


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
        self.pair = pair
        self.rounds = rounds
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
