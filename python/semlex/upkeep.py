"""What keeps a collection in order: the part of a retriever that neither searches nor adds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.indexer import Indexer
    from semlex.progress import Progress
    from semlex.store.indexes import HnswIndex, IndexesBuilt
    from semlex.store.lexical.rebuilding import Rebuilt


class CollectionUpkeep(ABC):
    """Indexes of an open collection; `PostgreSQLRetriever` is one."""

    @abstractmethod
    async def _ready(self) -> Indexer:
        """The open collection."""

    async def create_index(self, hnsw: HnswIndex | None = None) -> IndexesBuilt:
        """Builds the indexes now; by itself that happens after a load that passes 10,000 rows.

        Returns:
            Names of the indexes that were made; its `busy` names those that another process is building.
        """
        return await (await self._ready()).create_index(hnsw)

    async def optimize(self, progress: Callable[[Progress], None] | None = None) -> int:
        """Merges the keyword index (engine ``bm25``) to few, full segments; returns how many were merged.

        Writers merge a little after each write. This goes on to the end, for example after a large load.
        """
        return await (await self._ready()).optimize(progress)

    async def reindex_lexical(self, progress: Callable[[Progress], None] | None = None) -> Rebuilt:
        """Makes the keyword index (engine ``bm25``) anew from the stored texts, while it is searched and written.

        It is the way to another version of the analyzer, and the way out of a damaged index.

        Raises:
            ConfigurationError: The collection has another keyword engine.
        """
        return await (await self._ready()).reindex_lexical(progress)
