"""A standby that is promoted in the middle of work: clients that name both servers find the new primary."""

import asyncio
from contextlib import suppress

import psycopg
import pytest

from semlex import Client, Document
from semlex.errors import ReadOnlyError, StoreError
from semlex.testing import HashEmbedder
from tests.support.folders import new_open_folder
from tests.support.keyword_index import check_index
from tests.support.retrievers import opened
from tests.support.standbys import replicated
from tests.support.waiting import eventually

BEFORE, ROWS = 15, 30


@pytest.fixture
def pair(make_server_folder):
    """Commits wait for the standby, so that none is lost with the primary."""
    with new_open_folder() as folder, replicated(folder, make_server_folder) as pair:
        with psycopg.connect(pair.primary, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        yield pair


class Work:
    """Writes one document after another, each until it is stored, while a worker runs jobs and searches go on."""

    def __init__(self, url):
        self.url, self.stored, self.refused, self.searches = url, [], [], 0

    async def write(self, count):
        async with opened(self.url, 16, collection="words", timeout=3) as retriever:  # expires
            for number in range(count):
                name = f"d{number:03}"
                while name not in self.stored:
                    try:
                        await retriever.add_documents([Document(f"stone cloud n{number}", id=name)])
                        self.stored.append(name)
                    except StoreError as error:
                        self.refused.append(error)

    async def search(self):
        async with opened(self.url, 16, collection="words", timeout=3) as retriever:  # expires
            while True:
                with suppress(StoreError):  # while no primary is there
                    known = {*self.stored}
                    found = {hit.id for hit in await retriever.search("stone", 1000, mode="keyword")}
                    assert known <= found
                    self.searches += 1
                await asyncio.sleep(0)


@pytest.mark.parametrize("attribute", ["read-write", "primary"])
async def test_writes_searches_and_jobs_go_on(pair, attribute):
    url = pair.both(target_session_attrs=attribute)
    work = Work(url)
    async with Client(url, HashEmbedder(16), use_reranking=False, timeout=3) as client:  # expires
        jobs = [
            await client.collection("jobs").jobs.submit("add", {"documents": [Document(f"job {n}", id=f"j{n}")]})
            for n in range(20)
        ]
        tasks = [asyncio.create_task(one) for one in (work.write(ROWS), work.search())]
        working = asyncio.create_task(client.work())
        await eventually(lambda: len(work.stored) >= BEFORE and work.searches > 0)
        await asyncio.to_thread(pair.stop_primary)
        searches = work.searches
        await asyncio.to_thread(pair.promote)
        await tasks[0]
        await eventually(lambda: work.searches > searches)

        async def all_done():
            return {(await job.status()).state for job in jobs} == {"done"}

        await eventually(all_done)
        assert await client.collection("jobs").count() == len(jobs)
        for task in (tasks[1], working):
            task.cancel()
        await asyncio.wait([*tasks, working])
        found = await client.collection("words").get(work.stored)
        assert [one.id for one in found] == [f"d{number:03}" for number in range(ROWS)]
        assert await client.collection("words").count() == ROWS
    # What was tried meanwhile was refused with an error that says which servers were tried.
    assert all(not isinstance(error, ReadOnlyError) for error in work.refused)
    for name in ("words", "jobs"):
        check_index(pair.standby, name)


async def test_a_client_may_want_a_standby(pair):
    async with opened(pair.primary, 16, collection="words") as primary:
        await primary.add_documents([Document("stone", id="stone")])
        await pair.catch_up()
        for attribute in ("standby", "prefer-standby"):
            async with opened(pair.both(target_session_attrs=attribute), 16, collection="words") as standby:
                assert [hit.id for hit in await standby.search("stone")] == ["stone"]
                with pytest.raises(ReadOnlyError, match="primary"):
                    await standby.add_documents([Document("cloud")])
