"""LlamaIndex's PGVectorStore with hybrid search and an HNSW index; any of the words may occur.

It appends the hits by words to those by vectors; the first ten count here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.vector_stores.postgres import PGVectorStore
from psycopg.types.json import Json

from benches.baselines.peers.filling import BY_LIBRARY, fill
from benches.baselines.peers.protocol import TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np

# Those of its documentation, which are pgvector's defaults.
HNSW = {"hnsw_m": 16, "hnsw_ef_construction": 64, "hnsw_ef_search": 40, "hnsw_dist_method": "vector_cosine_ops"}


def opened(place: str, name: str) -> LlamaIndex:
    """A table in a database."""
    return LlamaIndex(place, name)


class LlamaIndex(Peer):
    """One store."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        self._store: Any = None

    def _open(self, dimensions: int, hnsw: dict[str, Any] | None) -> None:
        self._store = PGVectorStore.from_params(
            connection_string=self.place.replace("postgresql://", "postgresql+psycopg2://", 1),
            async_connection_string=self.place.replace("postgresql://", "postgresql+asyncpg://", 1),
            table_name=self.name,
            embed_dim=dimensions,
            hybrid_search=True,
            text_search_config="english",
            use_jsonb=True,
            hnsw_kwargs=hnsw,
            create_engine_kwargs={"pool_size": 8},
        )

    def load(self, rows: Rows) -> tuple[int, float, float]:
        self._open(rows.vectors.shape[1], None)
        number = min(BY_LIBRARY, len(rows.texts))
        nodes = [self._node(rows, row) for row in range(number)]
        for node, vector in zip(nodes, rows.vectors[:number].tolist(), strict=True):
            node.embedding = vector
        self._store.add(nodes)
        loaded = time.perf_counter(), time.process_time()
        types = {"node_id": "text", "text": "text", "embedding": "vector", "metadata_": "jsonb"}
        left = range(number, len(rows.texts))
        fill(self.place, f"data_{self.name}", types, (self._row(rows, row) for row in left))
        return number, *loaded

    @staticmethod
    def _node(rows: Rows, row: int) -> TextNode:
        return TextNode(id_=str(row), text=rows.texts[row], metadata=rows.of(row))

    def _row(self, rows: Rows, row: int) -> list[Any]:
        metadata = node_to_metadata_dict(self._node(rows, row), remove_text=True, flat_metadata=False)
        return [str(row), rows.texts[row], rows.vectors[row], Json(metadata)]

    def reopen(self, dimensions: int, fields: list[str]) -> None:
        self._open(dimensions, dict(HNSW))

    def index(self, rows: Rows) -> None:
        self.reopen(rows.vectors.shape[1], [])
        self._store.query(self._asked(rows.vectors[0], "a", None, VectorStoreQueryMode.DEFAULT))  # builds the index

    @staticmethod
    def _asked(vector: Any, text: str | None, where: Where, mode: VectorStoreQueryMode) -> VectorStoreQuery:
        filters = None
        if where is not None:
            filters = MetadataFilters(filters=[MetadataFilter(key=where[0], value=where[1])])
        return VectorStoreQuery(
            query_embedding=vector.tolist(), query_str=text, similarity_top_k=TOP, filters=filters, mode=mode
        )

    async def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[str]:
        found = await self._store.aquery(self._asked(vector, text, None, VectorStoreQueryMode.HYBRID))
        return list(found.ids or [])[:TOP]

    async def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[str]:
        found = await self._store.aquery(self._asked(vector, None, where, VectorStoreQueryMode.DEFAULT))
        return list(found.ids or [])

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
