"""Read facts about chunks: whether they pass a filter, the values of their fields, and exact vector ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.filters.fields import OWN, ROW
from semlex.store.postgres.rows import cursor_with_times
from semlex.store.query.filters import OWN_COLUMNS, Filter
from semlex.store.query.leg import GIVEN_KEYS, NUMBERED_KEYS, Key, Statement, key_arrays
from semlex.store.query.rows import live_row, read_live_tables, seen_row
from semlex.store.query.run import fetch
from semlex.store.query.vector import vector_leg

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo


@dataclass(frozen=True, slots=True)
class VectorRank:
    """A chunk with its score and exact rank in vector search."""

    key: Key
    score: float  # cosine similarity, or that of the distance in use
    rank: int  # among all vectors whose chunk passes the filter, from 1


async def read_passes(
    snapshot: Snapshot, collection: CollectionInfo, condition: Filter, keys: Sequence[Key]
) -> dict[Key, bool]:
    """Return for each of these chunks, in the order of `keys`, whether it passes; chunks that are gone are left out."""
    text = sql.SQL(
        "SELECT c.document_id, c.chunk_id, {} IS TRUE FROM {} JOIN {} AS c USING (document_id, chunk_id) "
        "ORDER BY k.number"
    ).format(condition.expression, NUMBERED_KEYS, collection.names.chunk)
    rows = await fetch(snapshot, Statement(text, {**condition.parameters, **key_arrays(keys)}))
    return {(document_id, chunk_id): passes for document_id, chunk_id, passes in rows}


async def read_fields(
    snapshot: Snapshot, collection: CollectionInfo, keys: Sequence[Key], *, with_rows: bool = False
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return for each chunk the last two arguments of `holds`: its metadata, and its values of semlex's own fields."""
    names = collection.names
    tables = await read_live_tables(snapshot.connection, names) if with_rows else ()
    own = [name for name in OWN if name != "document"]
    text = sql.SQL(
        "SELECT c.metadata, {row}, {columns} FROM {keys} JOIN {chunk} AS c USING (document_id, chunk_id) "
        "LEFT JOIN {document} AS d ON d.document_id = c.document_id "
        "LEFT JOIN {source} AS s ON s.source_id = d.source_id ORDER BY k.number"
    ).format(
        row=live_row(tables),
        columns=sql.SQL(", ").join([*(OWN_COLUMNS[name] for name in own), sql.SQL("c.document_id")]),
        keys=NUMBERED_KEYS,
        chunk=names.chunk,
        document=names.document,
        source=names.source,
    )
    cursor = await cursor_with_times(snapshot.connection).execute(text, key_arrays(keys))
    found = []
    for metadata, row, *values in await cursor.fetchall():
        fields = dict(zip(own, values, strict=False)) | {"document": values[-1].hex}
        # "" and an empty list of headings are as good as missing.
        fields = {name: value for name, value in fields.items() if value not in (None, "", [])}
        found.append((metadata, fields if row is None else fields | {ROW: seen_row(row)}))
    return found


async def vector_rank(
    snapshot: Snapshot, collection: CollectionInfo, vector: NDArray[np.float32], condition: Filter, keys: Sequence[Key]
) -> VectorRank | None:
    """Return the nearest of the chunks `keys`, with its exact rank among all that pass; None if none has a vector."""
    scorer = vector_leg(collection, vector, 1, condition, plan="scan").scorer
    # Adding zero keeps the planner off the vector index, which would stop early.
    nearest = sql.SQL(
        "SELECT e.document_id, e.chunk_id, ({distance}) + 0.0::float8 "
        "FROM {keys} JOIN {embedding} AS e USING (document_id, chunk_id) ORDER BY 3, 1, 2 LIMIT 1"
    ).format(**scorer.parts, keys=GIVEN_KEYS)
    rows = await fetch(snapshot, Statement(nearest, {**scorer.vector, **key_arrays(keys)}))
    if not rows:
        return None
    document_id, chunk_id, distance = rows[0]
    nearer = sql.SQL(
        "SELECT count(*) FROM {embedding} AS e JOIN {chunk} AS c USING (document_id, chunk_id) WHERE {condition} AND "
        "(({distance}) + 0.0::float8, e.document_id, e.chunk_id) < (%(mine)s::float8, %(document)s::uuid, %(chunk)s)"
    ).format(**scorer.parts)
    mine = {"mine": distance, "document": document_id, "chunk": chunk_id}
    ((count,),) = await fetch(snapshot, Statement(nearer, {**scorer.vector, **condition.parameters, **mine}))
    return VectorRank((document_id, chunk_id), collection.distance.offset - distance, count + 1)
