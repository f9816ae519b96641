"""Read which chunks pass a filter: the ids of these chunks, and where their vectors are in the table."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

from semlex.store.query.leg import Statement
from semlex.store.query.passing_ids import SERVER_RUN, database_state, ids_that_pass, passing_ids
from semlex.store.query.passing_rows import NOWHERE, PassingRows, has_many
from semlex.store.query.run import fetch
from semlex.store.write.copy import ids_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter
    from semlex.store.schema.names import Names


class TableState(NamedTuple):
    """Two SQL expressions; their values change when data read from a collection may have become outdated."""

    state: sql.Composable  # equal for snapshots that see the same rows; NULL where that cannot be known
    file: sql.Composable  # equal as long as the table of vectors was not written from scratch, in one run of the server


@lru_cache(maxsize=256)
def table_state(names: Names, version: int) -> TableState:
    """Return the `TableState` of a collection and one embedding version."""
    file = sql.SQL("pg_catalog.pg_relation_filenode({}::pg_catalog.regclass)::text || ' ' || {}").format(
        sql.Literal(names.embedding(version).as_string()), SERVER_RUN
    )
    return TableState(sql.SQL("{} || ' ' || {}").format(database_state(names, version), file), file)


async def read_ids(snapshot: Snapshot, names: Names, condition: Filter, limit: int) -> NDArray[np.int64] | None:
    """Return the ids of the chunks that pass a filter, ascending; None if there are more than `limit`."""
    text = sql.SQL("SELECT {}").format(ids_that_pass(names, condition, limit))
    ((array,),) = await fetch(snapshot, Statement(text, condition.parameters))
    ids = ids_of(array)
    return None if len(ids) > limit else ids


async def read_passing_rows(
    snapshot: Snapshot, names: Names, version: int, condition: Filter, limit: int
) -> PassingRows | None:
    """Return the rows that pass a filter, with the places of their vectors; None if these are more than `limit`."""
    # OFFSET 0 keeps the subqueries apart: a nested loop, however the planner rates the filter.
    tables = table_state(names, version)
    text = sql.SQL(
        "SELECT {state}, {file}, pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text, "
        "array_send(array_agg(k.keyword_id)), array_send(array_agg(coalesce(n.place, {nowhere}::tid))) "
        "FROM (SELECT c.document_id, c.chunk_id, c.keyword_id FROM {chunk} AS c WHERE {condition} LIMIT {limit}) AS k "
        "LEFT JOIN LATERAL (SELECT e.ctid AS place FROM {vectors} AS e "
        "WHERE e.document_id = k.document_id AND e.chunk_id = k.chunk_id OFFSET 0) AS n ON true"
    ).format(
        state=sql.SQL("NULL::text") if condition.names_rows else tables.state,
        file=tables.file,
        nowhere=sql.Literal(NOWHERE),
        chunk=names.chunk,
        vectors=names.embedding(version),
        condition=condition.expression,
        limit=sql.Literal(limit + 1),
    )
    (row,) = await fetch(snapshot, Statement(text, condition.parameters))
    rows = await asyncio.to_thread(PassingRows.read, *row) if has_many(row[3]) else PassingRows.read(*row)
    return None if len(rows.ids) > limit else rows


async def read_again(
    snapshot: Snapshot, names: Names, version: int, condition: Filter, limit: int, *, rows: PassingRows
) -> PassingRows | None:
    """Return those of `rows` that pass now; None if more than `limit` chunks pass, or if one has no place in `rows`."""
    state = table_state(names, version).state
    ((now, array),) = await fetch(snapshot, passing_ids(names, condition, limit, state=state, known=rows.state))
    if now is not None and now == rows.state:
        return rows
    given = rows, array, now, limit
    return await asyncio.to_thread(_among, *given) if rows.takes_long or has_many(array) else _among(*given)


def _among(rows: PassingRows, array: bytes | None, state: str | None, limit: int) -> PassingRows | None:
    ids = ids_of(array)
    return None if len(ids) > limit else rows.among(ids, state)
