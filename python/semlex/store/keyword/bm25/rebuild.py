"""Rebuild the keyword index while it is used: build a second generation beside the first, then switch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import StoreError
from semlex.store.keyword.base import Analyzers, Rebuilt
from semlex.store.keyword.bm25.segments import NewSegment, write_segments
from semlex.store.keyword.bm25.write import SegmentWriter
from semlex.store.postgres.rows import only_row
from semlex.store.postgres.settings import set_local
from semlex.store.schema.locks import without_writers, writing_lock
from semlex.store.segments import SEGMENT_CHUNKS, chunk_ids, live_ids, merging_lock, read_state, segment_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.names import CollectionIdentity, Names

PAGE_ROWS = 2_048
# Chunks that are held in memory over all languages, until their segments are written.
MAX_OPEN_CHUNKS = 2 * SEGMENT_CHUNKS


# Begin: from here on, every writer adds to both generations. Then read the chunks that were there before, and write
# their segments. Switch: for a moment nobody writes; missing chunks are added, and the new generation answers.
#
# Chunks are read in the order of their keyword ids. A rebuild first takes an id for itself: chunks with a smaller one
# existed before, those with a larger one come from writers who add to both generations. A killed rebuild leaves a
# generation that is never read; the next rebuild removes it and starts again.
@dataclass(slots=True)
class Rebuild:
    """One rebuild of the keyword index."""

    _database: Database
    _collection: CollectionIdentity
    _analyzers: Analyzers
    _progress: Callable[[int, int], None] | None
    _generation: int = field(default=0, init=False)
    _segments: int = field(default=0, init=False)

    @property
    def _names(self) -> Names:
        return self._collection.names

    async def run(self) -> Rebuilt:
        """Rebuild the index from the stored texts, with this version's analyzer; searches and writes continue."""
        boundary, total = await without_writers(
            self._database, "begin to rebuild the keyword index", self._collection, self._begin
        )
        await self._remove_others()
        chunks = await self._read(boundary, total)
        await without_writers(self._database, "switch to the rebuilt keyword index", self._collection, self._switch)
        await self._remove_others()
        return Rebuilt(self._generation, chunks, self._segments)

    async def _begin(self, connection: Connection) -> tuple[int, int]:
        """Begin the new generation; return the id at which reading ends, and the approximate number of chunks."""
        state = await read_state(connection, self._collection)
        self._generation = max(state.live) + 1
        # Nobody writes now, and nobody has begun this generation or a later one: such rows are damage.
        await connection.execute(
            sql.SQL(
                "WITH s AS (DELETE FROM {} WHERE generation >= %(new)s), "
                "t AS (DELETE FROM {} WHERE generation >= %(new)s) DELETE FROM {} WHERE generation >= %(new)s"
            ).format(self._names.segment, self._names.tombstone, self._names.manifest),
            {"new": self._generation},
        )
        await connection.execute(
            sql.SQL("UPDATE {} SET building_generation = %s, building_analyzer_version = %s WHERE name = %s").format(
                self._names.registry
            ),
            [self._generation, _core.ANALYZER_VERSION, self._names.collection],
        )
        statement = sql.SQL("SELECT nextval(pg_get_serial_sequence(%s, 'keyword_id')), (SELECT count(*) FROM {})")
        chunk = self._names.chunk
        boundary, total = await only_row(connection, statement.format(chunk), [chunk.as_string(connection)])
        return boundary, total

    async def _read(self, boundary: int, total: int) -> int:
        """Read all chunks with keyword ids below `boundary`, and write their segments; return the number of chunks."""
        writer = SegmentWriter(self._analyzers)
        after, done = -(2**63), 0
        page = await self._page(after, boundary)
        while page:
            after = page[-1][0]
            # The next page is on its way while this one is analysed.
            _, page_behind = await asyncio.gather(asyncio.to_thread(_add, writer, page), self._page(after, boundary))
            await self._write(writer, MAX_OPEN_CHUNKS)
            done += len(page)
            if self._progress is not None:
                self._progress(done, max(done, total))
            page = page_behind
        await self._write(writer, 0)
        return done

    async def _page(self, after: int, boundary: int) -> list[Any]:
        async def work(connection: Connection) -> list[Any]:
            await set_local(connection, statement_timeout=0)
            cursor = await connection.cursor(binary=True).execute(
                sql.SQL(
                    "SELECT keyword_id, language, context, chunk_text FROM {} "
                    "WHERE keyword_id > %s AND keyword_id < %s ORDER BY keyword_id LIMIT {}"
                ).format(self._names.chunk, sql.Literal(PAGE_ROWS)),
                [after, boundary],
            )
            return await cursor.fetchall()

        return await self._database.read("read chunks", work)

    async def _write(self, writer: SegmentWriter, most_open: int) -> None:
        """Write the full segments, then the largest open ones until at most `most_open` chunks are in open ones."""
        while sum(writer.open_chunks().values()) > most_open:
            waiting = writer.open_chunks()
            writer.close(max(waiting, key=waiting.__getitem__))
        for language, builder in writer.take():
            await self._write_one(await asyncio.to_thread(NewSegment.built, builder, self._generation, language))

    async def _write_one(self, segment: NewSegment) -> None:
        own = _core.segment_ids(segment.segment_id.bytes, segment.encoded.header)
        is_repeated = False

        async def work(connection: Connection) -> None:
            nonlocal is_repeated
            await set_local(connection, statement_timeout=0)
            await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(self._collection)])
            await self._check_mine(connection)
            if is_repeated:
                # The attempt before may have been committed, although its answer was lost. A merge may have moved the
                # chunks to another segment since.
                held = _core.IdSet.union(await segment_ids(connection, self._names, self._generation))
                if held & own:
                    return
            is_repeated = True
            await write_segments(connection, self._names, [segment])

        await self._database.write("write a segment", work)
        self._segments += 1

    async def _check_mine(self, connection: Connection) -> None:
        state = await read_state(connection, self._collection, "FOR SHARE")
        if state.building != self._generation:
            raise StoreError(
                f"another rebuild of the keyword index of {self._names.collection!r} began in the meantime, so this "
                "rebuild stopped; wait until the other one is done"
            )

    async def _switch(self, connection: Connection) -> None:
        """Add chunks that the new generation lacks, write tombstones for deleted ones, and let searches use it."""
        state = await read_state(connection, self._collection)
        if state.generation == self._generation:
            return  # an earlier attempt was committed and the answer to it was lost
        await self._check_mine(connection)
        held = await live_ids(connection, self._names, self._generation)
        chunks = _core.IdSet(await chunk_ids(connection, self._names))
        segments = await self._missing(connection, (chunks - held).to_array())
        await write_segments(connection, self._names, segments, [(self._generation, held - chunks)])
        self._segments += len(segments)
        await connection.execute(
            sql.SQL(
                "UPDATE {} SET keyword_generation = building_generation, "
                "analyzer_version = building_analyzer_version, building_generation = NULL, "
                "building_analyzer_version = NULL WHERE name = %s"
            ).format(self._names.registry),
            [self._names.collection],
        )

    async def _missing(self, connection: Connection, missing: NDArray[np.int64]) -> list[NewSegment]:
        """Make segments of chunks that the new generation lacks, because a program other than semlex wrote them."""
        writer = SegmentWriter(self._analyzers)
        for start in range(0, len(missing), PAGE_ROWS):
            cursor = await connection.cursor(binary=True).execute(
                sql.SQL(
                    "SELECT keyword_id, language, context, chunk_text FROM {} "
                    "WHERE keyword_id = ANY(%s) ORDER BY keyword_id"
                ).format(self._names.chunk),
                [missing[start : start + PAGE_ROWS].tolist()],
            )
            await asyncio.to_thread(_add, writer, await cursor.fetchall())
        for language in list(writer.open_chunks()):
            writer.close(language)
        return [NewSegment.built(builder, self._generation, language) for language, builder in writer.take()]

    async def _remove_others(self) -> None:
        """Remove rows of generations that are not in use: of the replaced one, or of a rebuild that was killed."""

        async def work(connection: Connection) -> None:
            await set_local(connection, statement_timeout=0)
            # A merge of the old generation's segments ends first, so that none of them is written later.
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", [merging_lock(self._collection)])
            live = (await read_state(connection, self._collection)).live
            # A rebuild that begins at this moment has a larger number.
            dead = sql.SQL("generation <> ALL(%(live)s) AND generation < %(newest)s")
            values = {"live": live, "newest": max(live)}
            # Also those of a segment whose row is lost.
            await connection.execute(
                sql.SQL(
                    "DELETE FROM {} AS p WHERE NOT EXISTS "
                    "(SELECT FROM {} AS s WHERE s.segment_id = p.segment_id AND NOT ({}))"
                ).format(self._names.posting, self._names.segment, dead),
                values,
            )
            for table in (self._names.segment, self._names.tombstone, self._names.manifest):
                await connection.execute(sql.SQL("DELETE FROM {} WHERE {}").format(table, dead), values)

        await self._database.write("remove the old keyword index", work)


def _add(writer: SegmentWriter, rows: Sequence[tuple[int, str | None, str, str]]) -> None:
    ids, languages, contexts, texts = zip(*rows, strict=True)
    writer.add(np.array(ids, dtype=np.int64), languages, contexts, texts)
