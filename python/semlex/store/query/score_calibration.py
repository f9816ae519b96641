"""Sample the stored vectors, to compare the scores of hits with the scores that random chunks have for the query."""

from __future__ import annotations

import hashlib
import math
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from semlex.clock import SYSTEM, Clock
from semlex.store.postgres.rows import only_row
from semlex.store.query.leg import GIVEN_KEYS
from semlex.store.schema.names import oid_of, stored_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.options.collection import DistanceName
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo

# How near is near differs from model to model and from query to query. Score fusion therefore counts how many standard
# deviations a chunk lies above what random chunks of the collection give for the same query.
SAMPLE_ROWS = 256
# Twice as many points as rows: several points may lead to one row.
PROBES = 2 * SAMPLE_ROWS
SAMPLE_SECONDS = 600.0
# Share of the rows that this client may write before it draws again.
TOLERATED_WRITES = 0.1
# Similarities are computed in float32; what differs by less than this share of the scale is equal.
RESOLUTION = 1e-6
# The chunks of an indexed document begin with its key and a dash (see `indexed_chunk_id`), then comes a hash.
SHARED_BEGINNING = 33
# pgvector's binary form: dimension and a reserved number, int16 each, then the values, all big-endian.
HEADER_BYTES = 4
WIRE_TYPES = {"vector": ">f4", "halfvec": ">f2"}


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of the similarities of a sample of vectors to one query."""

    mean: float  # 0 for an empty sample
    deviation: float  # standard deviation; 0 if they do not differ beyond rounding


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A sample, with the collection and embedding version that it was taken from."""

    of: tuple[uuid.UUID, int]
    vectors: NDArray[np.float32]
    rows: float
    at: float
    written: int  # rows that this client had written by then


class VectorSample:
    """A sample of up to 256 stored vectors, taken at fixed keys: it stays the same while the collection does."""

    # The sample is kept in memory, one per open retriever (1 MB at 1,024 dimensions), and drawn by the first search
    # that needs it, in its own transaction: a standby or a role that may only read can do that. It is drawn again after
    # 10 minutes, after this client has written more than a tenth of the rows that there were, and for another set of
    # vectors. What other clients write meanwhile is not in it.

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._drawn: _Drawn | None = None
        self._written = 0

    def note_written(self, rows: int) -> None:
        """Note rows that this client has written or deleted."""
        self._written += rows

    async def spread(self, connection: Connection, collection: CollectionInfo, query: NDArray[np.float32]) -> Spread:
        """Return the spread of a query's similarities to the sample; read the sample in this transaction if needed."""
        found = self.spread_in_memory(collection, query)
        if found is not None:
            return found
        written = self._written
        vectors, rows = await _draw(connection, collection)
        if collection.distance.name == "cosine":
            vectors = _unit(vectors)
        of = (collection.collection_id, collection.vectors.version)
        # Rows written while the sample was read count against it.
        self._drawn = _Drawn(of, vectors, rows, self._clock.monotonic(), written)
        return spread_of(vectors, query, collection.distance.name)

    def spread_in_memory(self, collection: CollectionInfo, query: NDArray[np.float32]) -> Spread | None:
        """Return what `spread` returns, or None if the sample has to be read first."""
        drawn, embedding = self._drawn, collection.embedding
        if drawn is None or embedding is None or drawn.of != (collection.collection_id, embedding.version):
            return None
        return None if self._is_old(drawn) else spread_of(drawn.vectors, query, collection.distance.name)

    def _is_old(self, drawn: _Drawn) -> bool:
        if self._clock.monotonic() - drawn.at > SAMPLE_SECONDS:
            return True
        return self._written - drawn.written > TOLERATED_WRITES * drawn.rows


@dataclass(frozen=True, slots=True)
class Calibration:
    """The sample and the query by which a search judges its vector scores."""

    sample: VectorSample
    collection: CollectionInfo
    query: NDArray[np.float32]  # float32, shape (d,)

    def spread_in_memory(self) -> Spread | None:
        """Return the spread if the sample is in memory, else None."""
        return self.sample.spread_in_memory(self.collection, self.query)

    async def spread(self, snapshot: Snapshot) -> Spread:
        """Return the spread, reading the sample first if needed."""
        return await self.sample.spread(snapshot.connection, self.collection, self.query)


def spread_of(vectors: NDArray[np.float32], query: NDArray[np.float32], distance: DistanceName) -> Spread:
    """Return mean and population standard deviation of a query's similarities; for ``cosine``, vectors have norm 1."""
    if not vectors.size:
        return Spread(0.0, 0.0)
    rows, one = vectors, query
    if distance == "l2":
        scores = -np.linalg.norm(rows - one, axis=1).astype(np.float64)
        scale = float(np.abs(scores).max())
    else:
        if distance == "cosine":
            wide = query.astype(np.float64)
            one = (wide / (math.sqrt(wide @ wide) or 1.0)).astype(np.float32)
        scores = (rows @ one).astype(np.float64)
        scale = 1.0 if distance == "cosine" else float(np.linalg.norm(rows, axis=1).max() * np.linalg.norm(one))
    mean = float(scores.sum()) / len(scores)  # a quarter of the time of `mean`
    apart = scores - mean
    deviation = math.sqrt(apart @ apart / len(apart))  # a fifth of the time of `std`
    return Spread(mean, deviation if deviation > RESOLUTION * scale else 0.0)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale each row to norm 1; a row of zeros stays unchanged."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1.0)).astype(np.float32)


async def _draw(connection: Connection, collection: CollectionInfo) -> tuple[NDArray[np.float32], float]:
    """Read the sample; return its vectors, and about how many rows the table has."""
    found, rows = await _drawn(connection, collection, sql.SQL(""), sql.SQL(""))
    return binary_vectors(found, collection), rows


async def sample_chunks(
    connection: Connection, collection: CollectionInfo, rows: int
) -> tuple[list[tuple[str, str]], NDArray[np.float32]]:
    """Return context and text of up to `rows` chunks, evenly chosen from the sample, and their vectors, (n, d)."""
    join = sql.SQL("JOIN {} AS c USING (document_id, chunk_id)").format(collection.names.chunk)
    found, _ = await _drawn(connection, collection, sql.SQL(", c.context, c.chunk_text"), join)
    kept = found[:: max(1, -(-len(found) // rows))]
    return [(context, text) for _, context, text in kept], binary_vectors(kept, collection)


async def sample_vectors(connection: Connection, collection: CollectionInfo, rows: int) -> NDArray[np.float32]:
    """Return up to `rows` vectors, evenly chosen from the sample: float32, shape (n, d)."""
    vectors, _ = await _draw(connection, collection)
    return vectors[:: max(1, -(-len(vectors) // rows))]


def vectors_by_key(collection: CollectionInfo) -> sql.Composed:
    """Return the statement that takes `key_arrays` and returns (`sent_vector`, key) for each chunk with a vector."""
    table = collection.names.embedding(collection.vectors.version)
    return sql.SQL("SELECT {}, e.document_id, e.chunk_id FROM {} JOIN {} AS e USING (document_id, chunk_id)").format(
        sent_vector(collection), GIVEN_KEYS, table
    )


def sent_vector(collection: CollectionInfo) -> sql.Composed:
    """Return SQL of a vector (``e.embedding``) as bytes in pgvector's binary form."""
    # In this form it is read independently of the loaders that the connection's owner has registered for vectors.
    send = sql.Identifier(f"{collection.vectors.storage}_send")
    return sql.SQL("{}.{}(e.embedding)").format(collection.server.extension, send)


def binary_vectors(rows: Sequence[Any], collection: CollectionInfo) -> NDArray[np.float32]:
    """Return the vectors of n rows that begin with a `sent_vector`: float32, shape (n, d)."""
    embedding = collection.vectors
    data = b"".join([row[0][HEADER_BYTES:] for row in rows])
    return np.frombuffer(data, WIRE_TYPES[embedding.storage]).astype(np.float32).reshape(-1, embedding.dimensions)


async def _drawn(
    connection: Connection, collection: CollectionInfo, columns: sql.Composable, join: sql.Composable
) -> tuple[list[Any], float]:
    """Return the rows of the sample, which begin with `sent_vector`, and about how many rows the table has."""
    table = collection.names.embedding(collection.vectors.version)
    # No full scan: counting stops after the sample's size; the size of a larger table is the planner's estimate.
    count = sql.SQL(
        "SELECT (SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS few), "
        "(SELECT sum(greatest(l.reltuples, 0)::float8) FROM {})"
    ).format(table, sql.Literal(SAMPLE_ROWS + 1), stored_in(oid_of(table)))
    few, estimate = await only_row(connection, count)
    cursor = connection.cursor(binary=True)
    value = sql.SQL("{}{}").format(sent_vector(collection), columns)
    if few <= SAMPLE_ROWS:
        everything = sql.SQL("SELECT {} FROM {} AS e {} ORDER BY e.document_id, e.chunk_id")
        await cursor.execute(everything.format(value, table, join))
    else:
        # Two levels, because a collection may consist of few documents with many chunks each: a point among the
        # documents, then a point among that document's chunks; past the end the first one is taken.
        statement = sql.SQL(
            "WITH drawn AS (SELECT d.document_id, c.chunk_id, min(p.number) AS number FROM "
            "unnest(%(documents)s::uuid[], %(chunks)s::text[]) WITH ORDINALITY AS p(document_id, ending, number) "
            "CROSS JOIN LATERAL (SELECT coalesce("
            "(SELECT e.document_id FROM {table} AS e WHERE e.document_id >= p.document_id "
            "ORDER BY e.document_id LIMIT 1), "
            "(SELECT e.document_id FROM {table} AS e ORDER BY e.document_id LIMIT 1)) AS document_id) AS d "
            "CROSS JOIN LATERAL (SELECT e.chunk_id FROM {table} AS e WHERE e.document_id = d.document_id "
            "ORDER BY e.chunk_id LIMIT 1) AS f "
            "CROSS JOIN LATERAL (SELECT coalesce("
            "(SELECT e.chunk_id FROM {table} AS e WHERE e.document_id = d.document_id "
            "AND e.chunk_id >= left(f.chunk_id, {shared}) || p.ending ORDER BY e.chunk_id LIMIT 1), "
            "f.chunk_id) AS chunk_id) AS c GROUP BY d.document_id, c.chunk_id ORDER BY number LIMIT {rows}) "
            "SELECT {value} FROM drawn JOIN {table} AS e USING (document_id, chunk_id) {join} ORDER BY drawn.number"
        ).format(
            table=table, value=value, join=join, shared=sql.Literal(SHARED_BEGINNING), rows=sql.Literal(SAMPLE_ROWS)
        )
        documents, endings = _places()
        await cursor.execute(statement, {"documents": documents, "chunks": endings})
    return await cursor.fetchall(), max(float(few), float(estimate or 0.0))


def _places() -> tuple[list[uuid.UUID], list[str]]:
    """Return the fixed pseudo-random points at which the sample is taken: document ids, and ends of chunk ids."""
    # ORDER BY random() would read the whole table, and TABLESAMPLE depends on how rows lie on the disk.
    hashes = [hashlib.blake2b(b"%d" % number, digest_size=24).digest() for number in range(PROBES)]
    return [uuid.UUID(bytes=one[:16]) for one in hashes], [one[16:].hex() for one in hashes]
