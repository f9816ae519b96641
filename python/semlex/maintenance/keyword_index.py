"""The keyword index as a whole: merged, or rebuilt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.ingest.indexer import Indexer
    from semlex.store.keyword.base import Rebuilt


async def optimize(indexer: Indexer, progress: Callable[[Progress], None] | None = None) -> int:
    """Merge the segments of the keyword index; see `Collection.indexes.optimize`."""
    indexer.refuse_read_only()
    index = indexer.collection.keyword.index
    if index is None:
        return 0

    def show_progress(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress("merge", done, total, "segments"))

    return await index.optimize(indexer.database, indexer.collection, show_progress)


async def reindex(indexer: Indexer, progress: Callable[[Progress], None] | None = None) -> Rebuilt:
    """Rebuild the keyword index; see `Collection.indexes.rebuild_keyword`."""
    indexer.refuse_read_only()
    if indexer.database.joins_transaction:
        raise ConfigurationError("an index is rebuilt in several transactions: open the retriever without connection=")
    collection = indexer.collection
    index = collection.keyword.index
    if index is None:
        raise ConfigurationError(
            f"collection {collection.names.collection!r} has the keyword engine {collection.keyword.name!r}; "
            "only an index of the engine 'bm25' is rebuilt"
        )

    def show_progress(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress("rebuild", done, total, "chunks"))

    rebuilt = await index.rebuild(indexer.database, collection, show_progress)
    await index.merge(indexer.database, collection)
    return rebuilt
