"""langchain-postgres as its documentation says for speed: a column of type tsvector with its GIN index, an HNSW index,
and filtered fields as columns of their own. Words must all occur.

The words of a query stay in a store's configuration once they are there, so every search brings its own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings
from langchain_postgres import Column, PGEngine, PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from langchain_postgres.v2.indexes import HNSWIndex
from sqlalchemy.ext.asyncio import create_async_engine

from benches.baselines.peers.filling import BY_LIBRARY, fill
from benches.baselines.peers.protocol import DEPTH, RRF_K, TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np


class GivenVector(Embeddings):
    """The vector of the search at hand: searches begin with it, before they wait for anything."""

    def __init__(self) -> None:
        self.vector: list[float] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError  # abstract in the base; rows are stored with vectors of their own

    def embed_query(self, text: str) -> list[float]:
        return self.vector

    async def aembed_query(self, text: str) -> list[float]:
        return self.vector


def hybrid(table: str) -> HybridSearchConfig:
    """A configuration without the words of any query."""
    return HybridSearchConfig(
        index_name=f"{table}_words",
        tsv_column="content_tsv",
        tsv_lang="pg_catalog.english",
        fusion_function=reciprocal_rank_fusion,
        fusion_function_parameters={"rrf_k": RRF_K},
        primary_top_k=DEPTH,
        secondary_top_k=DEPTH,
    )


async def opened(place: str, name: str) -> LangchainPostgres:
    """A table in a database."""
    return LangchainPostgres(place, name)


class LangchainPostgres(Peer):
    """One store."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        address = place.replace("postgresql://", "postgresql+psycopg://", 1)
        self._pool = create_async_engine(address, pool_size=8)
        self._engine = PGEngine.from_engine(self._pool)
        self._embeddings = GivenVector()
        self._table = f"langchain_{name}"
        self._store: Any = None

    async def load(self, rows: Rows) -> tuple[int, float, float]:
        await self._engine.ainit_vectorstore_table(
            self._table,
            rows.vectors.shape[1],
            id_column=Column("langchain_id", "TEXT", nullable=False),
            metadata_columns=[Column(field, "INTEGER") for field in rows.fields],
            hybrid_search_config=hybrid(self._table),
        )
        await self.reopen(rows.vectors.shape[1], list(rows.fields))
        number = min(BY_LIBRARY, len(rows.texts))
        ids = [str(row) for row in range(number)]
        metadata = [rows.of(row) for row in range(number)]
        await self._store.aadd_embeddings(rows.texts[:number], rows.vectors[:number].tolist(), metadata, ids)
        loaded = time.perf_counter(), time.process_time()
        fields = dict.fromkeys(rows.fields, "integer")
        types = {"langchain_id": "text", "content": "text", "embedding": "vector"} | fields
        left = range(number, len(rows.texts))
        given = ([str(row), rows.texts[row], rows.vectors[row], *rows.of(row).values()] for row in left)
        fill(self.place, self._table, types, given, {"content_tsv": "to_tsvector('pg_catalog.english', content)"})
        return number, *loaded

    async def reopen(self, dimensions: int, fields: list[str]) -> None:
        self._store = await PGVectorStore.create(
            self._engine,
            self._embeddings,
            self._table,
            metadata_columns=fields,
            hybrid_search_config=hybrid(self._table),
        )

    async def index(self, rows: Rows) -> None:
        await self._store.aapply_hybrid_search_index()
        await self._store.aapply_vector_index(HNSWIndex())

    async def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[str]:
        self._embeddings.vector = vector.tolist()
        found = await self._store.asimilarity_search(text, k=TOP, hybrid_search_config=hybrid(self._table))
        return [hit.id for hit in found]

    async def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[str]:
        condition = None if where is None else dict([where])
        found = await self._store.asimilarity_search_by_vector(
            vector.tolist(), k=TOP, filter=condition, hybrid_search_config=None
        )
        return [hit.id for hit in found]

    async def close(self) -> None:
        await self._pool.dispose()
