"""Indexes of fields beside writers, other builds and a pooler, and builds that were ended."""

import asyncio
from functools import partial

import psycopg
import pytest
from psycopg import sql

from semlex.errors import StoreError
from semlex.proof.transaction_pooler import TransactionPooler
from semlex.store.indexes.build import building_lock
from semlex.store.indexes.options import NoIndex
from semlex.store.query.health import find_problems
from semlex.store.schema.locks import TABLE_SECONDS, TELL_SECONDS
from semlex.types.documents import Document
from tests.resilience.test_index_builds import retriever_of
from tests.support.databases import execute
from tests.support.index_builds import held_build
from tests.support.manual_clock import ManualClock
from tests.support.retrievers import filled
from tests.support.waiting import eventually

TEXTS = [Document("a text", {"year": row}, id=str(row)) for row in range(50)]

filled_with = partial(filled, texts=TEXTS, model="none", collection="built", keyword="none")


async def year(retriever):
    """Types of the field that have an index, and those of which one was not built completely."""
    return next((field.indexed, field.unfinished) for field in await retriever.fields.list() if field.name == "year")


async def test_writers_go_on_while_an_index_is_built(database_url, caplog):
    clock = ManualClock()
    async with filled_with(database_url, clock=clock) as retriever, asyncio.timeout(120):
        async with await psycopg.AsyncConnection.connect(database_url) as writer:
            await writer.execute("UPDATE semlex.built_chunk SET summary = summary")
            task = asyncio.create_task(retriever.fields.add("year", "number"))
            await held_build(database_url, "semlex.built_chunk")
            await retriever.add_documents([Document("more", {"year": 2000}, id="more")])
            assert await retriever.count("year >= 2000") == 1
            waits = f"waits until the transaction of server process {writer.info.backend_pid} ends"
            await clock.passes_until(lambda: waits in caplog.text)
            assert not task.done()
            await writer.commit()
            built = await task
        assert (len(built), built.busy, built.warnings) == (1, [], [])
        assert await year(retriever) == (("number",), ())
        assert await retriever.count("year >= 2000") == 1


FIELD_INDEX = """
    SELECT FROM pg_index JOIN pg_class ON oid = indexrelid
    WHERE indrelid = %s::regclass AND indisvalid AND relname ~ 'field'
"""


@pytest.mark.parametrize(("partitions", "table"), [(0, "built_chunk"), (2, "built_chunk_p0")])
async def test_an_ended_build_is_shown_and_built_again(database_url, partitions, table):
    async with filled_with(database_url, partitions=partitions) as retriever, asyncio.timeout(120):
        async with (
            await psycopg.AsyncConnection.connect(database_url) as writer,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
        ):
            await writer.execute(sql.SQL("UPDATE {} SET summary = summary").format(sql.Identifier("semlex", table)))
            task = asyncio.create_task(retriever.fields.add("year", "text", force=True))
            backend = await held_build(database_url, f"semlex.{table}")
            if partitions:  # whose other index is built beside it, and would be ended on the way
                other_partition = (database_url, FIELD_INDEX, ["semlex.built_chunk_p1"])
                await eventually(lambda: execute(*other_partition), "the other partition's index")
            await other.execute("SELECT pg_terminate_backend(%s)", [backend])
            with pytest.raises(StoreError):
                await task
            problems = await find_problems(other, retriever.info.server)
            shown = ["semlex fields add makes it again" in problem.sentence for problem in problems]
            assert shown == ([True, True] if partitions else [True])  # that of the partition as well
        assert await year(retriever) == ((), ("text",))
        assert len(await retriever.fields.add("year", "text", force=True)) == 1
        assert await year(retriever) == (("text",), ())
        assert await retriever.fields.remove("year") == ("text",)
        assert await year(retriever) == ((), ())


async def test_another_build_is_not_waited_for(database_url):
    async with filled_with(database_url) as retriever, asyncio.timeout(60):
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute("SELECT pg_advisory_xact_lock(%s)", [building_lock(retriever.info)])
            built = await retriever.fields.add("year", "number")
            assert (len(built), len(built.busy)) == (0, 1)
        assert len(await retriever.fields.add("year", "number")) == 1


async def test_behind_a_transaction_pooler_writers_wait(database_url):
    async with TransactionPooler(database_url, 3) as pooler, filled_with(pooler.address) as retriever:
        built = await retriever.fields.add("year", "number")
        assert len(built) == 1
        assert ["pooler" in warning for warning in built.warnings] == [True]
        assert await retriever.fields.add("year", "number") == []
        assert await year(retriever) == (("number",), ())
        assert await retriever.fields.remove("year") == ("number",)


@pytest.mark.parametrize("doing", ["remove_field", "create_index", "drop"])
async def test_searches_pass_by_whoever_waits_to_drop_something(database_url, monkeypatch, caplog, doing):
    """Beside a backup, which reads all tables in one long transaction."""
    clock = ManualClock()
    async with (
        filled_with(database_url, model=8, clock=clock) as retriever,
        retriever_of(database_url, model=8) as reader,
        await psycopg.AsyncConnection.connect(database_url) as backup,
    ):
        await retriever.indexes.create()
        await retriever.fields.add("year", "number")
        calls = {
            "remove_field": partial(retriever.fields.remove, "year"),
            "create_index": partial(retriever.indexes.create, NoIndex()),
            "drop": retriever.drop,
        }
        await reader.search("text")
        await backup.execute("LOCK TABLE semlex.built_chunk, semlex.built_embedding_1 IN ACCESS SHARE MODE")
        work = asyncio.create_task(calls[doing]())
        pid = backup.info.backend_pid
        for _ in range(2):
            # It has given up this try, though the backup goes on: nobody queues behind it.
            await eventually(lambda: clock.waits, "a pause between two tries")
            assert len(await reader.search("text", 3)) == 3
            clock.advance(TELL_SECONDS)
        await clock.passes_until(work.done, TABLE_SECONDS)
        with pytest.raises(StoreError, match=rf"gave up after .*process {pid}, idle in transaction"):
            await work
        assert f"waits for other transactions (process {pid}" in caplog.text
        await backup.rollback()
        assert await calls[doing]() is not False
