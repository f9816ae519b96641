"""What a write leaves in the keyword index: every text once, nothing of what is gone; new rows in one round trip."""

import asyncio
import itertools
import tempfile
from contextlib import nullcontext
from functools import partial

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg_pool import AsyncConnectionPool

from semlex import BulkIngestConfig, Document
from semlex.errors import DuplicateError, ModelMismatchError, ValidationError
from semlex.store.keyword.bm25 import segments
from semlex.store.keyword.bm25 import write as writing
from semlex.store.schema.migrations import m0001_initial
from semlex.store.segments import SEGMENT_CHUNKS
from semlex.store.write import chunk_batch
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.keyword_index import bm25, check_index, filled_bm25, index_figures, many
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import sync_opened

pytestmark = pytest.mark.pg16

CHUNK, SEGMENT = "semlex.words_chunk", "semlex.words_segment"
WORDS = ("cat", "cats", "dog", "running", "ships", "the", "naïve", "Zürich", "v1.2", "snake_case")
numbered = itertools.count()


def one(url, columns, table=CHUNK):
    """What one row of a query holds."""
    found = execute(url, f"SELECT {columns} FROM {table}")
    return found[0][0] if len(found[0]) == 1 else found[0]


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
ids = st.integers(0, 40).map("d{}".format)
values = st.tuples(texts, st.sampled_from([None, "english", "spanish", "de"]))
documents = st.dictionaries(ids, values, min_size=1, max_size=12)
writes = [st.tuples(st.just(kind), documents) for kind in ("update", "skip")]
steps = st.lists(st.one_of(*writes, st.tuples(st.just("delete"), st.sets(ids, min_size=1))), min_size=1, max_size=6)


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(12))
@given(steps=steps, small=st.sampled_from([0, 3, 64]), embedder=st.booleans())
async def test_the_index_is_that_of_the_texts(database_url, looking, steps, small, embedder):
    """Whatever is added, replaced, left alone or deleted, and on whichever way."""
    collection = f"words_{next(numbered)}"
    bulk_options = BulkIngestConfig(small_batch_rows=small, batch_size=7)
    model = HashEmbedder(8) if embedder else "none"
    async with bm25(database_url, model=model, collection=collection, bulk=bulk_options) as retriever:
        stored = {}
        for kind, value in steps:
            if kind == "delete":
                assert (await retriever.delete(sorted(value))).chunks == len(stored.keys() & value)
                stored = {name: text for name, text in stored.items() if name not in value}
            else:
                added = [Document(text, id=name, language=language) for name, (text, language) in value.items()]
                await retriever.add_documents(added, on_duplicate=kind)
                new = {name: text for name, (text, _) in value.items()}
                stored = stored | new if kind == "update" else new | stored
            check_index(looking, collection)
        found = await retriever.get(sorted(stored))
    assert {document.id: document.content for document in found} == stored


@pytest.mark.parametrize("count", [3, 200], ids=["arrays", "staged"])
async def test_a_text_that_did_not_change_keeps_what_the_index_has_of_it(database_url, count):
    async with filled_bm25(database_url, many(200)) as retriever:
        before = one(database_url, "array_agg(keyword_id ORDER BY chunk_id)")
        await retriever.add_documents(many(count))
        assert one(database_url, "array_agg(keyword_id ORDER BY chunk_id)") == before
        assert index_figures(database_url, "segments", "tombstones") == (1, 0)
        # Another language is another analysis of the same text.
        await retriever.add_documents(many(count, languages=["es"]))
        assert index_figures(database_url, "segments", "tombstones", "dead") == (2, 1, count)


@pytest.mark.parametrize("count", [3, 200], ids=["arrays", "staged"])
async def test_a_changed_text_gets_a_new_id_and_skipping_indexes_what_is_new_alone(database_url, count):
    async with filled_bm25(database_url, many(count + 1)) as retriever:
        await retriever.add_documents(many(count, "a dog"))
        assert index_figures(database_url, "segments", "tombstones", "dead") == (2, 1, count)
        assert one(database_url, "count(*) FILTER (WHERE previous_id <> keyword_id)") == count
        for _ in range(2):
            await retriever.add_documents(many(count + 2, "a ship", start=1), on_duplicate="skip")
            assert index_figures(database_url, "segments", "tombstones") == (3, 1)
            assert one(database_url, "min(chunks)", SEGMENT) == 2


async def test_rows_that_come_with_and_without_vectors(database_url):
    """Rows are inserted first and updated then: they are new all the same."""
    async with filled_bm25(database_url, many(100), model=8) as retriever:
        changed = [*many(50), *many(30, "a dog", start=50), *many(20, "a ship", start=100)]
        for size in (len(changed), 20):
            await retriever.add_documents(changed[:size])
            check_index(database_url)
        assert one(database_url, "count(*), max(chunks)", SEGMENT) == (2, 100)


async def test_files_that_change(database_url, tmp_path):
    def write(name, *paragraphs):
        body = "\n\n".join(f"## Part {number}\n\n{text} " * 30 for number, text in enumerate(paragraphs))
        (tmp_path / name).write_text(f"# {name}\n\n{body}")

    async with bm25(database_url) as retriever:
        for name in ("a.md", "b.md"):
            write(name, "Cats sleep.", "Dogs run.", "Ships sail.")
        await retriever.index(tmp_path, chunk_tokens=50, overlap_tokens=0)
        chunks = await retriever.count()
        assert chunks > 6
        check_index(database_url)
        write("a.md", "Cats sleep.", "Dogs bark.")
        report = await retriever.index(tmp_path, chunk_tokens=50, overlap_tokens=0)
        assert (report.changed, report.unchanged) == (1, 1)
        assert check_index(database_url)["tombstones"] == 1
        assert await retriever.count() < chunks


async def test_each_language_has_a_segment_and_unknown_ones_are_refused_with_every_row(database_url):
    wrong = [Document("x", id="a", language="klingon"), Document("x", id="b", language="en")]
    wrong += [Document("", id="c", language=""), Document("x", language=7)]
    named = [None, "en", "english", "es", "german", None]
    async with bm25(database_url, language="de") as retriever:
        with pytest.raises(ValidationError) as caught:
            await retriever.add_documents(wrong)
        found = [(error.row, error.id, error.field, error.code) for error in caught.value.errors]
        assert found == [
            (0, "a", "language", "unknown_language"),
            (2, "c", "content", "too_short"),
            (2, "c", "language", "unknown_language"),
            (3, None, "language", "wrong_type"),
        ]
        assert await retriever.count() == 0
        await retriever.add_documents(many(6, languages=named))
        check_index(database_url)
        stored = [document.language for document in await retriever.get([f"d{n}" for n in range(6)])]
        assert stored == [None, "english", "english", "spanish", "german", None]
    rows = execute(database_url, f"SELECT language, chunks FROM {SEGMENT} ORDER BY 1")
    assert rows == [("english", 2), ("german", 3), ("spanish", 1)]


@pytest.mark.parametrize("empty", [True, False], ids=["direct", "staged"])
async def test_a_batch_that_needs_several_segments(database_url, monkeypatch, empty):
    monkeypatch.setattr(writing, "SEGMENT_CHUNKS", 50)
    async with bm25(database_url) as retriever:
        if not empty:
            await retriever.add_documents(many(1, start=1000))
        await retriever.add_documents(many(180, languages=("spanish", None, None)))
        assert check_index(database_url)["segments"] == 5 + (not empty)


async def test_every_way_writes_the_same_bytes(database_url, monkeypatch):
    """By statement or by COPY: no row of the index is changed on its way."""
    for number, few in enumerate((0, 10_000)):
        monkeypatch.setattr(segments, "FEW_POSTING_ROWS", few)
        async with bm25(database_url, collection=f"words_few_{number}") as retriever:
            texts = [" ".join(f"word{n % (row + 7)}" for n in range(500)) for row in range(100)]
            await retriever.add_texts(texts, ids=[f"d{row}" for row in range(100)])
            check_index(database_url, f"words_few_{number}")


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_the_index_joins_the_users_transaction(database_url, commits):
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        filled_bm25(None, many(5), connection=connection) as retriever,
    ):
        async with connection.transaction() as transaction:
            for round_ in range(12):
                await retriever.add_documents(many(3, f"a dog of round {round_}", start=3))
            await retriever.add_documents(many(200, start=10))
            await retriever.delete(["d0"])
            assert check_index(database_url)["segments"] == 1
            if not commits:
                raise psycopg.Rollback(transaction)
        assert check_index(database_url)["segments"] == (14 if commits else 1)
        assert await retriever.indexes.optimize() == (14 if commits else 0)
        async with connection.transaction():
            with pytest.raises(ValueError, match="its own transaction"):
                await retriever.indexes.optimize()
            await retriever.add_documents(many(1, start=1000))
    assert check_index(database_url)["segments"] == 2


async def test_a_batch_that_fails_leaves_nothing(database_url, monkeypatch):
    async def failing(*_):
        raise RuntimeError

    async with filled_bm25(database_url, many(10)) as retriever:
        monkeypatch.setattr(writing, "write_segments", failing)
        for count in (3, 100):
            with pytest.raises(RuntimeError):
                await retriever.add_documents(many(count, "a dog"))
        with pytest.raises(RuntimeError):
            await retriever.delete(["d1"])
        assert await retriever.count() == 10
    assert check_index(database_url)["segments"] == 1


async def test_writers_feed_the_generation_in_the_making(database_url):
    async with filled_bm25(database_url, many(2)) as retriever:
        begun = "building_generation = 2, building_analyzer_version = analyzer_version"
        execute(database_url, f"UPDATE semlex.collection SET {begun}")
        await retriever.add_documents(many(2, "a dog", start=1))
        await retriever.add_documents(many(100, start=100))
        await retriever.delete(["d2", "d100"])
        check_index(database_url)
        execute(database_url, "UPDATE semlex.collection SET keyword_generation = 2, building_generation = NULL")
        execute(database_url, f"DELETE FROM {CHUNK} WHERE chunk_id = 'd0'")
        assert check_index(database_url)["segments"] == 2


async def test_other_engines_have_no_index_of_ours(database_url):
    async with filled_bm25(database_url, [Document("a cat", id="d0", language="es")], keyword="tsvector") as retriever:
        assert await retriever.indexes.optimize() == 0
        status = await retriever.status()
        assert status.index_segments is None
        assert "index_segments" not in status.to_dict()
        assert (await retriever.get(["d0"]))[0].language == "spanish"
    assert one(database_url, "max(to_regclass('semlex.words_segment')::text)") is None


def test_a_block_of_ids_is_as_large_as_a_segment():
    assert m0001_initial.ID_BLOCK == SEGMENT_CHUNKS
    assert "keyword_id" not in chunk_batch.COLUMN_NAMES


DIMENSIONS = 4


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
        filled_bm25(None, {"first": "first"}, vectors=vectors(1), pool=pool, keyword=keyword) as retriever,
    ):
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


few_ids = st.integers(0, 12).map("d{}".format)
row_writes = st.tuples(
    st.sampled_from(["update", "skip", "fail"]),
    st.integers(0, 1),
    st.dictionaries(few_ids, st.sampled_from(["a cat", "two dogs", "three ships"]), min_size=1, max_size=4),
)
changes = st.tuples(st.sampled_from(["rebuild", "delete", "optimize"]), st.integers(0, 1), st.just({}))


@pytest.mark.slow
def test_two_writers_leave_what_a_dict_holds(database_url, looking):
    """Whatever one of them has remembered while the other changed the rows, or the generations of the index."""
    open_one = partial(sync_opened, database_url, HashEmbedder(8), collection="words")
    with open_one() as a, open_one() as b:

        @settings(OWN_ROWS, max_examples=examples(15))
        @given(steps=st.lists(st.one_of(row_writes, row_writes, row_writes, changes), min_size=1, max_size=12))
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
                    added = [Document(text, id=name) for name, text in texts.items()]
                    fails = kind == "fail" and stored.keys() & texts.keys()
                    with pytest.raises(DuplicateError) if fails else nullcontext():
                        retriever.add_documents(added, on_duplicate=kind)
                        stored = texts | stored if kind == "skip" else stored | texts
                check_index(looking)
            assert {document.id: document.content for document in a.get(sorted(stored))} == stored
            assert a.count() == len(stored)
            for name, text in stored.items():
                [hit] = [hit for hit in b.search(text, mode="vector", top_k=20) if hit.id == name]
                assert hit.vector_score == pytest.approx(1.0, abs=1e-5)

        check()


@pytest.mark.slow
async def test_many_at_a_time(database_url, monkeypatch):
    """Of what a process has remembered, ids are used once; texts may take more than one statement."""
    async with filled_bm25(database_url, {"first": "first"}) as retriever:
        calls = [[Document(f"cat {number}", id=f"d{number % 25}")] for number in range(50)]
        await asyncio.gather(*(retriever.add_documents(call) for call in calls))
        assert await retriever.count() == 26
        check_index(database_url)
        counts = execute(database_url, "SELECT count(*), count(DISTINCT keyword_id) FROM semlex.words_chunk")
        assert counts == [(26, 26)]
        monkeypatch.setattr(segments, "FEW_POSTING_ROWS", 2)
        words = " ".join(f"word{number * 7919}" for number in range(3000))
        for number in range(4):
            await retriever.add_documents([Document(f"{words} {number}", id=f"long{number}")])
        assert await retriever.count() == 30
    check_index(database_url)


async def test_vectors_that_were_dropped_are_not_written_to(database_url):
    first, second = HashEmbedder(8), HashEmbedder(16)
    async with bm25(database_url, model=first) as old:
        for name in ("one", "two"):
            await old.add_documents([Document(name, id=name)])
        async with bm25(database_url) as plain:
            await plain.embeddings.change(second)
            await plain.embeddings.drop(1, force=True)
        with pytest.raises(ModelMismatchError):
            await old.add_documents([Document("three", id="three")])
        assert await old.count() == 2
