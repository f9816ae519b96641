"""What a filter selects: which share of the chunks, and their ids where they are few.

A server's own estimate of a filter on JSON is a constant for most of them, so a sample of the table's pages is looked
at instead. What it shows is remembered for a minute: it decides how chunks are found, never which.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.store.keyword.id_arrays import ids_of
from semlex.store.query.leg import Statement
from semlex.store.query.run import fetch

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.filters import Filter
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

# Chunks of a sample: the standard deviation of a share of 5 % is then 0.5 %.
SAMPLE_CHUNKS = 2_000
# Chunks on a page, while the server has not counted them.
CHUNKS_A_PAGE = 5
REMEMBERED_SECONDS = 60.0
REMEMBERED_FILTERS = 256


class RememberedShares:
    """Which share of the chunks passes each of the filters that were used last, for a minute."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._shares: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def get(self, condition: Filter) -> float | None:
        """The share of a filter, 0 to 1; None where there is none that is young enough."""
        taken, share = self._shares.get(condition.key, (0.0, None))
        return share if self._clock.monotonic() - taken < REMEMBERED_SECONDS else None

    def put(self, condition: Filter, share: float) -> None:
        """Remembers a share."""
        self._shares.pop(condition.key, None)
        self._shares[condition.key] = (self._clock.monotonic(), share)
        if len(self._shares) > REMEMBERED_FILTERS:
            self._shares.popitem(last=False)


def sampled_chunks(names: Names, chunks: int) -> sql.Composable:
    """About so many chunks on random pages, the same ones every time, as a table with the alias ``c``."""
    return sql.SQL(
        "{chunk} AS c TABLESAMPLE SYSTEM (("
        "SELECT least(100, 100.0 * {chunks} / greatest(1, pg_relation_size(t.oid) / 8192 * "
        "CASE WHEN t.reltuples > 0 AND t.relpages > 0 THEN t.reltuples / t.relpages ELSE {density} END)) "
        "FROM pg_class AS t WHERE t.oid = to_regclass({table}))) REPEATABLE (0)"
    ).format(
        chunk=names.chunk,
        chunks=sql.Literal(chunks),
        density=sql.Literal(CHUNKS_A_PAGE),
        table=sql.Literal(names.chunk.as_string()),
    )


async def sampled_share(snapshot: Snapshot, collection: CollectionInfo, condition: Filter) -> float:
    """Which share of about 2,000 chunks on random pages passes, the same ones every time; 1 where there are none."""
    text = sql.SQL("SELECT count(*) FILTER (WHERE {condition}), count(*) FROM {sampled}").format(
        condition=condition.expression, sampled=sampled_chunks(collection.names, SAMPLE_CHUNKS)
    )
    ((passing, chunks),) = await fetch(snapshot, Statement(text, condition.parameters))
    return float(passing / chunks) if chunks else 1.0


async def read_ids(
    snapshot: Snapshot, collection: CollectionInfo, condition: Filter, limit: int
) -> NDArray[np.int64] | None:
    """The ids of the chunks that pass a filter, ascending; None where they are more than `limit`."""
    text = sql.SQL(
        "SELECT array_send(array_agg(k.keyword_id)) FROM "
        "(SELECT c.keyword_id FROM {chunk} AS c WHERE {condition} LIMIT {limit}) AS k"
    ).format(chunk=collection.names.chunk, condition=condition.expression, limit=sql.Literal(limit + 1))
    ((array,),) = await fetch(snapshot, Statement(text, condition.parameters))
    ids = ids_of(array)
    return None if len(ids) > limit else ids
