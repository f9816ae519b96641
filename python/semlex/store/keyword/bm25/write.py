"""Write to the keyword index what a write of chunks changes: segments of new texts, tombstones of deleted chunks."""

# Everything here happens in the transaction that writes the chunks. Rows are only inserted, so that writers of the same
# words neither wait for each other nor deadlock.

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.store.keyword.base import Analyzers, Reserved
from semlex.store.keyword.bm25.segments import NewSegment, few_segments, refuse_other_analyzer, write_segments
from semlex.store.postgres.snapshot import ended_pipeline
from semlex.store.schema.locks import writing_lock
from semlex.store.segments import SEGMENT_CHUNKS, ask_state, state_told
from semlex.store.write.copy import NO_IDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Statement
    from semlex.store.schema.names import CollectionIdentity, Names
    from semlex.store.segments import Cursor, RowLock


class SegmentWriter:
    """Collects texts of any language into segments. Not thread-safe."""

    def __init__(self, analyzers: Analyzers) -> None:
        self._analyzers = analyzers
        self._language = analyzers.of(None).language
        self._open: dict[str, tuple[_core.SegmentBuilder, int]] = {}
        self._full: list[tuple[str, _core.SegmentBuilder]] = []

    def add(
        self, ids: NDArray[np.int64], languages: Sequence[str | None], contexts: Sequence[str], texts: Sequence[str]
    ) -> None:
        """Analyse chunks, each in its language, and add them to segments; `contexts` are titles and heading paths."""
        named = [language or self._language for language in languages]
        for language in dict.fromkeys(named):
            analyzer = self._analyzers.of(language)
            rows = [row for row, own in enumerate(named) if own == language]
            while rows:
                builder, chunks = self._open.pop(analyzer.language, (None, 0))
                builder = builder or _core.SegmentBuilder()
                fitting, rows = rows[: SEGMENT_CHUNKS - chunks], rows[SEGMENT_CHUNKS - chunks :]
                columns = [[column[row] for row in fitting] for column in (contexts, texts)]
                builder.add_texts(analyzer, ids[fitting], columns)
                self._open[analyzer.language] = builder, chunks + len(fitting)
                if chunks + len(fitting) == SEGMENT_CHUNKS:
                    self.close(analyzer.language)

    def close(self, language: str) -> None:
        """End the open segment of a language, so that the next chunks go into a new one."""
        builder, _ = self._open.pop(language)
        self._full.append((language, builder))

    def open_chunks(self) -> dict[str, int]:
        """Return how many chunks the open segment of each language holds."""
        return {language: chunks for language, (_, chunks) in self._open.items()}

    def take(self) -> list[tuple[str, _core.SegmentBuilder]]:
        """Remove and return the segments that are full or closed, as (language, builder)."""
        taken, self._full = self._full, []
        return taken


class BatchIndex:
    """Writes a batch's segments and tombstones; texts are analysed in a thread while rows are sent."""

    def __init__(self, names: Names, analyzers: Analyzers, reserved: Reserved, worker: ThreadPoolExecutor) -> None:
        self._names = names
        self._generations = reserved.generations
        self._blocks = np.array(reserved.blocks, dtype=np.int64)
        self._worker = worker
        self._texts = SegmentWriter(analyzers)
        self._numbered = 0
        self._begun: list[Future[None]] = []

    def assign_ids(
        self, languages: Sequence[str | None], contexts: Sequence[str], texts: Sequence[str]
    ) -> NDArray[np.int64]:
        """Assign ids to the next rows and start analysing them."""
        ids = self._ids(self._numbered, self._numbered + len(texts))
        self._numbered += len(texts)
        self._begun.append(self._worker.submit(self._texts.add, ids, languages, contexts, texts))
        return ids

    def _ids(self, start: int, stop: int) -> NDArray[np.int64]:
        rows = np.arange(start, stop)
        return self._blocks[rows // SEGMENT_CHUNKS] + rows % SEGMENT_CHUNKS

    async def write(
        self, connection: Connection, stored: NDArray[np.int64] | None, gone: NDArray[np.int64] = NO_IDS
    ) -> None:
        """Write segments and tombstones in the transaction that has written the rows."""
        # `stored` are the ids of the chunks of this transaction, including ids that were not assigned here; None if
        # every row was stored with its assigned id.
        segments = await self._run(stored) if self._begun else []
        dead = _core.IdSet(gone)
        tombstones = [(generation, dead) for generation in self._generations]
        await write_segments(connection, self._names, segments, tombstones)

    async def write_few(self, keyword_id: int) -> Statement | None:
        """Return the statement that writes the segments of a few rows, as `few_segments` does."""
        return few_segments(self._names, await self._run(None), keyword_id)

    async def _run(self, stored: NDArray[np.int64] | None) -> list[NewSegment]:
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._segments, stored)

    def _segments(self, stored: NDArray[np.int64] | None) -> list[NewSegment]:
        for begun in self._begun:
            begun.result()
        for language in list(self._texts.open_chunks()):
            self._texts.close(language)
        # A row that existed keeps its id and its postings, unless its text changed.
        unused = NO_IDS if stored is None else np.setdiff1d(self._ids(0, self._numbered), stored)
        if stored is not None and len(unused) == self._numbered:
            return []
        first, *others = self._generations
        segments = []
        for language, builder in self._texts.take():
            segment = NewSegment.built(builder, first, language)
            if len(unused):
                segment = segment.without(_core.IdSet(unused), first)
            segments.append(segment)
            segments += [segment.without(_core.IdSet(), generation) for generation in others]
        return segments


@contextmanager
def index_share(names: Names, analyzers: Analyzers, reserved: Reserved) -> Iterator[BatchIndex]:
    """Yield the `BatchIndex` of a write for which ids are reserved."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-analysis")
    try:
        yield BatchIndex(names, analyzers, reserved, worker)
    finally:
        worker.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def begin_write(
    connection: Connection, collection: CollectionIdentity, analyzers: Analyzers, rows: int
) -> AsyncIterator[BatchIndex]:
    """Yield the `BatchIndex` of a write of `rows` rows."""
    # This takes the first lock of every writer: no generation of the index is added or dropped before the transaction
    # ends.
    async with ended_pipeline(connection):
        await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
        answers = await reserve(connection, collection, rows, "FOR SHARE")
    with index_share(collection.names, analyzers, await answers.told()) as share:
        yield share


async def reserve(
    connection: Connection, collection: CollectionIdentity, rows: int, lock: RowLock = ""
) -> ReservedAnswers:
    """Send the queries for the state of the index and for ids of `rows` new rows."""
    # Call it after a writer's first lock, or let it take that lock.
    #
    # The ids come after the lock, so that a new generation knows by them which chunks it has to read. A block has as
    # many ids as a segment has chunks, so the ids of a segment are one or two ranges, however many writers there are.
    state = await ask_state(connection, collection, lock)
    blocks = await connection.execute(
        "SELECT nextval(pg_get_serial_sequence(%s, 'keyword_id')) FROM generate_series(1, %s)",
        [collection.names.chunk.as_string(connection), -(-rows // SEGMENT_CHUNKS)],
    )
    return ReservedAnswers(collection, state, blocks)


@dataclass(frozen=True, slots=True)
class ReservedAnswers:
    """The answers to the queries of `reserve`, still to be read."""

    collection: CollectionIdentity
    state: Cursor  # to `ask_state`
    blocks: Cursor  # the reserved blocks

    async def told(self) -> Reserved:
        """Read the answers; refuse an index of another analyzer version."""
        state = await state_told(self.state, self.collection)
        for version in state.versions:
            refuse_other_analyzer(self.collection.names, version)
        return Reserved(tuple(state.live), tuple([row[0] for row in await self.blocks.fetchall()]))
