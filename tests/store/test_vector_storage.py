"""Vectors stored as float16: half the size, the same answers, indexes for more dimensions."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from semlex import Document, PostgreSQLRetriever
from semlex.errors import ConfigurationError, ModelMismatchError, ValidationError
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.retrievers import opened


def directions(rows, dimensions):
    vectors = np.random.default_rng(5).standard_normal((rows, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["vector", "halfvec"])
async def test_both_ways_of_writing_and_both_ways_of_searching(database_url, storage):
    vectors = directions(300, 24)
    documents = [Document(f"text {row}", id=f"d{row}") for row in range(300)]
    async with opened(database_url, "none", collection="small", keyword="none", vector_storage=storage) as retriever:
        await retriever.add_documents(documents[:290], vectors[:290])
        await retriever.upsert(documents[280:], vectors[280:])  # a small batch goes another way
        exact = np.argsort(-(vectors @ vectors[7]))[:10]
        for _ in range(2):
            hits = await retriever.search(vector=vectors[7], top_k=10)
            assert [hit.id for hit in hits] == [f"d{row}" for row in exact]
            assert hits[0].vector_score == pytest.approx(1.0, abs=1e-3)
            await retriever.indexes.create()
    kinds = execute(
        database_url,
        "SELECT t.typname FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid "
        "JOIN pg_class AS c ON c.oid = a.attrelid WHERE a.attname = 'embedding' AND c.relkind = 'r'",
    )
    assert kinds == [(storage,)]


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
        await retriever.tables.load(
            {"id": [f"d{row}" for row in range(20)], "text": ["text"] * 20, "vector": [*vectors[:20]]}
        )
        assert (await retriever.status()).vector_storage == retriever.info.options["vector_storage"] == storage
        number = np.float16 if storage == "halfvec" else np.float32
        back = await retriever.embeddings.vectors(["d3", "d4"])
        assert np.array_equal([back["d3"], back["d4"]], vectors[3:5].astype(number).astype(np.float32))
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
    with psycopg.connect(database_url) as connection:
        (elsewhere,) = connection.execute(
            "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'semlex.c_embedding_1'::regclass"
        ).fetchone()
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
    model = HashEmbedder(dimensions=16)
    async with opened(database_url, model, vector_storage="halfvec") as retriever:
        await retriever.add_documents([Document("a banana")])
    async with opened(database_url, model) as retriever:
        await retriever.add_documents([Document("a plum")])
        assert retriever.info.embedding.storage == "halfvec"
    with pytest.raises(ModelMismatchError, match="dimensions=8 was configured"):
        await opened(database_url, model, dimensions=8).initialize()


async def test_numbers_beyond_float16_are_refused_by_row(database_url):
    vectors = directions(3, 8)
    vectors[1, 2] = 70_000.0
    async with opened(database_url, "none", vector_storage="halfvec") as retriever:
        with pytest.raises(ValidationError, match="row 1"):
            await retriever.add_documents([Document(f"text {row}") for row in range(3)], vectors)
        assert await retriever.count() == 0


def test_an_unknown_storage_is_refused():
    with pytest.raises(ConfigurationError, match="vector_storage must be one of vector, halfvec; got 'bit'"):
        PostgreSQLRetriever(vector_storage="bit")
