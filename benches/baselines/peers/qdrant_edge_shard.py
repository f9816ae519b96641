"""Qdrant Edge: Qdrant's engine in the process, with its BM25 as sparse vectors and reciprocal ranks.

With an index of each field, as its documentation advises for fields that are filtered by.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import qdrant_edge as edge

from benches.baselines.peers.protocol import DEPTH, RRF_K, TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 1_000


def opened(place: str, name: str) -> QdrantEdge:
    """A shard that does not exist yet."""
    return QdrantEdge(place, name)


class QdrantEdge(Peer):
    """A shard with a dense vector and a sparse one."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        self._shard: Any = None
        self._words = edge.Bm25(edge.Bm25Config(language="english"))

    def load(self, rows: Rows) -> None:
        config = edge.EdgeConfig(
            vectors={"dense": edge.EdgeVectorParams(size=rows.vectors.shape[1], distance=edge.Distance.Cosine)},
            sparse_vectors={"words": edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        )
        self._shard = edge.EdgeShard.create(str(Path(self.place) / self.name), config)
        for start in range(0, len(rows.texts), AT_ONCE):
            points = [
                edge.Point(
                    row,
                    {"dense": rows.vectors[row].tolist(), "words": self._words.embed_document(rows.texts[row])},
                    {"text": rows.texts[row]} | rows.of(row),
                )
                for row in range(start, min(start + AT_ONCE, len(rows.texts)))
            ]
            self._shard.update(edge.UpdateOperation.upsert_points(points))

    def index(self, rows: Rows) -> None:
        for field in rows.fields:
            self._shard.update(edge.UpdateOperation.create_field_index(field, edge.PayloadSchemaType.Integer))
        self._shard.optimize()
        self._shard.flush()

    def reopen(self, dimensions: int, fields: list[str]) -> None:
        self._shard = edge.EdgeShard.load(str(Path(self.place) / self.name))

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[int]:
        dense = edge.Query.Nearest(vector.tolist(), using="dense")
        words = edge.Query.Nearest(self._words.embed_query(text), using="words")
        prefetches = [edge.Prefetch(limit=DEPTH, query=query) for query in (dense, words)]
        fused = edge.QueryRequest(
            limit=TOP, query=edge.Fusion.Rrf(k=RRF_K), prefetches=prefetches, with_payload=["text"]
        )
        return [point.id for point in self._shard.query(fused)]

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[int]:
        condition = None
        if where is not None:
            condition = edge.Filter(must=[edge.FieldCondition(key=where[0], match=edge.MatchValue(where[1]))])
        dense = edge.Query.Nearest(vector.tolist(), using="dense")
        asked = edge.QueryRequest(limit=TOP, query=dense, filter=condition, with_payload=["text"])
        return [point.id for point in self._shard.query(asked)]

    def close(self) -> None:
        if self._shard is not None:
            self._shard.close()
