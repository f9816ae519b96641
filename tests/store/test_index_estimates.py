"""What is reckoned before a build is what pgvector then takes."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import psycopg
import pytest

from semlex.errors import StoreError
from semlex.store.indexes import estimate
from semlex.store.indexes.catalog import value_for
from semlex.store.indexes.estimate import MIB, hnsw_memory
from semlex.store.indexes.options import HnswIndex, IvfflatIndex
from semlex.types.documents import Document
from tests.support.retrievers import opened

ROWS = 500


retriever_of = partial(opened, model="none", keyword="none", collection="reckoned")


async def fill(retriever, dimensions, rows=ROWS):
    vectors = np.random.default_rng(2).normal(size=(rows, dimensions)).astype(np.float32)
    await retriever.add_documents([Document("word", id=str(row)) for row in range(rows)], vectors)


@pytest.mark.slow
@pytest.mark.parametrize(("dimensions", "storage"), [(64, "vector"), (700, "halfvec"), (1900, "vector")])
async def test_the_size_of_an_index(database_url, dimensions, storage):
    indexes = [
        HnswIndex(m=4, ef_construction=8),
        HnswIndex(m=24, ef_construction=48, quantization="halfvec"),
        HnswIndex(ef_construction=32, quantization="bit"),
        IvfflatIndex(lists=10),
    ]
    async with retriever_of(database_url, vector_storage=storage) as retriever:
        await fill(retriever, dimensions)
        for index in indexes:
            reckoned = await retriever.indexes.estimate(index)
            assert reckoned is not None
            assert (reckoned.rows, reckoned.warnings) == (ROWS, ())
            assert reckoned.seconds > 0
            await retriever.indexes.create(index)
            (stored,) = (await retriever.status()).vector_indexes
            assert reckoned.index_bytes == pytest.approx(stored.bytes, rel=0.1), index
            assert await retriever.indexes.estimate(index) is None  # there is nothing to build


@pytest.mark.slow
@pytest.mark.parametrize("index", [HnswIndex(m=4, ef_construction=8), HnswIndex(m=32), HnswIndex(quantization="bit")])
async def test_the_memory_of_a_graph(database_url, index):
    """pgvector says after how many vectors the memory is used up."""
    said = []
    async with retriever_of(database_url) as retriever:
        await fill(retriever, 800, rows=400 if index.quantization is None else 2_000)
        reckoned = hnsw_memory(1, value_for(retriever.info, index), index.m)
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
            connection.execute("SET maintenance_work_mem = '1MB'")
            connection.execute("SET max_parallel_maintenance_workers = 0")
            expression = "(binary_quantize(embedding)::bit(800)) bit_hamming_ops"
            connection.execute(
                f"CREATE INDEX ON semlex.reckoned_embedding_1 USING hnsw ("
                f"{expression if index.quantization else 'embedding vector_cosine_ops'}) "
                f"WITH (m = {index.m}, ef_construction = {index.ef_construction})"
            )
    (vectors,) = [int(found[1]) for text in said if (found := re.search(r"after (\d+) tuples", text))]
    # The allocator takes memory by the block, which is much of a megabyte.
    assert MIB / vectors == pytest.approx(reckoned, rel=0.3)


@pytest.mark.slow
async def test_too_little_memory_is_told_before(database_url, monkeypatch, caplog):
    monkeypatch.setattr(estimate._Server, "share", lambda *_: MIB)
    async with retriever_of(database_url) as retriever:
        await fill(retriever, 256, rows=1_000)
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
