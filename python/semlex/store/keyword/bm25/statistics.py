"""Statistics of the BM25 index, for ``status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.errors import AnalyzerVersionError, DamagedSegmentError
from semlex.store.keyword.bm25.generations import read_state
from semlex.store.keyword.bm25.segments import check_manifest, check_row_keys, chunk_ids, live_ids

if TYPE_CHECKING:
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity


async def index_figures(
    connection: Connection, collection: CollectionIdentity, *, counted: bool = True
) -> dict[str, Any]:
    """Size and state of the index.

    Args:
        connection: In a transaction with one snapshot.
    """
    names = collection.names
    state = await read_state(connection, collection)
    tables = [names.segment, names.posting, names.tombstone, names.manifest]
    cursor = await connection.execute(
        sql.SQL(
            "SELECT count(*), coalesce(sum(postings), 0)::bigint, "
            "(SELECT count(*) FROM {tombstone} WHERE generation = %(generation)s), "
            "(SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%(tables)s::text[]) AS name), "
            "count(*) FILTER (WHERE postings > 0 "
            "AND NOT EXISTS (SELECT FROM {posting} AS p WHERE p.segment_id = s.segment_id)) "
            "FROM {segment} AS s WHERE generation = %(generation)s"
        ).format(segment=names.segment, tombstone=names.tombstone, posting=names.posting),
        {"generation": state.generation, "tables": [table.as_string(connection) for table in tables]},
    )
    row = await cursor.fetchone()
    segments, postings, tombstones, size, empty = row or (0, 0, 0, 0, 0)
    problem, missing = None, None
    try:
        await check_manifest(connection, names, state.generation, segments + tombstones)
        if counted:
            await check_row_keys(connection, names, state.generation)
            held = await live_ids(connection, names, state.generation)
            missing = (_core.IdSet(await chunk_ids(connection, names)) - held).count
    except (AnalyzerVersionError, DamagedSegmentError) as error:
        problem = str(error)
    if empty and problem is None:
        problem = str(DamagedSegmentError(None, f"posting rows of {empty} segments are missing"))
    return {
        "index_generation": state.generation,
        "index_building": state.building,
        "index_segments": segments,
        "index_tombstones": tombstones,
        "index_postings": postings,
        "index_bytes": size,
        "chunks_not_indexed": missing,
        "index_problem": problem,
    }
