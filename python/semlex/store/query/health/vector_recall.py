"""How much of what is nearest a vector index finds, measured on stored vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from semlex.clock import SYSTEM, Clock
from semlex.store.postgres.settings import set_local
from semlex.store.query.filters import parse_filters
from semlex.store.query.score_calibration import sample_vectors
from semlex.store.query.vector import register_vector_parameter, vector_leg

if TYPE_CHECKING:
    from semlex.store.indexes.catalog import VectorIndexes
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.vector import VectorLeg
    from semlex.store.schema.collection import CollectionInfo

NEIGHBOURS = 10
# Rounding: the index may compare in another order of additions.
EQUAL = 1e-6


class Recall(NamedTuple):
    """What was measured.

    Attributes:
        found: Share of the nearest ten that the index finds, 0 to 1; None where there was no time for one vector.
        vectors: For how many stored vectors.
        wanted: How many were to be measured.
        plan: How the index was asked, in words.
    """

    found: float | None
    vectors: int
    wanted: int
    plan: str


async def vector_recall(
    connection: Connection,
    collection: CollectionInfo,
    indexes: VectorIndexes,
    *,
    vectors: int,
    seconds: float,
    clock: Clock = SYSTEM,
) -> Recall:
    """Asks for the neighbours of stored vectors, through the index and exactly.

    The vectors are those of `VectorSample`, the same at every call while the collection stays the same. A vector does
    not count as its own neighbour, and of equally near ones any will do.

    Args:
        connection: In a transaction, not in a pipeline: a part of it may be undone.
        seconds: Most time for all of them; what was measured by then counts.
    """
    queries = await sample_vectors(connection, collection, vectors)
    until, shares, plan = clock.monotonic() + seconds, [], ""
    register_vector_parameter(connection)
    condition = parse_filters(None, collection.names)
    for query in queries:
        milliseconds = round(1000 * (until - clock.monotonic()))
        if milliseconds <= 0:
            break
        through = vector_leg(collection, query, NEIGHBOURS + 1, condition, indexes=indexes)
        exactly = vector_leg(collection, query, NEIGHBOURS + 1, condition, plan="scan")
        plan = through.plan
        try:
            async with connection.transaction():
                await set_local(connection, statement_timeout=milliseconds)
                nearest = await _scores(connection, exactly)
                found = await _scores(connection, through)
        except psycopg.errors.QueryCanceled:
            break
        if len(nearest) > 1:
            least = nearest[-1] - EQUAL * max(1.0, abs(nearest[-1]))
            itself = any(score >= nearest[0] - EQUAL for score in found)
            shares.append((sum(score >= least for score in found) - itself) / (len(nearest) - 1))
    return Recall(min(1.0, sum(shares) / len(shares)) if shares else None, len(shares), len(queries), plan)


async def _scores(connection: Connection, leg: VectorLeg) -> list[float]:
    if leg.settings:
        await set_local(connection, **leg.settings)
    statement = leg.prepare(None).statements[0]
    cursor: Any = connection.cursor(binary=True)
    await cursor.execute(statement.text, statement.parameters)
    return [score for _, _, score in await cursor.fetchall()]
