"""Vectors stored as float16: half the size, the same answers; and what is reckoned before an index is built."""

import re

import numpy as np
import psycopg
import pytest

from semlex import Document, PostgreSQLRetriever
from semlex.errors import ConfigurationError, ModelMismatchError, StoreError, ValidationError
from semlex.store.indexes import estimate
from semlex.store.indexes.catalog import value_for
from semlex.store.indexes.estimate import MIB, hnsw_memory
from semlex.store.indexes.options import HnswIndex, IvfflatIndex
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.retrievers import filled, opened


def directions(rows, dimensions):
    vectors = np.random.default_rng(5).standard_normal((rows, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("dimensions", "length", "options", "storage"),
    [
        (512, 1.0, {}, "vector"),
        (513, 1.0, {}, "halfvec"),
        (513, 1.003, {}, "halfvec"),
        (513, 1e-6, {}, "vector"),  # float16 would lose digits
        (513, 1.0, {"distance": "l2"}, "vector"),
        (513, 1.0, {"vector_storage": "vector"}, "vector"),
        (513, 1.0, {"distance": "l2", "vector_storage": "halfvec"}, "halfvec"),
    ],
)
async def test_long_vectors_of_length_1_are_stored_as_float16(database_url, dimensions, length, options, storage):
    vectors = directions(20, dimensions)
    vectors[3] *= length
    async with opened(database_url, "none", keyword="none", **options) as retriever:
        table = {"id": [f"d{row}" for row in range(20)], "text": ["text"] * 20, "vector": [*vectors[:19], vectors[0]]}
        await retriever.tables.load(table)
        await retriever.upsert([Document("text", id="d19")], vectors[19:20])  # passed as arrays, not by COPY
        assert (await retriever.status()).vector_storage == retriever.info.options["vector_storage"] == storage
        number = np.float16 if storage == "halfvec" else np.float32
        back = await retriever.embeddings.vectors(["d3", "d19"])
        assert np.array_equal([back["d3"], back["d19"]], vectors[[3, 19]].astype(number).astype(np.float32))
        hits = await retriever.search(vector=vectors[7], top_k=10)
        cosines = vectors @ vectors[7] / np.linalg.norm(vectors, axis=1)
        if "distance" not in options:
            assert [hit.id for hit in hits] == [f"d{row}" for row in np.argsort(-cosines)[:10]]
            assert [hit.vector_score for hit in hits] == pytest.approx(np.sort(-cosines)[:10] * -1, abs=1e-4)


@pytest.mark.parametrize(("storage", "is_inline"), [("halfvec", True), ("vector", False)])
async def test_vectors_stay_in_their_table_if_two_fit_a_page(database_url, storage, is_inline):
    """Elsewhere they take twice as long to read; a vector of more than half a page would waste the rest of it."""
    async with opened(database_url, "none", collection="c", keyword="none", vector_storage=storage) as retriever:
        await retriever.add_documents([Document(f"text {n}", id=f"d{n}") for n in range(90)], directions(90, 1_024))
    table = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'semlex.c_embedding_1'::regclass"
    [(elsewhere,)] = execute(database_url, table)
    assert (elsewhere == 0) == is_inline


@pytest.mark.parametrize("missing", [False, True])
async def test_vectors_that_a_model_makes_or_some_documents_bring_are_stored_alike(database_url, missing):
    model, texts = HashEmbedder(dimensions=600), ["a banana", "a plum"]
    async with opened(database_url, model) as retriever:
        brought = [*model.embed_documents(texts[:1]), None] if missing else None
        await retriever.add_documents([Document(text) for text in texts], brought)
        assert (await retriever.status()).vector_storage == "halfvec"
        assert (await retriever.search("plum", mode="vector"))[0].content == "a plum"


async def test_a_collection_keeps_its_storage_and_its_dimension(database_url):
    model, beyond = HashEmbedder(dimensions=16), directions(3, 16)
    beyond[1, 2] = 70_000.0
    async with filled(database_url, [Document("a banana")], model, vector_storage="halfvec") as retriever:
        with pytest.raises(ValidationError, match="row 1"):  # a number beyond float16
            await retriever.add_documents([Document(f"text {row}") for row in range(3)], beyond)
        assert await retriever.count() == 1
    async with filled(database_url, [Document("a plum")], model) as retriever:
        assert retriever.info.embedding.storage == "halfvec"
    with pytest.raises(ModelMismatchError, match="dimensions=8 was configured"):
        await opened(database_url, model, dimensions=8).initialize()
    with pytest.raises(ConfigurationError, match="vector_storage must be one of vector, halfvec; got 'bit'"):
        PostgreSQLRetriever(vector_storage="bit")


ROWS = 500


def reckoned(url, dimensions, rows=ROWS, **options):
    vectors = np.random.default_rng(2).normal(size=(rows, dimensions)).astype(np.float32)
    texts = {str(row): "word" for row in range(rows)}
    return filled(url, texts, "none", vectors=vectors, keyword="none", collection="reckoned", **options)


@pytest.mark.slow
@pytest.mark.parametrize(("dimensions", "storage"), [(64, "vector"), (700, "halfvec"), (1900, "vector")])
async def test_the_size_of_an_index(database_url, dimensions, storage):
    indexes = [HnswIndex(m=4, ef_construction=8), HnswIndex(m=24, ef_construction=48, quantization="halfvec")]
    indexes += [HnswIndex(ef_construction=32, quantization="bit"), IvfflatIndex(lists=10)]
    async with reckoned(database_url, dimensions, vector_storage=storage) as retriever:
        for index in indexes:
            estimated = await retriever.indexes.estimate(index)
            assert (estimated.rows, estimated.warnings, estimated.seconds > 0) == (ROWS, (), True)
            await retriever.indexes.create(index)
            (stored,) = (await retriever.status()).vector_indexes
            assert estimated.index_bytes == pytest.approx(stored.bytes, rel=0.1), index
            assert await retriever.indexes.estimate(index) is None  # there is nothing to build


@pytest.mark.slow
@pytest.mark.parametrize("index", [HnswIndex(m=4, ef_construction=8), HnswIndex(m=32), HnswIndex(quantization="bit")])
async def test_the_memory_of_a_graph(database_url, index):
    """pgvector says after how many vectors the memory is used up."""
    said = []
    async with reckoned(database_url, 800, rows=400 if index.quantization is None else 2_000) as retriever:
        expected = hnsw_memory(1, value_for(retriever.info, index), index.m)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
            connection.execute("SET maintenance_work_mem = '1MB'")
            connection.execute("SET max_parallel_maintenance_workers = 0")
            expression = "(binary_quantize(embedding)::bit(800)) bit_hamming_ops"
            of = expression if index.quantization else "embedding vector_cosine_ops"
            options = f"m = {index.m}, ef_construction = {index.ef_construction}"
            connection.execute(f"CREATE INDEX ON semlex.reckoned_embedding_1 USING hnsw ({of}) WITH ({options})")
    (vectors,) = [int(found[1]) for text in said if (found := re.search(r"after (\d+) tuples", text))]
    # The allocator takes memory by the block, which is much of a megabyte.
    assert MIB / vectors == pytest.approx(expected, rel=0.3)


@pytest.mark.slow
async def test_too_little_memory_is_told_before(database_url, monkeypatch, caplog):
    monkeypatch.setattr(estimate._Server, "share", lambda *_: MIB)
    async with reckoned(database_url, 256, rows=1_000) as retriever:
        built = await retriever.indexes.create(HnswIndex())
        assert built[-1] == "hnsw_1"
        assert ["continues on disk" in warning for warning in built.warnings] == [True]
        assert "continues on disk" in caplog.text
        assert (await retriever.search(vector=np.ones(256), top_k=5)) != []
        # The centres of lists do not fit at all: the old index stays.
        with pytest.raises(StoreError, match="memory required"):
            await retriever.indexes.create(IvfflatIndex(lists=100))
        assert "too little to succeed" in caplog.text
        assert [index.name for index in (await retriever.status()).vector_indexes] == ["reckoned_hnsw_1"]
