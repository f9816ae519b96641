"""The vector leg: nearest vectors, through the index or exactly."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pgvector import HalfVector, Vector
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from semlex.errors import ConfigurationError
from semlex.store.legs import Leg, LegAnswer, Statement, ranked_rows, scores_by_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.connection import Connection
    from semlex.store.filters import Filter
    from semlex.store.legs import Key
    from semlex.store.schema import Collection

MAX_EF_SEARCH = 1000  # pgvector's own bound
DEFAULT_EF_SEARCH = 40  # pgvector's default


class _WireVector:
    """A vector in pgvector's binary form, whatever schema the extension's types live in."""

    def __init__(self, data: bytes) -> None:
        self.data = data


class _WireVectorDumper(Dumper):
    # No type is named here: the cast in the statement decides, and the server reads the binary form of that type.
    # So nothing has to be looked up or registered on a connection that may be the user's.
    format = Format.BINARY

    def dump(self, obj: _WireVector) -> bytes:
        return obj.data


def vector_parameter(values: NDArray[np.float32], storage: str) -> Any:
    """A vector as a bound value for a statement that casts it."""
    return _WireVector(HalfVector(values).to_binary() if storage == "halfvec" else Vector(values).to_binary())


def register_vector_parameter(connection: Connection) -> None:
    """Teaches a connection to send `vector_parameter` values; they are of a private class, so nothing else changes."""
    connection.adapters.register_dumper(_WireVector, _WireVectorDumper)


def vector_leg(
    collection: Collection,
    query: NDArray[np.float32],
    limit: int,
    condition: Filter,
    *,
    exact: bool = False,
    ef_search: int | None = None,
) -> Leg:
    """The statement of the vector leg.

    Without a filter the HNSW index answers (where there is one), with ``ef_search`` at least `limit` and iterative
    scanning on, because dead rows alone can leave fewer rows than asked for. With a filter, or when `exact`, the
    distance to every row that passes is computed: the answer is exact.

    Args:
        collection: With vectors.
        query: float32, shape (d,).
        limit: Rows wanted.
        condition: Filter over the chunk's row.
        exact: Go round the index, and leave out vectors whose chunk is gone.
        ef_search: Size of the index's candidate list; at least `limit`, at most 1,000.
    """
    if collection.embedding is None:
        raise ConfigurationError("the collection holds no vectors")
    names, embedding = collection.names, collection.embedding
    extension = collection.server.extension
    value = sql.SQL("%(vector)s::{}.{}").format(extension, sql.Identifier(embedding.storage))
    distance = collection.distance.between(extension, sql.SQL("e.embedding"), value)
    parts = {
        "distance": distance,
        "offset": sql.Literal(collection.distance.offset),
        "embedding": names.embedding(embedding.version),
        "chunk": names.chunk,
        "condition": condition.expression,
    }
    vector = vector_parameter(query, embedding.storage)
    parameters = {"vector": vector, "limit": limit, **condition.parameters}
    by_key = sql.SQL(
        "SELECT {offset}::float8 - ({distance}) FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
        "WITH ORDINALITY AS k(document_id, chunk_id, number) "
        "LEFT JOIN {embedding} AS e USING (document_id, chunk_id) ORDER BY k.number"
    ).format(**parts)
    finish = partial(_answer, Statement(by_key, {"vector": vector}))
    if exact or not condition.is_empty:
        # Adding zero keeps the planner off the HNSW index, which would stop after ef_search rows.
        statement = sql.SQL(
            "SELECT n.document_id, n.chunk_id, {offset}::float8 - n.distance FROM ("
            "SELECT e.document_id, e.chunk_id, ({distance}) AS distance "
            "FROM {embedding} AS e JOIN {chunk} AS c USING (document_id, chunk_id) WHERE {condition} "
            "ORDER BY ({distance}) + 0.0::float8, e.document_id, e.chunk_id LIMIT %(limit)s) AS n "
            "ORDER BY n.distance, n.document_id, n.chunk_id"
        ).format(**parts)
        return Leg("vector", (Statement(statement, parameters),), finish)
    # relaxed_order may return rows slightly out of order: the outer query sorts them again. The key is part of the
    # inner order, too, so that it decides among equal distances where the candidates end; Postgres sorts the index's
    # rows incrementally for that, and looks at one row more than it returns.
    statement = sql.SQL(
        "WITH nearest AS MATERIALIZED (SELECT e.document_id, e.chunk_id, {distance} AS distance "
        "FROM {embedding} AS e ORDER BY {distance}, e.document_id, e.chunk_id LIMIT %(limit)s) "
        "SELECT document_id, chunk_id, {offset}::float8 - distance FROM nearest "
        "ORDER BY distance, document_id, chunk_id"
    ).format(**parts)
    candidates = min(MAX_EF_SEARCH, max(limit + 1, ef_search or DEFAULT_EF_SEARCH))
    settings: dict[str, str | int] = {"hnsw__ef_search": candidates, "hnsw__iterative_scan": "relaxed_order"}
    return Leg("vector", (Statement(statement, parameters),), finish, settings)


async def _answer(by_key: Statement, _: Connection, rows: list[list[Any]], _before: Sequence[Key]) -> LegAnswer:
    async def scores_of(connection: Connection, keys: Sequence[Key]) -> NDArray[np.float64]:
        register_vector_parameter(connection)
        return await scores_by_key(connection, by_key, keys)

    return LegAnswer(*ranked_rows(rows[0]), scores_of=scores_of)
