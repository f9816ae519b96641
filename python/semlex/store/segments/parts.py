"""The segments and tombstones of a generation: their sizes, headers and ids, and whether all are there."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from psycopg import sql

from semlex import _core
from semlex.errors import DamagedSegmentError
from semlex.store.write.copy import ids_of, joined

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity, Names
    from semlex.store.segments.generations import Cursor

IDS_PAGE = 1_000_000


@lru_cache(maxsize=256)
def _counting(names: Names) -> bytes:
    """Return SQL of the sizes of segments and the number of tombstones of each live generation."""
    return (
        sql.SQL(
            "WITH live AS (SELECT keyword_generation, building_generation FROM {registry} WHERE name = %(name)s) "
            "SELECT language, array_agg(chunks) FROM {segment}, live "
            "WHERE generation IN (keyword_generation, building_generation) GROUP BY generation, language UNION ALL "
            "SELECT NULL, ARRAY[count(*)::int] FROM {tombstone}, live "
            "WHERE generation IN (keyword_generation, building_generation) GROUP BY generation"
        )
        .format(registry=names.registry, segment=names.segment, tombstone=names.tombstone)
        .as_bytes()
    )


async def ask_sizes(connection: Connection, collection: CollectionIdentity) -> Cursor:
    """Request the sizes that decide about a merge, as a transaction that has just written sees them."""
    return await connection.execute(_counting(collection.names), {"name": collection.names.collection})


async def segment_sizes(connection: Connection, names: Names, generation: int) -> list[tuple[UUID, str, int]]:
    """Id, language and number of chunks (dead ones included) of every segment, the smallest first."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT segment_id, language, chunks FROM {} WHERE generation = %s ORDER BY chunks, segment_id").format(
            names.segment
        ),
        [generation],
    )
    return await cursor.fetchall()


async def segment_headers(connection: Connection, names: Names, segments: Sequence[UUID]) -> dict[UUID, bytes]:
    """Header of each segment."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT segment_id, header FROM {} WHERE segment_id = ANY(%s)").format(names.segment),
        [list(segments)],
    )
    return dict(await cursor.fetchall())


async def tombstone_ids(connection: Connection, names: Names, generation: int) -> dict[UUID, _core.IdSet]:
    """Return the ids of each tombstone."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT tombstone_id, data FROM {} WHERE generation = %s").format(names.tombstone), [generation]
    )
    return {
        tombstone_id: _core.decode_tombstone(tombstone_id.bytes, data) for tombstone_id, data in await cursor.fetchall()
    }


async def check_manifest(connection: Connection, names: Names, generation: int, parts: int) -> None:
    """Compare the number of segments and tombstones that were read with the manifest's."""
    cursor = await connection.execute(
        sql.SQL("SELECT count(*) FROM {} WHERE generation = %s").format(names.manifest), [generation]
    )
    row = await cursor.fetchone()
    refuse_lost_parts(parts, 0 if row is None else row[0])


def refuse_lost_parts(found: int, listed: int) -> None:
    """Refuse an index whose segments or tombstones are fewer than the manifest lists."""
    if found != listed:
        raise DamagedSegmentError(None, f"it has {found} segments and tombstones; its manifest lists {listed}")


async def live_ids(connection: Connection, names: Names, generation: int) -> _core.IdSet:
    """Return ids in a generation's segments and in no tombstone."""
    segments = [segment_id for segment_id, *_ in await segment_sizes(connection, names, generation)]
    headers = await segment_headers(connection, names, segments)
    held = _core.IdSet.union([_core.segment_ids(segment_id.bytes, header) for segment_id, header in headers.items()])
    tombstones = await tombstone_ids(connection, names, generation)
    await check_manifest(connection, names, generation, len(segments) + len(tombstones))
    return held - _core.IdSet.union(list(tombstones.values()))


async def chunk_ids(connection: Connection, names: Names) -> NDArray[np.int64]:
    """Return ids of all chunks, ascending."""
    pages = [np.array([-(2**63)], dtype=np.int64)]
    while len(pages[-1]):
        cursor = await connection.cursor(binary=True).execute(
            sql.SQL(
                "SELECT array_send(array_agg(page.keyword_id)) FROM (SELECT c.keyword_id FROM {} AS c "
                "WHERE c.keyword_id > %s ORDER BY c.keyword_id LIMIT {}) AS page"
            ).format(names.chunk, sql.Literal(IDS_PAGE)),
            [int(pages[-1][-1])],
        )
        row = await cursor.fetchone()
        pages.append(ids_of(row and row[0]))
    return joined(pages[1:])
