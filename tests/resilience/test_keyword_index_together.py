"""The keyword index under everybody at once, and under those who are killed: no answer is wrong, nothing is lost."""

import asyncio
import logging
import random
from functools import partial

import psycopg
import pytest

from semlex.proof.check import plain_bm25
from semlex.store.keyword.bm25 import rebuild
from semlex.store.write.copy import BulkIngestConfig
from tests.support.clients import keyword_index_client
from tests.support.clients.keyword_index_client import IDS, WORDS, some_documents
from tests.support.keyword_index import bm25, check_index
from tests.support.programs import Program
from tests.support.retrievers import sync_opened

WRITERS, SEARCHERS = 4, 2


async def write(retriever, numbers):
    duplicate = numbers.choice(["update", "update", "update", "skip"])
    await retriever.add_documents(some_documents(numbers, numbers.choice([1, 2, 5, 30])), on_duplicate=duplicate)


async def delete(retriever, numbers):
    await retriever.delete([f"d{number}" for number in numbers.sample(range(IDS), 5)])


class Together:
    """Writers, a deleter, a merger, a rebuilder and searchers on one collection, until enough answers were checked."""

    def __init__(self, url, answers):
        self.url, self.wanted = url, answers
        self.checked = self.found = 0
        self.done = dict.fromkeys(("write", "delete", "merge", "rebuild"), 0)

    async def run(self):
        async with bm25(self.url, bulk=BulkIngestConfig(small_batch_rows=8)) as retriever:
            await retriever.add_documents(some_documents(random.Random(0), 200))
            tasks = [
                *(self._again("write", partial(write, retriever, random.Random(f"write {n}"))) for n in range(WRITERS)),
                self._again("delete", partial(delete, retriever, random.Random("delete"))),
                self._again("merge", retriever.indexes.optimize),
                self._again("rebuild", retriever.indexes.rebuild_keyword),
                *map(self._search, range(SEARCHERS)),
            ]
            await asyncio.gather(*tasks)

    async def _again(self, name, work):
        while self.checked < self.wanted or not all(self.done.values()):
            await work()
            self.done[name] += 1
            await asyncio.sleep(0)

    async def _search(self, seed):
        numbers = random.Random(f"search {seed}")
        async with (
            await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection,
            bm25(connection=connection) as retriever,
        ):
            while self.checked < self.wanted:
                query = " ".join(numbers.choices(WORDS, k=numbers.randint(1, 4)))
                async with connection.transaction():
                    await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    hits = await retriever.search(query, 1000, mode="keyword")
                    cursor = await connection.execute("SELECT chunk_id, chunk_text FROM semlex.words_chunk")
                    texts = {chunk_id: ("english", text) for chunk_id, text in await cursor.fetchall()}
                assert [warning for warning in hits.warnings if "no word" not in warning] == []
                expected = await asyncio.to_thread(plain_bm25, texts, query)
                assert {hit.id: hit.keyword_score for hit in hits} == pytest.approx(expected, rel=1e-9)
                self.checked += 1
                self.found += len(hits)


@pytest.mark.timeout(3600)
async def test_everybody_at_once(database_url, full, caplog, monkeypatch):
    """Every answer is that of a plain BM25 over the texts of the same snapshot, and nobody deadlocks."""
    monkeypatch.setattr(rebuild, "PAGE_ROWS", 50)
    caplog.set_level(logging.INFO, "semlex")
    together = Together(database_url, 1_000 if full else 50)
    await together.run()
    assert together.checked >= together.wanted
    assert together.found > together.checked
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [text for level, text in told if level >= logging.WARNING or "40P01" in text] == []
    check_index(database_url)
    async with bm25(database_url) as retriever:
        await retriever.indexes.rebuild_keyword()
        await retriever.indexes.optimize()
    assert check_index(database_url)["tombstones"] == 0


# What runs, and the transaction, the moment and at which of its times it is killed.
KILLS = [
    ("write", ("add documents", "committed", 3)),
    ("write", ("add documents", "worked", 2)),
    ("write", ("delete", "worked", 1)),
    ("merge", ("merge the keyword index", "worked", 1)),
    ("merge", ("merge the keyword index", "committed", 2)),
    ("rebuild", ("begin to rebuild the keyword index", "committed", 1)),
    ("rebuild", ("write a segment", "worked", 1)),
    ("rebuild", ("write a segment", "committed", 2)),
    ("rebuild", ("switch to the rebuilt keyword index", "worked", 1)),
    ("rebuild", ("switch to the rebuilt keyword index", "committed", 1)),
    ("rebuild", ("remove the old keyword index", "worked", 2)),
]


@pytest.mark.timeout(3600)
def test_the_index_survives_those_who_are_killed(database_url, full):
    """Each finds what those before it have left."""
    with sync_opened(database_url, "none", keyword="bm25", collection="words") as retriever:
        retriever.add_documents(some_documents(random.Random(7), 200))
    for what, moment in random.sample(KILLS, len(KILLS)) * (12 if full else 1):
        with Program(keyword_index_client.main, database_url, what, random.getrandbits(32), moment) as client:
            client.until_stopped()
            client.kill()
        check_index(database_url)
