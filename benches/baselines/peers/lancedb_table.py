"""LanceDB with its index IVF_HNSW_SQ, its full-text index, and its reranker by reciprocal ranks.

With a scalar index of each field, as its documentation advises for fields that are filtered by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lancedb
import pyarrow as pa
from lancedb.index import FTS, Bitmap, HnswSq
from lancedb.rerankers import RRFReranker

from benches.baselines.peers.protocol import RRF_K, TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np


def opened(place: str, name: str) -> LanceDb:
    """A database in a folder."""
    return LanceDb(place, name)


class LanceDb(Peer):
    """One table."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        self._database = lancedb.connect(place)
        self._table: Any = None
        self._reranker = RRFReranker(K=RRF_K)

    def load(self, rows: Rows) -> None:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.reshape(-1)), rows.vectors.shape[1])
        columns = {"id": list(range(len(rows.texts))), "text": rows.texts, "vector": vectors}
        self._table = self._database.create_table(self.name, pa.table(columns | rows.fields))
        self._table.create_index("text", config=FTS())

    def index(self, rows: Rows) -> None:
        self._table.create_index("vector", config=HnswSq(distance_type="cosine"))
        for field in rows.fields:
            self._table.create_index(field, config=Bitmap())
        self._table.optimize()

    def reopen(self, dimensions: int, fields: list[str]) -> None:
        self._table = self._database.open_table(self.name)

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[int]:
        query = self._table.search(query_type="hybrid").vector(vector).text(text).distance_type("cosine")
        found = query.rerank(self._reranker).limit(TOP).select(["id", "text"]).to_list()
        return [row["id"] for row in found]

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[int]:
        query = self._table.search(vector).distance_type("cosine")
        if where is not None:
            query = query.where(f"{where[0]} = {where[1]}")
        return [row["id"] for row in query.limit(TOP).select(["id", "text"]).to_list()]
