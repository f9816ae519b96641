"""A few rows that are new: one round trip, what a general write would have left, and nothing where they are not new."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool

from semlex.errors import CollectionNotFoundError, DuplicateError, ModelMismatchError
from semlex.store.keyword.bm25 import segments
from semlex.testing import HashEmbedder
from semlex.types.documents import Document
from tests.support.databases import execute
from tests.support.keyword_index import check_index
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_opened

pytestmark = pytest.mark.pg16

DIMENSIONS = 4


retriever_of = partial(opened, collection="words")


def vectors(count):
    return np.arange(1, count * DIMENSIONS + 1, dtype=np.float32).reshape(count, DIMENSIONS)


def waits(trace):
    """How often the client waited for the server, by libpq's trace: an answer behind something that was sent."""
    sides = [line.split("\t")[1] for line in trace.splitlines() if line.count("\t") > 1]
    return sum(pair == ("F", "B") for pair in itertools.pairwise(sides))


@pytest.mark.parametrize("keyword", ["bm25", "tsvector", "none"])
async def test_new_rows_take_one_round_trip(database_url, keyword):
    own = {"autocommit": True, "prepare_threshold": None}
    async with (
        AsyncConnectionPool(database_url, min_size=1, max_size=1, kwargs=own, open=False) as pool,
        retriever_of(model="none", pool=pool, keyword=keyword) as retriever,
    ):
        await retriever.add_documents([Document("first", id="first")], vectors(1))
        for attempt, count in enumerate((1, 1, 20, 20)):
            added = [Document("a cat", id=f"{attempt}-{number}") for number in range(count)]
            with tempfile.TemporaryFile() as trace:
                async with pool.connection() as connection:
                    connection.pgconn.trace(trace.fileno())
                await retriever.add_documents(added, vectors(count))
                async with pool.connection() as connection:
                    connection.pgconn.untrace()
                trace.seek(0)
                assert waits(trace.read().decode("utf-8", "replace")) == 1
        assert await retriever.count() == 43
        hits = await retriever.search(vector=vectors(1)[0], top_k=100)
        assert {hit.id for hit in hits} == {document.id for document in await retriever.list_chunks(limit=1000)}
    if keyword == "bm25":
        check_index(database_url)


ids = st.integers(0, 12).map("d{}".format)
writes = st.tuples(
    st.sampled_from(["update", "skip", "fail"]),
    st.integers(0, 1),
    st.dictionaries(ids, st.sampled_from(["a cat", "two dogs", "three ships"]), min_size=1, max_size=4),
)
changes = st.tuples(st.sampled_from(["rebuild", "delete", "optimize"]), st.integers(0, 1), st.just({}))


@pytest.mark.slow
def test_two_writers_leave_what_a_dict_holds(database_url):
    """Whatever one of them has remembered while the other changed the rows, or the generations of the index."""
    model = HashEmbedder(8)
    with (
        sync_opened(database_url, model, collection="words") as a,
        sync_opened(database_url, model, collection="words") as b,
    ):

        @settings(OWN_ROWS, max_examples=examples(15))
        @given(steps=st.lists(st.one_of(writes, writes, writes, changes), min_size=1, max_size=12))
        def check(steps):
            stored = {}
            a.delete([f"d{number}" for number in range(13)])
            for kind, writer, texts in steps:
                retriever = (a, b)[writer]
                if kind == "rebuild":
                    retriever.indexes.rebuild_keyword()
                elif kind == "optimize":
                    retriever.indexes.optimize()
                elif kind == "delete":
                    retriever.delete(sorted(stored)[:2])
                    stored = dict(sorted(stored.items())[2:])
                else:
                    _write(retriever, kind, texts, stored)
                check_index(database_url)
            assert {document.id: document.content for document in a.get(sorted(stored))} == stored
            assert a.count() == len(stored)
            for name, text in stored.items():
                [hit] = [hit for hit in b.search(text, mode="vector", top_k=20) if hit.id == name]
                assert hit.vector_score == pytest.approx(1.0, abs=1e-5)

        check()


def _write(retriever, kind, texts, stored):
    documents = [Document(text, id=name) for name, text in texts.items()]
    on_duplicate = kind
    if kind == "fail" and stored.keys() & texts.keys():
        with pytest.raises(DuplicateError):
            retriever.add_documents(documents, on_duplicate=on_duplicate)
        return
    retriever.add_documents(documents, on_duplicate=on_duplicate)
    new = stored | texts if kind != "skip" else texts | stored
    stored.update(new)


@pytest.mark.slow
async def test_many_at_a_time(database_url):
    """Of what a process has remembered, ids are used once."""
    async with retriever_of(database_url, "none") as retriever:
        await retriever.add_documents([Document("first", id="first")])
        calls = [[Document(f"cat {number}", id=f"d{number % 25}")] for number in range(50)]
        await asyncio.gather(*(retriever.add_documents(call) for call in calls))
        assert await retriever.count() == 26
    check_index(database_url)
    assert execute(database_url, "SELECT count(*), count(DISTINCT keyword_id) FROM semlex.words_chunk") == [(26, 26)]


async def test_a_collection_that_is_another_one_now_is_not_written_to(database_url):
    async with retriever_of(database_url, "none") as retriever, retriever_of(database_url, "none") as other:
        await retriever.add_documents([Document("one", id="one")])
        await retriever.add_documents([Document("two", id="two")])
        await other.drop_collection()
        async with retriever_of(database_url, "none") as again:
            await again.add_documents([Document("theirs", id="theirs")])
            with pytest.raises(CollectionNotFoundError, match="was dropped"):
                await retriever.add_documents([Document("three", id="three")])
            assert [document.id for document in await again.list_chunks()] == ["theirs"]


async def test_vectors_that_were_dropped_are_not_written_to(database_url):
    first, second = HashEmbedder(8), HashEmbedder(16)
    async with retriever_of(database_url, first) as old:
        for name in ("one", "two"):
            await old.add_documents([Document(name, id=name)])
        async with retriever_of(database_url, "none") as plain:
            await plain.embeddings.change(second)
            await plain.embeddings.drop(1, force=True)
        with pytest.raises(ModelMismatchError):
            await old.add_documents([Document("three", id="three")])
        assert await old.count() == 2


async def test_texts_that_take_more_than_one_statement(database_url, monkeypatch):
    monkeypatch.setattr(segments, "FEW_POSTING_ROWS", 2)
    words = " ".join(f"word{number * 7919}" for number in range(3000))
    async with retriever_of(database_url, "none") as retriever:
        for number in range(4):
            await retriever.add_documents([Document(f"{words} {number}", id=f"d{number}")])
        assert await retriever.count() == 4
    check_index(database_url)
