"""Fills a set of vectors (a version) while the collection is used, and switches to it when it is complete."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from semlex.errors import SemlexError, StoreError
from semlex.ingest.chunk_rows import embedded_text
from semlex.ingest.progress import show_progress
from semlex.store import embedding_versions
from semlex.store.embedding_versions import VersionRun, keep_run, read_versions, switch_version, write_embeddings
from semlex.store.schema.locks import hold_collection, without_writers
from semlex.store.write.documents import Unembedded, count_unembedded, unembedded_chunks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import numpy as np
    from numpy.typing import NDArray

    from semlex.ingest.embed import DocumentVectors
    from semlex.ingest.progress import Progress
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo

logger = logging.getLogger("semlex")

PAGE_ROWS = 1_000
# Writers wait while the last texts are embedded: at least this many, or as many as take this long.
LAST_ROWS = 64
LAST_SECONDS = 3.0
BEATS = 3  # renewals within the time of a run's right


# Pages of chunks without a vector are read, embedded outside of any transaction, and written, until the rest can be
# done while writers wait. Every transaction checks that this run may still fill the version. A killed run leaves
# complete pages, and the next run finds what is missing.
class VersionFill:
    """One run that fills a version (a set of vectors), and can switch the collection to it."""

    def __init__(
        self,
        database: Database,
        collection: CollectionInfo,
        run: VersionRun,
        vectors: DocumentVectors | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.collection = collection
        self.written = 0
        self._database = database
        self._run = run
        self._vectors = vectors
        self._progress = progress
        self._seconds = 0.0  # of embedding

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Renew the run's lease regularly during the block, and end the lease with the block."""
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError, SemlexError):  # every page reports the same
                await beating
            try:
                await self._database.write("end a run", partial(self._keep, seconds=0.0))
            except SemlexError as error:
                logger.info("the end of the run could not be stored, so the next run must wait a little: %s", error)

    async def _beat(self) -> None:
        while True:
            await self._database.clock.sleep(embedding_versions.RUN_SECONDS / BEATS)
            await self._database.write("keep a run", self._keep)

    async def _keep(self, connection: Connection, seconds: float | None = None) -> None:
        await keep_run(connection, self.collection, self._run, seconds)

    # --- pages --------------------------------------------------------------------------------------------------------

    async def count_missing(self) -> int:
        """Return how many chunks lack a vector."""
        return await self._database.read("count", lambda c: count_unembedded(c, self.collection))

    async def catch_up(self) -> None:
        """Embed missing vectors, until few enough are left that writers can wait for the rest."""
        while (missing := await self.count_missing()) > self._most_at_last():
            await self._pass(missing)

    def _most_at_last(self) -> int:
        """Return how many texts may be embedded while writers wait."""
        fitting = int(LAST_SECONDS * self.written / self._seconds) if self._seconds else 0
        return min(max(LAST_ROWS, fitting), PAGE_ROWS)

    async def _pass(self, missing: int) -> None:
        """Embed missing vectors in one pass over the collection, in the order of its keys."""
        after: Key | None = None
        begun = self.written
        while page := await self._database.read("read chunks", partial(self._read, after)):
            count = await self._embedded(page, partial(self._tell, self.written - begun, missing))
            self.written += count
            after = (page[-1][0], page[-1][1])

    async def _read(self, after: Key | None, connection: Connection) -> list[Unembedded]:
        return await unembedded_chunks(connection, self.collection, after, PAGE_ROWS)

    async def _embedded(self, page: list[Unembedded], done: Callable[[int], None]) -> int:
        """Embed a page and write its vectors; return how many were written."""
        vectors = await self._made(page, done)

        async def write(connection: Connection) -> int:
            # In the order of all writers: the collection, the version.
            await hold_collection(connection, self.collection)
            await self._keep(connection)
            return await self._write(connection, page, vectors)

        return await self._database.write("write embeddings", write)

    async def _write(self, connection: Connection, page: list[Unembedded], vectors: NDArray[np.float32]) -> int:
        keys, hashes = [(row[0], row[1]) for row in page], [row[2] for row in page]
        return await write_embeddings(connection, self.collection, keys, hashes, vectors)

    async def _made(self, page: list[Unembedded], done: Callable[[int], None]) -> NDArray[np.float32]:
        if self._vectors is None:
            raise StoreError(
                "chunks without a vector were written meanwhile, and no model is open to embed them: try again"
            )
        began = time.perf_counter()
        texts = [embedded_text(context, text) for *_, context, text in page]
        vectors = await self._vectors.of(texts, self.collection.embedding, done)
        self._seconds += time.perf_counter() - began
        return vectors

    def _tell(self, before: int, missing: int, count: int) -> None:
        done = before + count
        show_progress(self._progress, "embed", done, max(done, missing), "chunks")

    # --- the switch ---------------------------------------------------------------------------------------------------

    async def switch(self, *, force: bool = False) -> int:
        """Switch to the version; return how many chunks lack a vector of it."""
        while (lacking := await self._try_switch(force=force)) is None:
            await self.catch_up()  # writers were faster
        return lacking

    async def _try_switch(self, *, force: bool) -> int | None:
        """Try to switch; return how many chunks lack a vector, or None if embedding them blocks writers too long."""
        most, version = self._most_at_last(), self._run.version

        async def work(connection: Connection) -> tuple[int | None, int]:
            await self._keep(connection)
            found = await read_versions(connection, self.collection)
            if found is not None and found.serving == version:
                return 0, 0  # an earlier attempt was committed, but its answer was lost
            lacking, written = await count_unembedded(connection, self.collection), 0
            if lacking > most and not force:
                return None, 0
            if lacking and not force:
                rest = await unembedded_chunks(connection, self.collection, None, most)
                written = await self._write(connection, rest, await self._made(rest, lambda _count: None))
                lacking = await count_unembedded(connection, self.collection)
            if lacking and not force:
                raise StoreError(
                    f"{lacking:,} chunks have no vector of version {version} although nobody else writes; nothing was "
                    "switched: run the same command again"
                )
            await switch_version(connection, self.collection, version, lacking=lacking)
            return lacking, written

        lacking, written = await without_writers(
            self._database, "switch to another embedding version", self.collection, work
        )
        self.written += written
        return lacking
