"""A worker keeps followed tables in step, beside other workers and whatever fails."""

import asyncio
from functools import partial

import pytest

from semlex.errors import CollectionNotFoundError
from semlex.jobs import tables as worker_tables
from semlex.jobs.worker import STOP_SECONDS
from semlex.store.proving import jump_clock
from tests.support.databases import execute
from tests.support.followed import WAYS, articles
from tests.support.job_clients import client, reached
from tests.support.waiting import eventually

LOOK = "UPDATE semlex.followed_table SET look_at = now()"
EXPECTED = {"articles/0": "apple", "articles/1": "cherry", "articles/3": "banana"}


@pytest.fixture
def table(database_url):
    with articles(database_url, rows=3) as table:
        yield table


@pytest.fixture
def news(opened):
    return opened.collection("news")


@pytest.fixture
def run(database_url):
    """Runs a statement that may wait for a worker of this event loop."""
    return partial(asyncio.to_thread, execute, database_url)


async def cancel(working):
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def rows(news):
    """What the collection holds of a table: body of each row, by its document."""
    return {str(chunk.source_document): chunk.content.split()[-1] for chunk in await news.list_chunks()}


async def until_found(clock, expected, find, seconds=worker_tables.WATCHING_SECONDS):
    """Lets time pass until a coroutine function finds what is expected."""

    async def is_found():
        clock.advance(seconds)
        return await find() == expected

    await eventually(is_found)


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_due_of_a_table_is_stored(run, opened, news, table, way):
    told = []
    await news.tables.follow(**table.options(**WAYS[way]))
    assert (await opened.work(drain=True, tell=told.append), told) == (0, ["table news/articles: 3 added"])
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    table.delete(2)
    await opened.work(drain=True, compare_every=60, tell=told.append)
    if way != "trigger":
        assert len(told) == 1  # not due
        await run(LOOK)
        await opened.work(drain=True, compare_every=60, tell=told.append)
    assert told[1:] == ["table news/articles: 1 added, 1 changed, 1 deleted"]
    assert await rows(news) == EXPECTED
    await run(LOOK)
    await opened.work(drain=True, compare_every=60, tell=told.append)
    assert len(told) == 2
    next_in = "SELECT round(extract(epoch FROM look_at - synced_at))::int FROM semlex.followed_table"
    assert await run(next_in) == [({"comparison": 60, "column": 5, "trigger": 60}[way],)]


async def test_a_collection_that_is_dropped_meanwhile_is_not_reported_as_a_failure(opened, news, table, monkeypatch):
    told, looked = [], asyncio.Event()

    async def dropped(*_):
        looked.set()
        raise CollectionNotFoundError("no collection news")

    await news.tables.follow(**table.options())
    monkeypatch.setattr(worker_tables.TableKeeper, "look", dropped)
    working = asyncio.create_task(opened.work(tell=told.append))
    await looked.wait()
    await cancel(working)
    assert not told


async def test_a_change_is_searched_while_a_worker_runs(database_url, run, table, clock):
    async with client(database_url, clock=clock) as opened:
        news = opened.collection("news")
        working = asyncio.create_task(opened.work())
        # A worker without tables looks for them rarely.
        await clock.eventually_waited(worker_tables.IDLE_SECONDS)
        await news.tables.follow(**table.options(changes="trigger"))
        await clock.passes_until(lambda: worker_tables.WATCHING_SECONDS in clock.waits)
        assert worker_tables.IDLE_SECONDS not in clock.waits

        async def keys():
            return {hit.key for hit in await news.search("apple cherry", 10)}

        await until_found(clock, {0, 1, 2}, keys)
        table.insert(3, body="cherry")
        await until_found(clock, {0, 1, 2, 3}, keys)
        table.connection.execute("BEGIN; DELETE FROM shop.articles WHERE id = 1; ROLLBACK")
        table.delete(2)
        await until_found(clock, {0, 1, 3}, keys)
        # A partition or a table without triggers gets them, and all rows are compared.
        await run("ALTER TABLE shop.articles ALTER body TYPE text USING 'cherry'")
        await run(LOOK)
        await until_found(clock, dict.fromkeys(EXPECTED, "cherry"), lambda: rows(news))
        await cancel(working)


async def test_a_table_that_fails_is_reported_once_and_keeps_no_other_waiting(database_url, run, table, clock):
    told = []
    with articles(database_url, schema="other", rows=1) as second:
        async with client(database_url, clock=clock) as opened:
            news = opened.collection("news")
            await news.tables.follow(**table.options(changes="trigger"))
            await news.tables.follow(**second.options(name="others", changes="trigger"))
            await opened.work(drain=True)
            table.connection.execute("ALTER TABLE shop.articles RENAME body TO content")
            await run(LOOK)
            working = asyncio.create_task(opened.work(tell=told.append))
            table.connection.execute("UPDATE shop.articles SET content = 'cherry'")  # of a user, who notices nothing
            second.update(0, body="cherry")
            await clock.passes_until(lambda: any("has no column 'body'" in line for line in told))
            changes = partial(told.count, "table news/others: 1 changed")
            for number in range(4):
                await run(LOOK)
                await run("UPDATE semlex.row_change SET due_at = now()")
                second.update(0, author=f"author {number}")
                stored = changes()
                await clock.passes_until(lambda stored=stored: changes() > stored, worker_tables.LAST_PAUSE_SECONDS)
            assert sum("news/articles could not be synced" in line for line in told) <= 2  # looked at, changes stored
            assert "has no column 'body'" in ((await news.tables.followed())[0].error or "")
            found = await rows(news)
            assert len(found) == 4
            await news.tables.change("articles", text=["title", "content"])
            await clock.passes_until(lambda: any("articles is synced again" in line for line in told))
            cherries = dict.fromkeys(found, "cherry")
            await until_found(clock, cherries, lambda: rows(news), worker_tables.LAST_PAUSE_SECONDS)
            await cancel(working)


async def test_workers_share_changes_and_return_them_when_stopped(run, opened, news, table, *, slow, clock, blocking):
    await news.tables.follow(**table.options(changes="trigger"))
    await opened.work(drain=True)
    table.update(0, body="cherry")
    working = asyncio.create_task(slow.work())
    await reached(blocking)
    table.update(1, body="banana")
    await opened.work(drain=True)  # and waits for nobody
    assert await rows(news) == {"articles/0": "apple", "articles/1": "banana", "articles/2": "apple"}
    working.cancel()
    await clock.eventually_waited(STOP_SECONDS)
    blocking.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    await opened.work(drain=True)
    assert (await rows(news))["articles/0"] == "cherry"
    assert await run("SELECT count(*) FROM semlex.row_change") == [(0,)]


async def test_one_worker_looks_at_a_table_and_its_lease_ends(run, opened, news, table, *, slow, clock, blocking):
    await news.tables.follow(**table.options())
    working = asyncio.create_task(slow.work(lease=120))
    await reached(blocking)
    await opened.work(drain=True)
    assert await rows(news) == {}
    lease = "SELECT leased_until > now() + interval '100 s' FROM semlex.followed_table"
    await run("UPDATE semlex.followed_table SET leased_until = now() + interval '1 s'")
    await clock.eventually_waited(40)
    clock.advance(40)
    await until_found(clock, [(True,)], lambda: run(lease), 0)  # renewed
    await run("UPDATE semlex.followed_table SET leased_until = now()")  # as if it had been silent
    await opened.work(drain=True)
    assert len(await rows(news)) == 3
    blocking.may_go_on.set()
    await until_found(clock, [(None,)], lambda: run("SELECT leased_until FROM semlex.followed_table"), 0)
    assert len(await rows(news)) == 3
    await cancel(working)


@pytest.mark.parametrize("way", WAYS)
async def test_a_table_waits_no_longer_than_a_lease_after_the_clock_stepped_back(run, opened, news, table, way):
    keys = {"keys_every": 3_600} if way == "column" else {}
    await news.tables.follow(**table.options(**{**WAYS[way], **keys}))
    await opened.work(drain=True)
    # A worker died that had the lease, and a row is deleted that only a comparison of all keys shows.
    await run("UPDATE semlex.followed_table SET leased_until = now() + interval '1 min'")
    table.delete(2)
    await run("DELETE FROM semlex.row_change")
    jump_clock(table.connection, "semlex", -7_200)
    if way == "column":
        ahead = "watermark = split_part(watermark, ' ', 1) || ' ' || (now() + interval '2 h')::text"
        await run(f"UPDATE semlex.followed_table SET {ahead}")
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    await opened.work(drain=True, compare_every=60)
    jump_clock(table.connection, "semlex", 60)
    await opened.work(drain=True, compare_every=60)
    assert await rows(news) == EXPECTED


async def test_a_collection_is_dropped_while_a_worker_runs(database_url, run, table, clock):
    told = []
    async with client(database_url, clock=clock) as opened:
        for _ in range(2):
            news = opened.collection("news")
            working = asyncio.create_task(opened.work(tell=told.append))
            await news.tables.follow(**table.options(changes="trigger"))
            await until_found(clock, 3, news.count)
            table.update(1, body="cherry")
            dropping = asyncio.create_task(news.drop())
            await clock.passes_until(dropping.done, worker_tables.WATCHING_SECONDS)
            await dropping
            table.update(1, body="banana")
            await cancel(working)
        assert not [line for line in told if "failed" in line or "could not" in line]
        # Entries of transactions that ended later.
        row = "(source_id, row_key, due_at, attempts) VALUES (gen_random_uuid(), '1', now(), 0)"
        await run(f"INSERT INTO semlex.row_change {row}")
        await opened.work(drain=True)
        assert await run("SELECT count(*) FROM semlex.row_change") == [(0,)]
