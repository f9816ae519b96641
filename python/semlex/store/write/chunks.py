"""Writing chunks: one transaction a batch, through binary COPY encoded in Rust.

Three ways in, same result:

- a few rows: arrays through ``unnest`` (a temporary table for one row bloats the catalogs);
- many rows: COPY into a temporary table, then one merge in key order (no deadlocks between writers);
- a collection that was empty: COPY straight into its tables.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

from pgvector import HalfVector, Vector
from psycopg import sql

from semlex import _core
from semlex.errors import ConfigurationError
from semlex.store.keyword.id_arrays import NO_IDS, ids_of, joined
from semlex.store.schema.presence import hold_collection
from semlex.store.write.copy import DEFAULT_BULK, BulkIngestConfig, copy_rows
from semlex.store.write.documents import share_documents, write_documents
from semlex.store.write.keyword_index import begin_write
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.keyword.base import IndexShare
    from semlex.store.postgres.connection import Connection
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import Collection
    from semlex.store.write.documents import DocumentRow

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
    ("language", "text", "text"),
    ("metadata", "jsonb", "text"),
    ("child_ids", "text[]", "text"),
    ("timestamp_start", "text", "text"),
    ("timestamp_end", "text", "text"),
    ("created_at", "timestamptz", "timestamptz"),
    ("updated_at", "timestamptz", "timestamptz"),
)
# How such a value becomes the column's type, where that is not by itself.
_TEXTS = sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))")
FROM_ARRAY = {
    "subsection_title": _TEXTS,
    "child_ids": _TEXTS,
    "metadata": sql.SQL("{}::jsonb"),
}
CHUNK_COLUMN_NAMES = tuple(name for name, *_ in CHUNK_COLUMNS)
# Of the rows' own making only where the keyword index has to know it.
KEYWORD_ID = ("keyword_id", "int8", "bigint")
# A changed text keeps the time it was first made.
UPDATED_COLUMNS = tuple(name for name in CHUNK_COLUMN_NAMES if name not in ("document_id", "chunk_id", "created_at"))
# Where a chunk stands in the document that it was cut out of: a text that is written over it does not know.
TITLE_COLUMNS = ("chapter_title", "section_title", "subsection_title", "context")
PLACE_COLUMNS = {*TITLE_COLUMNS, "chunk_no", "chunk_type", "source_document", "char_start", "char_end", "line"}


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
class _Batch:
    """What is written, and where to.

    Attributes:
        connection: In a transaction.
        collection: As opened.
        index: The keyword index's share, or None.
        columns: Those of the chunk table that are written: name, type on the wire, type in an array.
    """

    connection: Connection
    collection: Collection
    index: IndexShare | None
    columns: tuple[tuple[str, str, str], ...]

    @property
    def column_list(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(name) for name, *_ in self.columns)

    def numbered(self, part: ChunkRows) -> ChunkRows:
        """The rows with their ids, if they need any; the index begins to read them."""
        if self.index is None:
            return part
        ids = self.index.assign_ids(part.columns).tolist()
        return ChunkRows(part.columns | {"keyword_id": ids}, part.embeddings)

    def wire_columns(self, part: ChunkRows) -> list[tuple[str, str, object]]:
        return [(name, kind, part.columns[name]) for name, kind, _ in self.columns]


async def write_chunks(
    connection: Connection,
    collection: Collection,
    rows: RowSource,
    *,
    mode: WriteMode = "merge",
    on_duplicate: OnDuplicate = "update",
    documents: Sequence[DocumentRow] = (),
    within: Sequence[UUID] = (),
    new_documents: set[UUID] | None = None,
    bulk: BulkIngestConfig = DEFAULT_BULK,
) -> int:
    """Writes a batch inside the caller's transaction.

    Locks are taken in one order by all writers, so that none waits for another in a circle: the collection's row of the
    registry (where there is a keyword index of ours), documents, chunks, vectors; each table's in the order of its key.

    Args:
        connection: In a transaction.
        collection: As opened; with an embedding version if `rows` has vectors.
        rows: Without repeated keys.
        mode: ``direct`` when the collection was empty. A document that has chunks by now is merged instead; a key of
            another row that exists after all fails the transaction (23505).
        on_duplicate: Whether a chunk that exists is updated or left as it is.
        documents: What the rows were read from: written first, and their chunks are exactly the given ones afterwards.
        within: Keys of documents of which single chunks are written: locked first.
        new_documents: Holds the keys of those documents that were not there, afterwards.
        bulk: From which size on rows are copied, and in which blocks.

    Returns:
        The number of chunks inserted or updated.

    Raises:
        AnalyzerVersionError: The keyword index is made by another version of the analyzer.
        CollectionNotFoundError: The collection was dropped.
    """
    if not len(rows) and not documents:
        return 0
    async with begin_write(connection, collection, len(rows)) as index:
        columns = CHUNK_COLUMNS if index is None else (*CHUNK_COLUMNS, KEYWORD_ID)
        batch = _Batch(connection, collection, index, columns)
        if documents:
            await write_documents(connection, collection, documents, utc_now(), new_documents)
        if within:
            await share_documents(connection, collection, within)
        if mode == "direct" and not await _have_chunks(batch, [row.document_id for row in documents]):
            return await _copy_direct(batch, rows, bulk)
        parameters: dict[str, Any] = {}
        if len(rows) <= bulk.small_batch_rows:
            few = batch.numbered(rows.whole())
            source, parameters = _arrays_source(batch, few)
            every_vector = few.has_every_vector
        else:
            source, every_vector = await _staged_source(batch, rows, bulk)
        gone = NO_IDS
        if documents:
            gone = await _delete_others(batch, source, parameters, [row.document_id for row in documents])
        return await _merge(batch, source, parameters, on_duplicate, gone, every_vector=every_vector)


async def _have_chunks(batch: _Batch, documents: Sequence[UUID]) -> bool:
    """Whether another writer has stored chunks of one of these documents, whose rows this transaction has locked.

    Its chunks have other keys where it read another text or cut it otherwise, so that no key would conflict.
    """
    if not documents:
        return False
    cursor = await batch.connection.execute(
        sql.SQL("SELECT EXISTS (SELECT 1 FROM {} WHERE document_id = ANY(%s))").format(batch.collection.names.chunk),
        [documents],
    )
    row = await cursor.fetchone()
    return bool(row and row[0])


async def _copy_direct(batch: _Batch, rows: RowSource, bulk: BulkIngestConfig) -> int:
    connection, collection = batch.connection, batch.collection
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
    made: list[ChunkRows] = []

    def chunks() -> Iterator[_core.CopyEncoder]:
        for part in rows.parts():
            made.append(part)
            yield _core.CopyEncoder(batch.wire_columns(batch.numbered(part)), part.columns["chunk_id"])

    target = copy.format(collection.names.chunk, batch.column_list)
    written = await copy_rows(connection, target, chunks(), bulk.copy_block_bytes)
    if collection.embedding is not None:
        storage = collection.embedding.storage
        vectors = (_vector_encoder(part, storage) for part in made if part.embeddings is not None)
        table = collection.names.embedding(collection.embedding.version)
        target = copy.format(table, sql.SQL("document_id, chunk_id, embedding"))
        await copy_rows(connection, target, vectors, bulk.copy_block_bytes)
    if batch.index is not None:
        await batch.index.write(connection, None)
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


async def _staged_source(batch: _Batch, rows: RowSource, bulk: BulkIngestConfig) -> tuple[sql.Composed, bool]:
    """Copies rows into a temporary table; returns its name, and whether every row has a vector."""
    connection, collection = batch.connection, batch.collection
    # The name is random because a caller's transaction may hold the table of an earlier batch.
    name = f"semlex_{secrets.token_hex(8)}"
    staging = sql.Identifier("pg_temp", name)
    embedding = collection.embedding
    vector_type = sql.SQL("text") if embedding is None else _vector_type(collection)
    await connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, NULL::{} AS embedding FROM {} WITH NO DATA"
        ).format(sql.Identifier(name), batch.column_list, vector_type, collection.names.chunk)
    )
    every_vector = True

    def parts() -> Iterator[_core.CopyEncoder]:
        nonlocal every_vector
        for part in rows.parts():
            every_vector = every_vector and part.has_every_vector
            columns = batch.wire_columns(batch.numbered(part))
            if embedding is not None:
                vectors = [None] * len(part) if part.embeddings is None else part.embeddings
                columns.append(("embedding", embedding.storage, vectors))
            yield _core.CopyEncoder(columns, part.columns["chunk_id"])

    column_list = batch.column_list if embedding is None else sql.SQL("{}, embedding").format(batch.column_list)
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(staging, column_list)
    await copy_rows(connection, copy, parts(), bulk.copy_block_bytes)
    return sql.SQL("{}").format(staging), every_vector


def _vector_type(collection: Collection) -> sql.Composed:
    embedding = collection.embedding
    if embedding is None:
        raise ConfigurationError("the collection holds no vectors")
    return sql.SQL("{}.{}({})").format(
        collection.server.extension, sql.Identifier(embedding.storage), sql.Literal(embedding.dimensions)
    )


def _arrays_source(batch: _Batch, rows: ChunkRows) -> tuple[sql.Composed, dict[str, Any]]:
    collection = batch.collection
    parameters: dict[str, Any] = {name: rows.columns[name] for name, *_ in batch.columns}
    parameters["document_id"] = [UUID(bytes=document_id) for document_id in rows.columns["document_id"]]
    for name in FROM_ARRAY:
        parameters[name] = [_core.to_json(value).decode() for value in rows.columns[name]]
    for name in ("created_at", "updated_at"):  # as text the server takes no offset of 16 hours or more
        parameters[name] = [moment.astimezone(UTC) for moment in rows.columns[name]]
    embedding = collection.embedding
    vector_type = sql.SQL("text") if embedding is None else _vector_type(collection)
    parameters["embedding"] = [None] * len(rows)
    if embedding is not None and rows.embeddings is not None:
        as_text = HalfVector if embedding.storage == "halfvec" else Vector
        parameters["embedding"] = [None if row is None else as_text(row).to_text() for row in rows.embeddings]
    arrays = [sql.SQL("{}::{}[]").format(sql.Placeholder(name), sql.SQL(kind)) for name, _, kind in batch.columns]
    as_is = sql.SQL("{}")
    values = [
        sql.SQL("{} AS {}").format(FROM_ARRAY.get(name, as_is).format(sql.Identifier("a", name)), sql.Identifier(name))
        for name, *_ in batch.columns
    ]
    source = sql.SQL(
        "(SELECT {values}, a.embedding::{vector_type} AS embedding FROM unnest({arrays}, %(embedding)s::text[]) "
        "AS a({names}, embedding))"
    ).format(
        values=sql.SQL(", ").join(values),
        vector_type=vector_type,
        arrays=sql.SQL(", ").join(arrays),
        names=batch.column_list,
    )
    return source, parameters


async def _delete_others(
    batch: _Batch, source: sql.Composed, parameters: dict[str, Any], documents: Sequence[UUID]
) -> NDArray[np.int64]:
    """Deletes the chunks of these documents that are not among the given ones; returns their keyword ids."""
    names, embedding = batch.collection.names, batch.collection.embedding
    others = sql.SQL(
        "DELETE FROM {} AS t WHERE t.document_id = ANY(%(replaced)s) AND NOT EXISTS (SELECT 1 FROM {} "
        "AS s WHERE s.document_id = t.document_id AND s.chunk_id = t.chunk_id)"
    )
    values = {**parameters, "replaced": list(documents)}
    cursor = batch.connection.cursor(binary=True)
    await cursor.execute(
        sql.SQL("WITH gone AS ({} RETURNING t.keyword_id) SELECT array_send(array_agg(keyword_id)) FROM gone").format(
            others.format(names.chunk, source)
        ),
        values,
    )
    row = await cursor.fetchone()
    if embedding is not None:
        await batch.connection.execute(others.format(names.embedding(embedding.version), source), values)
    return ids_of(row and row[0])


_REPLACED = sql.SQL("{name} = excluded.{name}")
_KEPT_PLACE = sql.SQL(
    "{name} = CASE WHEN c.char_start IS NOT NULL AND excluded.char_start IS NULL THEN c.{name} ELSE excluded.{name} END"
)


async def _merge(
    batch: _Batch,
    source: sql.Composed,
    parameters: dict[str, Any],
    on_duplicate: OnDuplicate,
    gone: NDArray[np.int64],
    *,
    every_vector: bool,
) -> int:
    connection, collection = batch.connection, batch.collection
    names = collection.names
    vectors = names.embedding(collection.embedding.version) if collection.embedding is not None else None
    action: sql.Composable = sql.SQL("NOTHING")
    if on_duplicate == "update":
        assignments = [
            (_KEPT_PLACE if name in PLACE_COLUMNS else _REPLACED).format(name=sql.Identifier(name))
            for name in UPDATED_COLUMNS
        ]
        # A text that did not change keeps its id, and with it what the keyword index has of it.
        new_id = sql.SQL(
            "previous_id = c.keyword_id, keyword_id = CASE WHEN c.content_hash = excluded.content_hash "
            "AND c.language IS NOT DISTINCT FROM excluded.language THEN c.keyword_id ELSE excluded.keyword_id END"
        )
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join([*assignments, new_id]))
    insert = sql.SQL(
        "INSERT INTO {} AS c ({}) SELECT {} FROM {} AS s ORDER BY s.document_id, s.chunk_id "
        "ON CONFLICT (document_id, chunk_id) DO "
    ).format(names.chunk, batch.column_list, batch.column_list, source)
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
    returned = sql.SQL("document_id, chunk_id, keyword_id, previous_id")
    merged = sql.SQL("WITH merged AS ({}{} RETURNING {})").format(insert, action, returned)
    if vectors is not None:
        merged += sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN merged USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL "
            "ORDER BY s.document_id, s.chunk_id ON CONFLICT (document_id, chunk_id) "
            "DO UPDATE SET embedding = excluded.embedding)"
        ).format(vectors, source)
    merged += sql.SQL(
        " SELECT count(*), array_send(array_agg(keyword_id)), "
        "array_send(array_agg(previous_id) FILTER (WHERE previous_id <> keyword_id)) FROM merged"
    )
    cursor = connection.cursor(binary=True)
    await cursor.execute(merged, parameters)
    row = await cursor.fetchone()
    count, stored, replaced = row or (0, None, None)
    if batch.index is not None:
        await batch.index.write(connection, ids_of(stored), joined([gone, ids_of(replaced)]))
    return int(count)


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
    await hold_collection(connection, collection)
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
