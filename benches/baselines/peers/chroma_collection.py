"""Chroma: vectors only, because its local collections have no ranking of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import chromadb

from benches.baselines.peers.protocol import TOP, Peer, Rows, Where

if TYPE_CHECKING:
    import numpy as np


def opened(place: str, name: str) -> Chroma:
    """A database in a folder."""
    return Chroma(place, name)


class Chroma(Peer):
    """One collection."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        settings = chromadb.Settings(anonymized_telemetry=False)
        self._client = chromadb.PersistentClient(place, settings)
        self._collection = self._client.get_or_create_collection(
            name, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    def load(self, rows: Rows) -> None:
        at_once = self._client.get_max_batch_size()
        for start in range(0, len(rows.texts), at_once):
            part = range(start, min(start + at_once, len(rows.texts)))
            self._collection.add(
                ids=[str(row) for row in part],
                embeddings=rows.vectors[part.start : part.stop],
                documents=rows.texts[part.start : part.stop],
                metadatas=[rows.of(row) for row in part] if rows.fields else None,
            )

    def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[str]:
        return self.nearest(vector, None)

    def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[str]:
        found = self._collection.query(
            query_embeddings=[vector],
            n_results=TOP,
            where=None if where is None else dict([where]),
            include=["documents", "distances"],
        )
        return list(found["ids"][0])
