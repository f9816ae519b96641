"""A worker keeps followed tables in step, beside other workers and whatever fails."""

import asyncio

import pytest

from semlex.errors import CollectionNotFoundError
from semlex.jobs import tables as worker_tables
from semlex.jobs.worker import STOP_SECONDS
from semlex.store.proving import jump_clock
from tests.support.followed import WAYS, articles
from tests.support.job_clients import client, reached, sql
from tests.support.waiting import eventually

LOOK = "UPDATE semlex.followed_table SET look_at = now()"


@pytest.fixture
def table(database_url):
    with articles(database_url, rows=3) as table:
        yield table


@pytest.fixture
def news(opened):
    return opened.collection("news")


async def beside(url, statement):
    """Runs a statement that may wait for a worker of this event loop."""
    return await asyncio.to_thread(sql, url, statement)


async def cancel(working):
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def rows(news):
    """What the collection holds of a table: body of each row, by its document."""
    return {str(chunk.source_document): chunk.content.split()[-1] for chunk in await news.list_chunks()}


EXPECTED = {"articles/0": "apple", "articles/1": "cherry", "articles/3": "banana"}


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_due_of_a_table_is_stored(database_url, opened, news, table, way):
    told = []
    await news.tables.follow(**table.options(**WAYS[way]))
    assert await opened.work(drain=True, tell=told.append) == 0
    assert told == ["table news/articles: 3 added"]
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    table.delete(2)
    await opened.work(drain=True, compare_every=60, tell=told.append)
    if way != "trigger":
        assert len(told) == 1  # not due
        await beside(database_url, LOOK)
        await opened.work(drain=True, compare_every=60, tell=told.append)
    assert told[1:] == ["table news/articles: 1 added, 1 changed, 1 deleted"]
    assert await rows(news) == EXPECTED
    await beside(database_url, LOOK)
    await opened.work(drain=True, compare_every=60, tell=told.append)
    assert len(told) == 2
    next_in = "SELECT round(extract(epoch FROM look_at - synced_at))::int FROM semlex.followed_table"
    assert await beside(database_url, next_in) == [({"comparison": 60, "column": 5, "trigger": 60}[way],)]


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


async def test_a_change_is_searched_while_a_worker_runs(database_url, table, clock):
    async with client(database_url, clock=clock) as opened:
        news = opened.collection("news")
        working = asyncio.create_task(opened.work())
        # A worker without tables looks for them rarely.
        await clock.eventually_waited(worker_tables.IDLE_SECONDS)
        await news.tables.follow(**table.options(changes="trigger"))
        await clock.passes_until(lambda: worker_tables.WATCHING_SECONDS in clock.waits)
        assert worker_tables.IDLE_SECONDS not in clock.waits

        async def holds(expected):
            clock.advance(worker_tables.WATCHING_SECONDS)
            return {hit.key for hit in await news.search("apple cherry", 10)} == expected

        await eventually(lambda: holds({0, 1, 2}))
        table.insert(3, body="cherry")
        await eventually(lambda: holds({0, 1, 2, 3}))
        table.connection.execute("BEGIN; DELETE FROM shop.articles WHERE id = 1; ROLLBACK")
        table.delete(2)
        await eventually(lambda: holds({0, 1, 3}))
        # A partition or a table without triggers gets them, and all rows are compared.
        await beside(database_url, "ALTER TABLE shop.articles ALTER body TYPE text USING 'cherry'")
        await beside(database_url, LOOK)

        async def all_are_cherries():
            clock.advance(worker_tables.WATCHING_SECONDS)
            return set((await rows(news)).values()) == {"cherry"}

        await eventually(all_are_cherries)
        await cancel(working)


async def test_a_table_that_fails_is_reported_once_and_keeps_no_other_waiting(database_url, table, clock):
    told = []
    with articles(database_url, schema="other", rows=1) as second:
        async with client(database_url, clock=clock) as opened:
            news = opened.collection("news")
            await news.tables.follow(**table.options(changes="trigger"))
            await news.tables.follow(**second.options(name="others", changes="trigger"))
            await opened.work(drain=True)
            table.connection.execute("ALTER TABLE shop.articles RENAME body TO content")
            await beside(database_url, LOOK)
            working = asyncio.create_task(opened.work(tell=told.append))
            table.connection.execute("UPDATE shop.articles SET content = 'cherry'")  # of a user, who notices nothing
            second.update(0, body="cherry")

            await clock.passes_until(lambda: any("has no column 'body'" in line for line in told))
            for number in range(4):
                await beside(database_url, LOOK)
                await beside(database_url, "UPDATE semlex.row_change SET due_at = now()")
                second.update(0, author=f"author {number}")
                stored = told.count("table news/others: 1 changed")
                await clock.passes_until(
                    lambda stored=stored: told.count("table news/others: 1 changed") > stored,
                    worker_tables.LAST_PAUSE_SECONDS,
                )
            failed = [line for line in told if "news/articles could not be synced" in line]
            assert len(failed) <= 2  # looked at, changes stored
            [status, _] = await news.tables.followed()
            assert "has no column 'body'" in (status.error or "")
            assert len(await rows(news)) == 4
            await news.tables.change("articles", text=["title", "content"])
            await clock.passes_until(lambda: any("articles is synced again" in line for line in told))

            async def is_in_step():
                clock.advance(worker_tables.LAST_PAUSE_SECONDS)
                return set((await rows(news)).values()) == {"cherry"}

            await eventually(is_in_step)
            await cancel(working)


async def test_workers_share_changes_and_one_that_is_stopped_gives_its_own_back(
    database_url, opened, news, table, *, slow, clock, blocking
):
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
    assert await beside(database_url, "SELECT count(*) FROM semlex.row_change") == [(0,)]


async def test_one_worker_looks_at_a_table_and_its_lease_ends(
    database_url, opened, news, table, *, slow, clock, blocking
):
    await news.tables.follow(**table.options())
    working = asyncio.create_task(slow.work(lease=120))
    await reached(blocking)
    await opened.work(drain=True)
    assert await rows(news) == {}
    lease = "SELECT leased_until > now() + interval '100 s' FROM semlex.followed_table"
    await beside(database_url, "UPDATE semlex.followed_table SET leased_until = now() + interval '1 s'")
    await clock.eventually_waited(40)
    clock.advance(40)
    await eventually(lambda: sql(database_url, lease) == [(True,)])  # renewed
    await beside(database_url, "UPDATE semlex.followed_table SET leased_until = now()")  # as if it had been silent
    await opened.work(drain=True)
    assert len(await rows(news)) == 3
    blocking.may_go_on.set()
    await eventually(lambda: sql(database_url, "SELECT leased_until FROM semlex.followed_table") == [(None,)])
    assert len(await rows(news)) == 3
    await cancel(working)


@pytest.mark.parametrize("way", WAYS)
async def test_a_table_waits_no_longer_than_a_lease_after_the_clock_stepped_back(
    database_url, opened, news, table, way
):
    keys = {"keys_every": 3_600} if way == "column" else {}
    await news.tables.follow(**table.options(**{**WAYS[way], **keys}))
    await opened.work(drain=True)
    # A worker died that had the lease, and a row is deleted that only a comparison of all keys shows.
    await beside(database_url, "UPDATE semlex.followed_table SET leased_until = now() + interval '1 min'")
    table.delete(2)
    await beside(database_url, "DELETE FROM semlex.row_change")
    jump_clock(table.connection, "semlex", -7_200)
    if way == "column":
        ahead = "split_part(watermark, ' ', 1) || ' ' || (now() + interval '2 h')::text"
        await beside(database_url, "UPDATE semlex.followed_table SET watermark = " + ahead)  # noqa: S608
    table.insert(3, body="banana")
    table.update(1, body="cherry")
    await opened.work(drain=True, compare_every=60)
    jump_clock(table.connection, "semlex", 60)
    await opened.work(drain=True, compare_every=60)
    assert await rows(news) == EXPECTED


async def test_a_collection_is_dropped_while_a_worker_runs(database_url, table, clock):
    told = []
    async with client(database_url, clock=clock) as opened:
        for _ in range(2):
            news = opened.collection("news")
            working = asyncio.create_task(opened.work(tell=told.append))
            await news.tables.follow(**table.options(changes="trigger"))

            async def is_stored(news=news):
                clock.advance(worker_tables.WATCHING_SECONDS)
                return len(await rows(news)) == 3

            await eventually(is_stored)
            table.update(1, body="cherry")
            dropping = asyncio.create_task(news.drop())
            await clock.passes_until(dropping.done, worker_tables.WATCHING_SECONDS)
            await dropping
            table.update(1, body="banana")
            await cancel(working)
        assert not [line for line in told if "failed" in line]
        # Entries of transactions that ended later.
        columns = "source_id, row_key, due_at, attempts"
        sql(database_url, f"INSERT INTO semlex.row_change ({columns}) VALUES (gen_random_uuid(), '1', now(), 0)")  # noqa: S608
        await opened.work(drain=True)
        assert await beside(database_url, "SELECT count(*) FROM semlex.row_change") == [(0,)]
