"""The vector leg: nearest vectors, through the index or exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgvector import HalfVector, Vector
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format

from semlex.errors import ConfigurationError
from semlex.store.query.legs import Beside, Leg, Statement, as_told, by_key, ranked

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.query.filters import Filter
    from semlex.store.query.legs import Key, LegAnswer, Question
    from semlex.store.schema.collection import Collection

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


# Adding zero keeps the planner off the HNSW index, which would stop after ef_search rows.
NEAREST_EXACTLY = sql.SQL(
    "SELECT e.document_id, e.chunk_id, ({distance}) AS distance "
    "FROM {embedding} AS e JOIN {chunk} AS c USING (document_id, chunk_id) WHERE {condition} "
    "ORDER BY ({distance}) + 0.0::float8, e.document_id, e.chunk_id LIMIT %(limit)s"
)
# The key is part of the order, so that it decides among equal distances where the candidates end; Postgres sorts the
# index's rows incrementally for that, and looks at one row more than it returns.
NEAREST = sql.SQL(
    "SELECT e.document_id, e.chunk_id, {distance} AS distance "
    "FROM {embedding} AS e ORDER BY {distance}, e.document_id, e.chunk_id LIMIT %(limit)s"
)
# relaxed_order may return rows slightly out of order: they are sorted once more.
ALONE = sql.SQL(
    "WITH nearest AS MATERIALIZED ({found}) SELECT n.document_id, n.chunk_id, {offset}::float8 - n.distance "
    "FROM nearest AS n ORDER BY n.distance, n.document_id, n.chunk_id"
)
WITH_TOLD = sql.SQL(
    "WITH nearest AS MATERIALIZED ({found}) SELECT n.document_id, n.chunk_id, {offset}::float8 - n.distance, "
    "(SELECT {told} FROM {chunk} AS c WHERE c.document_id = n.document_id AND c.chunk_id = n.chunk_id) "
    "FROM nearest AS n ORDER BY n.distance, n.document_id, n.chunk_id"
)


def vector_leg(
    collection: Collection,
    query: NDArray[np.float32],
    limit: int,
    condition: Filter,
    *,
    exact: bool = False,
    ef_search: int | None = None,
) -> Leg:
    """The vector leg.

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
    search = _Search(collection, query, limit, condition, exact=exact)
    settings: dict[str, str | int] = {}
    if not search.exact:
        candidates = min(MAX_EF_SEARCH, max(limit + 1, ef_search or DEFAULT_EF_SEARCH))
        settings = {"hnsw__ef_search": candidates, "hnsw__iterative_scan": "relaxed_order"}
    return Leg("vector", search.statements, search.finish, settings, search.beside())


class _Search:
    """One query: its statements, and what is made of their rows."""

    def __init__(
        self, collection: Collection, query: NDArray[np.float32], limit: int, condition: Filter, *, exact: bool
    ) -> None:
        embedding = collection.embedding
        if embedding is None:
            raise ConfigurationError("the collection holds no vectors")
        extension = collection.server.extension
        value = sql.SQL("%(vector)s::{}.{}").format(extension, sql.Identifier(embedding.storage))
        self.exact = exact or not condition.is_empty
        self._parts: dict[str, sql.Composable] = {
            "distance": collection.distance.between(extension, sql.SQL("e.embedding"), value),
            "offset": sql.Literal(collection.distance.offset),
            "embedding": collection.names.embedding(embedding.version),
            "chunk": collection.names.chunk,
            "condition": condition.expression,
        }
        # Whether another leg wants to know something.
        self._tells = False
        self._vector = {"vector": vector_parameter(query, embedding.storage)}
        self._parameters = {**self._vector, "limit": limit, **condition.parameters}

    def statements(self, beside: Beside | None) -> tuple[Statement]:
        """The nearest chunks, with what another leg wants to know of them."""
        found = (NEAREST_EXACTLY if self.exact else NEAREST).format(**self._parts)
        self._tells = beside is not None
        asked = beside or Beside(sql.SQL(""))
        text = WITH_TOLD if beside else ALONE
        composed = text.format(found=found, told=asked.expression, **self._parts)
        return (Statement(composed, self._parameters | asked.parameters),)

    async def finish(self, _: Connection, rows: list[list[Any]]) -> LegAnswer:
        """The answer."""
        return ranked(rows[0], with_besides=self._tells, score=as_told, scores_of=self._scores_of)

    def beside(self) -> Beside:
        """The similarity of a chunk's vector; NULL when it has none."""
        text = sql.SQL(
            "(SELECT {offset}::float8 - ({distance}) FROM {embedding} AS e "
            "WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id)"
        )
        return Beside(text.format(**self._parts), self._vector)

    def _scores_of(self, keys: Sequence[Key]) -> Question:
        text = sql.SQL(
            "SELECT {offset}::float8 - ({distance}) FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) "
            "WITH ORDINALITY AS k(document_id, chunk_id, number) "
            "LEFT JOIN {embedding} AS e USING (document_id, chunk_id) ORDER BY k.number"
        )
        return by_key(Statement(text.format(**self._parts), self._vector), keys)
