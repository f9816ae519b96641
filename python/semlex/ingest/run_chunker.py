"""Split the texts of a run by the settings of the collection, which its first run decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.ingest.document_chunks import Chunker
from semlex.store.write import documents

if TYPE_CHECKING:
    from semlex.ingest.indexer import Indexer
    from semlex.parameters import WantedOptions
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.types.chunks import ChunkSettings


class RunChunker:
    """The chunk settings of one run; new ones are stored with its first documents."""

    def __init__(self, indexer: Indexer, wanted: WantedOptions) -> None:
        self._indexer, self._wanted = indexer, wanted
        # This run's settings, until they are stored.
        self._unstored: ChunkSettings | None = None

    async def chunker(self) -> Chunker:
        """Return the chunker of the collection."""
        counter = self._indexer.token_counter()
        # Another process may have changed them since this one opened the collection.
        stored = await self._indexer.database.read(
            "read the chunk settings", lambda c: documents.stored_chunk_settings(c, self._indexer.collection)
        )
        if stored is None:
            self._unstored = self._wanted.chunk_settings()
            return Chunker(counter, self._unstored)
        self.check(self.cut_as(stored))
        self._indexer.opened.info = self.cut_as(stored)
        return Chunker(counter, stored)

    def check(self, collection: CollectionInfo) -> None:
        """Refuse options that differ from the collection's chunk settings."""
        self._wanted.check(collection.names.collection, collection.options)

    def cut_as(self, settings: ChunkSettings) -> CollectionInfo:
        """Return the collection's metadata with these chunk settings."""
        collection = self._indexer.collection
        return replace(collection, settings=replace(collection.settings, chunk_settings=settings))

    async def store(self) -> None:
        """Store this run's settings before its first documents: `settle` in a transaction of its own."""
        if self._unstored is not None:
            await self._indexer.database.write("store the chunk settings", self.settle)
            self.note_stored()

    async def settle(self, connection: Connection) -> None:
        """Store this run's settings, in the transaction that writes the first documents; the first run decides."""
        wanted = self._unstored
        if wanted is None:
            return
        settled = await documents.settle_chunk_settings(connection, self._indexer.collection, wanted)
        if settled != wanted:
            numbers = ", ".join(f"{name}={number}" for name, number in settled._asdict().items())
            raise ConfigurationError(
                f"another run has meanwhile set this collection's chunk settings to {numbers}: leave yours out, or "
                "use these, and try again"
            )

    def note_stored(self) -> None:
        """Note that documents were stored, and with them the settings."""
        if self._unstored is not None:
            self._indexer.opened.info, self._unstored = self.cut_as(self._unstored), None
