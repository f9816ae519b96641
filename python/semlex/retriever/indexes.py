"""Operations on the vector and keyword indexes of a collection: build, estimate, merge, rebuild."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.options.declare import operation
from semlex.progress import ProgressOption, Tell, shown
from semlex.retriever.handle import Part
from semlex.store.indexes.options import HnswIndex, IvfflatIndex, NoIndex, VectorIndex
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.store.indexes.build import IndexesBuilt
    from semlex.store.indexes.estimate import IndexEstimate
    from semlex.store.keyword.base import Rebuilt


class Indexes(Part):
    """Operations on the vector and keyword indexes of a collection; `Collection.indexes` returns them."""

    @property
    def building(self) -> bool:
        """Whether index builds that a load of this client has started are still running."""
        return self._handle.resources.index_builds.are_running(self._handle.names)

    async def wait(self, *, progress: ProgressOption = None) -> list[str]:
        """Wait for the index builds that loads of this client have started.

        Args:
            progress: Called repeatedly with the progress; ``bar`` shows a progress bar.

        Returns:
            Warnings: why an index could not be built.
        """
        from semlex.ingest.indexer import build_progress

        with shown(progress) as tell:
            return await self._handle.resources.index_builds.wait(self._handle.names, build_progress(tell))

    @operation("create index", "admin")
    async def create(
        self, index: VectorIndex | None = None, *, concurrently: bool = False, progress: ProgressOption = None
    ) -> IndexesBuilt:
        """Build the indexes now; a load that takes the collection past 10,000 rows does so automatically.

        A vector index of another kind, or with other options, is built before the old one is dropped. Indexes that were
        left incomplete are dropped, too.

        Args:
            index: `HnswIndex`, `IvfflatIndex` or `NoIndex`; the collection remembers it. None: the remembered one,
                by default HNSW (in float16 if the distance is ``cosine``).
            concurrently: Whether writers can write during the build, which then takes about twice as long. Needs
                ``db_url``. Behind a transaction pooler writers wait nevertheless, and a warning says so.
            progress: Called repeatedly with the progress; ``bar`` shows a progress bar.

        Returns:
            Names of the indexes that were built; `busy` names those that another process is building, `dropped` those
            that were dropped.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message lists those it has.
            StoreError: An index could not be built; writers may have held the table for too long.
        """
        check_parameters(
            kind_errors("index", index, HnswIndex, IvfflatIndex, NoIndex, NoneType),
            kind_errors("concurrently", concurrently, bool),
        )
        with shown(progress) as tell:
            return await (await self._handle.indexer()).create_index(index, concurrently=concurrently, progress=tell)

    async def estimate(self, index: VectorIndex | None = None) -> IndexEstimate | None:
        """Estimate the memory, time and size that building a vector index takes; None if nothing is to be built.

        Args:
            index: As for `create`.

        Raises:
            ConfigurationError: pgvector has no such index for these vectors; the message lists those it has.
        """
        from semlex.store.indexes.build import estimate_index

        check_parameters(kind_errors("index", index, HnswIndex, IvfflatIndex, NoIndex, NoneType))
        return await self._handle.reading(lambda opened: estimate_index(opened.database, opened.info, index))

    @operation("optimize", "admin")
    async def optimize(self, progress: ProgressOption = None) -> int:
        """Merge the keyword index (engine ``bm25``) into few, full segments; return how many segments were merged.

        Writers merge a few segments after each write. This call merges all that can be merged, for example after a
        large load.
        """
        with shown(progress) as tell:
            indexer = await self._handle.indexer()
            indexer.refuse_read_only()
            index = indexer.collection.keyword.index
            if index is None:
                return 0
            return await index.optimize(indexer.database, indexer.collection, _counted(tell, "merge", "segments"))

    @operation("reindex", "admin")
    async def rebuild_keyword(self, progress: ProgressOption = None) -> Rebuilt:
        """Rebuild the keyword index (engine ``bm25``) from the stored texts, while it is searched and written.

        Use it to change to another version of the analyzer, or to repair a damaged index.

        Raises:
            ConfigurationError: The collection has another keyword engine.
        """
        with shown(progress) as tell:
            indexer = await self._handle.indexer()
            indexer.refuse_read_only()
            if indexer.database.joins_transaction:
                raise ConfigurationError(
                    "the keyword index cannot be rebuilt in your transaction: use a retriever without connection=, or "
                    "the collection that you called using() on"
                )
            collection = indexer.collection
            index = collection.keyword.index
            if index is None:
                raise ConfigurationError(
                    f"collection {collection.names.collection!r} has the keyword engine {collection.keyword.name!r}; "
                    "only an index of the engine 'bm25' can be rebuilt"
                )
            rebuilt = await index.rebuild(indexer.database, collection, _counted(tell, "rebuild", "chunks"))
            await index.merge(indexer.database, collection)
            return rebuilt


def _counted(tell: Tell | None, stage: str, unit: str) -> Callable[[int, int], None]:
    """Return a function that reports how much of a stage is done."""
    from semlex.ingest.progress import Progress

    return lambda done, total: None if tell is None else tell(Progress(stage, done, total, unit))
