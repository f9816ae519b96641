"""semlex at its defaults; vectors are given, so it needs no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benches.baselines.peers.protocol import TOP, Peer, Rows, Where
from semlex import Document, PostgreSQLRetriever

if TYPE_CHECKING:
    import numpy as np


def opened(place: str, name: str) -> Ours:
    """The collection."""
    return Ours(place, name)


class Ours(Peer):
    """A retriever over one collection."""

    def __init__(self, place: str, name: str) -> None:
        super().__init__(place, name)
        self._retriever = PostgreSQLRetriever(place, "none", "none", collection=name)

    async def load(self, rows: Rows) -> None:
        documents = [Document(text, rows.of(row), id=str(row)) for row, text in enumerate(rows.texts)]
        await self._retriever.add_documents(documents, rows.vectors)

    async def index(self, rows: Rows) -> None:
        await self._retriever.indexes.create()
        await self._retriever.indexes.optimize()

    async def search(self, text: str, vector: np.ndarray[Any, Any]) -> list[str]:
        return [hit.id for hit in await self._retriever.search(text, TOP, vector=vector)]

    async def nearest(self, vector: np.ndarray[Any, Any], where: Where) -> list[str]:
        filters = None if where is None else dict([where])
        hits = await self._retriever.search(None, TOP, filters, mode="vector", vector=vector)
        return [hit.id for hit in hits]

    async def close(self) -> None:
        await self._retriever.close()
