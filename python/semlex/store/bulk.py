"""Writing chunks: one transaction a batch, through binary COPY encoded in Rust.

Three ways in, same result:

- a few rows: arrays through ``unnest`` (a temporary table for one row bloats the catalogs);
- many rows: COPY into a temporary table, then one merge in key order (no deadlocks between writers);
- a collection that was empty: COPY straight into its tables.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

from pgvector import HalfVector, Vector
from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.store.copying import DEFAULT_BULK, BulkIngestConfig, copy_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.connection import Connection
    from semlex.store.legs import Key
    from semlex.store.schema import Collection

OnDuplicate = Literal["update", "skip"]
WriteMode = Literal["direct", "merge"]

# Rows that are made at a time: what is in a socket's buffer keeps the server busy for about as long as that takes.
PART_ROWS = 128

# Column, type on the wire, and the type that stands for it in the arrays of a small batch.
CHUNK_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("document_id", "uuid", "uuid"),
    ("chunk_id", "text", "text"),
    ("chunk_no", "int4", "int4"),
    ("parent_chunk_id", "text", "text"),
    ("chunk_type", "text", "text"),
    ("source_document", "text", "text"),
    ("chapter_title", "text", "text"),
    ("section_title", "text", "text"),
    ("subsection_title", "text[]", "text"),
    ("summary", "text", "text"),
    ("context", "text", "text"),
    ("chunk_text", "text", "text"),
    ("token_count", "int4", "int4"),
    ("char_start", "int4", "int4"),
    ("char_end", "int4", "int4"),
    ("line", "int4", "int4"),
    ("content_hash", "bytea", "bytea"),
    ("metadata", "jsonb", "text"),
    ("created_at", "timestamptz", "timestamptz"),
    ("updated_at", "timestamptz", "timestamptz"),
)
# How such a value becomes the column's type, where that is not by itself.
FROM_ARRAY = {
    "subsection_title": sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))"),
    "metadata": sql.SQL("{}::jsonb"),
}
CHUNK_COLUMN_NAMES = tuple(name for name, *_ in CHUNK_COLUMNS)
# A changed text keeps the time it was first made.
UPDATED_COLUMNS = tuple(name for name in CHUNK_COLUMN_NAMES if name not in ("document_id", "chunk_id", "created_at"))
_COLUMN_LIST = sql.SQL(", ").join(map(sql.Identifier, CHUNK_COLUMN_NAMES))


@dataclass(slots=True)
class ChunkRows:
    """Rows for the chunk table, by column; every column has as many entries, and no key occurs twice.

    Attributes:
        columns: Column name -> values, for every name in `CHUNK_COLUMN_NAMES`; the document's key as its 16 bytes.
        embeddings: float32, shape (n, d); or a list with None for rows whose vector is not given; or None.
    """

    columns: dict[str, list[Any]]
    embeddings: NDArray[np.float32] | list[NDArray[np.float32] | None] | None = None

    def __len__(self) -> int:
        return len(self.columns["chunk_id"])

    def parts(self) -> Iterator[ChunkRows]:
        """The same rows in runs of at most `PART_ROWS`."""
        for start in range(0, len(self), PART_ROWS):
            stop = start + PART_ROWS
            columns = {name: values[start:stop] for name, values in self.columns.items()}
            yield ChunkRows(columns, None if self.embeddings is None else self.embeddings[start:stop])

    def whole(self) -> ChunkRows:
        """All rows at once: these."""
        return self

    @property
    def has_every_vector(self) -> bool:
        """Whether no row lacks its vector."""
        vectors = self.embeddings
        return vectors is not None and not (isinstance(vectors, list) and any(vector is None for vector in vectors))

    def keys(self) -> list[Key]:
        """(document_id, chunk_id) of every row."""
        documents = (UUID(bytes=document_id) for document_id in self.columns["document_id"])
        return list(zip(documents, self.columns["chunk_id"], strict=True))


class RowSource(Protocol):
    """Rows that are all there, or that are made as they are written."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def parts(self) -> Iterator[ChunkRows]:
        """The rows, in runs of at most `PART_ROWS`; from the beginning at every call."""
        ...

    def whole(self) -> ChunkRows:
        """All rows at once."""
        ...


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """What was read from a source."""

    document_id: UUID
    source_id: UUID
    uri: str
    title: str
    format: str
    content_hash: bytes
    size_bytes: int
    modified_at: datetime
    chunk_count: int
    metadata: dict[str, Any] = field(default_factory=dict)


async def write_chunks(
    connection: Connection,
    collection: Collection,
    rows: RowSource,
    *,
    mode: WriteMode = "merge",
    on_duplicate: OnDuplicate = "update",
    replaced_documents: Sequence[UUID] = (),
    bulk: BulkIngestConfig = DEFAULT_BULK,
) -> int:
    """Writes a batch inside the caller's transaction.

    Args:
        connection: In a transaction.
        collection: As opened; with an embedding version if `rows` has vectors.
        rows: Without repeated keys.
        mode: ``direct`` when the collection was empty; a key that exists after all fails the transaction (23505).
        on_duplicate: Whether a chunk that exists is updated or left as it is.
        replaced_documents: Documents whose chunks are exactly the given ones afterwards.
        bulk: From which size on rows are copied, and in which blocks.

    Returns:
        The number of chunks inserted or updated.
    """
    if not len(rows) and not replaced_documents:
        return 0
    if mode == "direct":
        return await _copy_direct(connection, collection, rows, bulk)
    parameters: dict[str, Any] = {}
    if len(rows) <= bulk.small_batch_rows:
        few = rows.whole()
        source, parameters = _arrays_source(collection, few)
        every_vector = few.has_every_vector
    else:
        source, every_vector = await _staged_source(connection, collection, rows, bulk)
    if replaced_documents:
        await _delete_others(connection, collection, source, parameters, replaced_documents)
    return await _merge(connection, collection, source, parameters, on_duplicate, every_vector=every_vector)


def _copy_columns(rows: ChunkRows) -> list[tuple[str, str, object]]:
    return [(name, kind, rows.columns[name]) for name, kind, *_ in CHUNK_COLUMNS]


async def _copy_direct(connection: Connection, collection: Collection, rows: RowSource, bulk: BulkIngestConfig) -> int:
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
    made: list[ChunkRows] = []

    def chunks() -> Iterator[_core.CopyEncoder]:
        for part in rows.parts():
            made.append(part)
            yield _core.CopyEncoder(_copy_columns(part), part.columns["chunk_id"])

    # Chunk before vector, as every writer takes its locks.
    target = copy.format(collection.names.chunk, _COLUMN_LIST)
    written = await copy_rows(connection, target, chunks(), bulk.copy_block_bytes)
    if collection.embedding is not None:
        storage = collection.embedding.storage
        vectors = (_vector_encoder(part, storage) for part in made if part.embeddings is not None)
        table = collection.names.embedding(collection.embedding.version)
        target = copy.format(table, sql.SQL("document_id, chunk_id, embedding"))
        await copy_rows(connection, target, vectors, bulk.copy_block_bytes)
    return written


def _vector_encoder(part: ChunkRows, storage: str) -> _core.CopyEncoder:
    """Keys and vectors of those rows that have one."""
    keys = [part.columns["document_id"], part.columns["chunk_id"]]
    embeddings = part.embeddings
    if isinstance(embeddings, list):
        kept = [number for number, vector in enumerate(embeddings) if vector is not None]
        keys = [[values[number] for number in kept] for values in keys]
        embeddings = [embeddings[number] for number in kept]
    columns = [("document_id", "uuid", keys[0]), ("chunk_id", "text", keys[1]), ("embedding", storage, embeddings)]
    return _core.CopyEncoder(columns, keys[1])


async def _staged_source(
    connection: Connection, collection: Collection, rows: RowSource, bulk: BulkIngestConfig
) -> tuple[sql.Composed, bool]:
    """Copies rows into a temporary table; returns its name, and whether every row has a vector."""
    # The name is random because a caller's transaction may hold the table of an earlier batch.
    name = f"semlex_{secrets.token_hex(8)}"
    staging = sql.Identifier("pg_temp", name)
    embedding = collection.embedding
    vector_type = sql.SQL("text") if embedding is None else _vector_type(collection)
    await connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, NULL::{} AS embedding FROM {} WITH NO DATA"
        ).format(sql.Identifier(name), _COLUMN_LIST, vector_type, collection.names.chunk)
    )
    every_vector = True

    def parts() -> Iterator[_core.CopyEncoder]:
        nonlocal every_vector
        for part in rows.parts():
            every_vector = every_vector and part.has_every_vector
            columns = _copy_columns(part)
            if embedding is not None:
                columns.append(("embedding", embedding.storage, _vectors(part)))
            yield _core.CopyEncoder(columns, part.columns["chunk_id"])

    column_list = _COLUMN_LIST if embedding is None else sql.SQL("{}, embedding").format(_COLUMN_LIST)
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(staging, column_list)
    await copy_rows(connection, copy, parts(), bulk.copy_block_bytes)
    return sql.SQL("{}").format(staging), every_vector


def _vectors(part: ChunkRows) -> object:
    return [None] * len(part) if part.embeddings is None else part.embeddings


def _vector_type(collection: Collection) -> sql.Composed:
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection holds no vectors")
    return sql.SQL("{}.{}({})").format(
        collection.server.extension, sql.Identifier(embedding.storage), sql.Literal(embedding.dimensions)
    )


def _arrays_source(collection: Collection, rows: ChunkRows) -> tuple[sql.Composed, dict[str, Any]]:
    parameters: dict[str, Any] = dict(rows.columns)
    parameters["document_id"] = [UUID(bytes=document_id) for document_id in rows.columns["document_id"]]
    for name in ("subsection_title", "metadata"):
        parameters[name] = [_core.to_json(value).decode() for value in rows.columns[name]]
    embedding = collection.embedding
    vector_type: sql.Composable = sql.SQL("text")
    parameters["embedding"] = [None] * len(rows)
    if embedding is not None:
        vector_type = _vector_type(collection)
    if embedding is not None and rows.embeddings is not None:
        as_text = HalfVector if embedding.storage == "halfvec" else Vector
        parameters["embedding"] = [None if row is None else as_text(row).to_text() for row in rows.embeddings]
    arrays = [sql.SQL("{}::{}[]").format(sql.Placeholder(name), sql.SQL(kind)) for name, _, kind in CHUNK_COLUMNS]
    as_is = sql.SQL("{}")
    values = [
        sql.SQL("{} AS {}").format(FROM_ARRAY.get(name, as_is).format(sql.Identifier("a", name)), sql.Identifier(name))
        for name in CHUNK_COLUMN_NAMES
    ]
    source = sql.SQL(
        "(SELECT {values}, a.embedding::{vector_type} AS embedding FROM unnest({arrays}, %(embedding)s::text[]) "
        "AS a({names}, embedding))"
    ).format(
        values=sql.SQL(", ").join(values),
        vector_type=vector_type,
        arrays=sql.SQL(", ").join(arrays),
        names=_COLUMN_LIST,
    )
    return source, parameters


async def _delete_others(
    connection: Connection,
    collection: Collection,
    source: sql.Composed,
    parameters: dict[str, Any],
    documents: Sequence[UUID],
) -> None:
    """Deletes the chunks of these documents that are not among the given ones."""
    tables = [collection.names.chunk]
    if collection.embedding is not None:
        tables.append(collection.names.embedding(collection.embedding.version))
    for table in tables:
        await connection.execute(
            sql.SQL(
                "DELETE FROM {} AS t WHERE t.document_id = ANY(%(replaced)s) AND NOT EXISTS (SELECT 1 FROM {} "
                "AS s WHERE s.document_id = t.document_id AND s.chunk_id = t.chunk_id)"
            ).format(table, source),
            {**parameters, "replaced": list(documents)},
        )


async def _merge(
    connection: Connection,
    collection: Collection,
    source: sql.Composed,
    parameters: dict[str, Any],
    on_duplicate: OnDuplicate,
    *,
    every_vector: bool,
) -> int:
    names = collection.names
    vectors = names.embedding(collection.embedding.version) if collection.embedding is not None else None
    action: sql.Composable = sql.SQL("NOTHING")
    if on_duplicate == "update":
        assignments = [
            sql.SQL("{} = excluded.{}").format(sql.Identifier(name), sql.Identifier(name))
            for name in (*UPDATED_COLUMNS, "lexical_id")
        ]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments))
    insert = sql.SQL(
        "INSERT INTO {} ({}) SELECT {} FROM {} AS s ORDER BY s.document_id, s.chunk_id "
        "ON CONFLICT (document_id, chunk_id) DO "
    ).format(names.chunk, _COLUMN_LIST, _COLUMN_LIST, source)
    if vectors is not None and on_duplicate == "update" and not every_vector:
        # A text that changed and came without a vector must not keep the old one. Whether it changed is known only
        # once the row is locked, and rows are locked in key order, old and new ones alike: without that, two writers
        # can wait for each other.
        await connection.execute(insert + sql.SQL("UPDATE SET chunk_id = excluded.chunk_id WHERE FALSE"), parameters)
        await connection.execute(
            sql.SQL(
                "DELETE FROM {} AS e USING {} AS s JOIN {} AS c USING (document_id, chunk_id) "
                "WHERE e.document_id = s.document_id AND e.chunk_id = s.chunk_id "
                "AND s.embedding IS NULL AND c.content_hash <> s.content_hash"
            ).format(vectors, source, names.chunk),
            parameters,
        )
    merged = sql.SQL("WITH merged AS ({}{} RETURNING document_id, chunk_id)").format(insert, action)
    if vectors is not None:
        merged += sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN merged USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL "
            "ORDER BY s.document_id, s.chunk_id ON CONFLICT (document_id, chunk_id) "
            "DO UPDATE SET embedding = excluded.embedding)"
        ).format(vectors, source)
    merged += sql.SQL(" SELECT count(*) FROM merged")
    cursor = await connection.execute(merged, parameters)
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def write_documents(
    connection: Connection, collection: Collection, rows: Sequence[DocumentRow], now: datetime
) -> None:
    """Writes the rows of documents, in key order.

    They are the first locks that a writer takes, so that two writers of one document come one after the other.
    """
    ordered = sorted(rows, key=lambda row: row.document_id.bytes)
    await connection.execute(
        sql.SQL(
            "INSERT INTO {} (document_id, source_id, uri, title, format, content_hash, size_bytes, modified_at, "
            "chunk_count, metadata, created_at, updated_at) "
            "SELECT d.*, %(now)s, %(now)s FROM unnest(%(document_id)s::uuid[], %(source_id)s::uuid[], %(uri)s::text[], "
            "%(title)s::text[], %(format)s::text[], %(content_hash)s::bytea[], %(size_bytes)s::bigint[], "
            "%(modified_at)s::timestamptz[], %(chunk_count)s::int[], %(metadata)s::jsonb[]) AS d "
            "ON CONFLICT (document_id) DO UPDATE SET title = excluded.title, format = excluded.format, "
            "content_hash = excluded.content_hash, size_bytes = excluded.size_bytes, "
            "modified_at = excluded.modified_at, chunk_count = excluded.chunk_count, metadata = excluded.metadata, "
            "updated_at = excluded.updated_at"
        ).format(collection.names.document),
        {
            "document_id": [row.document_id for row in ordered],
            "source_id": [row.source_id for row in ordered],
            "uri": [row.uri for row in ordered],
            "title": [row.title for row in ordered],
            "format": [row.format for row in ordered],
            "content_hash": [row.content_hash for row in ordered],
            "size_bytes": [row.size_bytes for row in ordered],
            "modified_at": [row.modified_at for row in ordered],
            "chunk_count": [row.chunk_count for row in ordered],
            "metadata": [_core.to_json(row.metadata).decode() for row in ordered],
            "now": now,
        },
    )


async def write_embeddings(
    connection: Connection,
    collection: Collection,
    keys: Sequence[Key],
    content_hashes: Sequence[bytes],
    embeddings: NDArray[np.float32],
) -> int:
    """Adds vectors to chunks that have none.

    Args:
        connection: In a transaction.
        collection: With an embedding version.
        keys: (document_id, chunk_id) of each vector.
        content_hashes: Hash of the text that was embedded; a chunk that changed in the meantime gets no vector.
        embeddings: float32, shape (n, d).

    Returns:
        The number of vectors written.
    """
    if collection.embedding is None or not keys:
        return 0
    name = f"semlex_{secrets.token_hex(8)}"
    await connection.execute(
        sql.SQL(
            'CREATE TEMPORARY TABLE {} (document_id uuid, chunk_id text COLLATE "C", content_hash bytea, embedding {}) '
            "ON COMMIT DROP"
        ).format(sql.Identifier(name), _vector_type(collection))
    )
    staging = sql.Identifier("pg_temp", name)
    ids = [chunk_id for _, chunk_id in keys]
    columns: list[tuple[str, str, object]] = [
        ("document_id", "uuid", [document_id for document_id, _ in keys]),
        ("chunk_id", "text", ids),
        ("content_hash", "bytea", list(content_hashes)),
        ("embedding", collection.embedding.storage, embeddings),
    ]
    await copy_rows(
        connection, sql.SQL("COPY {} FROM STDIN (FORMAT binary)").format(staging), [_core.CopyEncoder(columns, ids)]
    )
    cursor = await connection.execute(
        sql.SQL(
            # The lock makes a writer who is changing a text either wait, or be seen here.
            "INSERT INTO {} SELECT * FROM (SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN {} AS c USING (document_id, chunk_id) WHERE c.content_hash = s.content_hash "
            "ORDER BY s.document_id, s.chunk_id FOR SHARE OF c) AS unchanged "
            "ON CONFLICT (document_id, chunk_id) DO NOTHING"
        ).format(collection.names.embedding(collection.embedding.version), staging, collection.names.chunk)
    )
    return cursor.rowcount
