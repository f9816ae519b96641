"""Write chunks, one transaction for each batch: large batches by binary COPY encoded in Rust, small ones as arrays."""

# A batch is written in one of four ways, with the same result: by `NewRows`, or in one of three ways by `write_chunks`.

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import numpy as np
from psycopg import AsyncCursor, sql
from psycopg.errors import SerializationFailure, UniqueViolation

from semlex import _core
from semlex.errors import SHOWN_DUPLICATES, DuplicateError, StoreError
from semlex.store.embedding_versions import (
    MAX_ROW_BYTES,
    ask_versions,
    dropped,
    note_lacking,
    stored_versions,
    vector_type_of,
)
from semlex.store.postgres.database import Database, write_guard
from semlex.store.postgres.errors import UNIQUE_VIOLATION
from semlex.store.postgres.rows import fetch_row, fetch_rows, fetch_value
from semlex.store.query.leg import Key, Statement
from semlex.store.schema.locks import gone, writing_lock
from semlex.store.write.chunk_batch import AS_JSON, COLUMNS, KEYWORD_ID, ChunkBatch, Column, RowSource
from semlex.store.write.copy import DEFAULT_BULK, NO_IDS, BulkIngestConfig, copy_rows, ids_of, joined
from semlex.store.write.documents import (
    DocumentRow,
    RowDocuments,
    begin_write,
    have_chunks,
    key_array,
    share_documents,
    write_documents,
)
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from semlex.store.keyword.base import Reserved
    from semlex.store.keyword.bm25.write import BatchIndex, ReservedAnswers
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names

    Cursor = AsyncCursor[Any]


# Casts by the column's type, for types to which Postgres does not cast elements of an array automatically.
FROM_ARRAY = {"text[]": sql.SQL("ARRAY(SELECT jsonb_array_elements_text({}::jsonb))"), "jsonb": sql.SQL("{}::jsonb")}


@dataclass(frozen=True, slots=True)
class Target:
    """The tables and columns of a write on which the text of the SQL depends."""

    names: Names
    columns: tuple[Column, ...]  # of the chunk table
    version: int | None  # number of the vectors that are written
    vector_type: str  # SQL

    @classmethod
    def of(cls, collection: CollectionInfo, *, numbered: bool) -> Target:
        """Return the tables and columns to write for a collection; `numbered` adds the keyword ids."""
        columns = (*COLUMNS, KEYWORD_ID) if numbered else COLUMNS
        version = None if collection.embedding is None else collection.embedding.version
        vector_type = "text" if version is None else vector_type_of(collection).as_string()
        return cls(collection.names, columns, version, vector_type)

    @property
    def vectors(self) -> sql.Identifier | None:
        """The table into which vectors are written, or None."""
        return None if self.version is None else self.names.embedding(self.version)

    @property
    def column_list(self) -> sql.Composed:
        """SQL of the names of the chunk table's columns."""
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a statement takes the rows to write from: a temporary table, or arrays in a query."""

    table: sql.Composed  # a table, or arrays in its place
    parameters: dict[str, Any]  # bound in it; a table needs none
    every_vector: bool  # whether no row lacks its vector


@lru_cache(maxsize=256)
def arrays_table(target: Target) -> sql.Composed:
    """Return SQL of a subquery that makes rows from one array for each column, with vectors as text."""
    columns = target.columns
    arrays = [sql.SQL("{}::{}[]").format(sql.Placeholder(column.name), sql.SQL(column.array)) for column in columns]
    as_is = sql.SQL("{}")
    values = [
        sql.SQL("{} AS {}").format(
            FROM_ARRAY.get(column.wire, as_is).format(sql.Identifier("a", column.name)), sql.Identifier(column.name)
        )
        for column in columns
    ]
    return sql.SQL(
        "(SELECT {values}, a.embedding::{vector_type} AS embedding FROM unnest({arrays}, %(embedding)s::text[]) "
        "AS a({names}, embedding))"
    ).format(
        values=sql.SQL(", ").join(values),
        vector_type=sql.SQL(target.vector_type),
        arrays=sql.SQL(", ").join(arrays),
        names=sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
    )


def array_values(collection: CollectionInfo, target: Target, rows: ChunkBatch) -> dict[str, Any]:
    """Return the values that `arrays_table` binds."""
    values: dict[str, Any] = {column.name: rows.values(column.name) for column in target.columns}
    values["document_id"] = [UUID(bytes=document_id) for document_id in rows.document_id]
    for column in target.columns:
        if column.wire in AS_JSON:
            values[column.name] = [_core.to_json(value).decode() for value in rows.values(column.name)]
        elif column.wire == "timestamptz":  # as text the server takes no offset of 16 hours or more
            values[column.name] = [moment.astimezone(UTC) for moment in rows.values(column.name)]
    embedding = collection.embedding
    values["embedding"] = [None] * len(rows)
    if embedding is not None and rows.embeddings is not None:
        number = np.float16 if embedding.storage == "halfvec" else np.float32
        values["embedding"] = [None if row is None else str(row.astype(number).tolist()) for row in rows.embeddings]
    return values


_REPLACED = sql.SQL("{name} = excluded.{name}")
_KEPT_PLACE = sql.SQL(
    "{name} = CASE WHEN c.char_start IS NOT NULL AND excluded.char_start IS NULL THEN c.{name} ELSE excluded.{name} END"
)


def insertion(target: Target, table: sql.Composed) -> sql.Composed:
    """Return an INSERT in the order of the keys; the caller appends the action of ON CONFLICT."""
    return sql.SQL(
        "INSERT INTO {} AS c ({}) SELECT {} FROM {} AS s ORDER BY s.document_id, s.chunk_id "
        "ON CONFLICT (document_id, chunk_id) DO "
    ).format(target.names.chunk, target.column_list, target.column_list, table)


def merging(target: Target, source: Source, *, replaces: bool) -> sql.Composed | bytes:
    """Return SQL that inserts rows with their vectors; rows that exist are replaced if `replaces`, else skipped."""
    # Of arrays it is always the same text, and composing it takes longer than sending it.
    return _merging_arrays(target, replaces) if source.parameters else _merging(target, source.table, replaces=replaces)


@lru_cache(maxsize=256)
def _merging_arrays(target: Target, replaces: bool) -> bytes:
    return _merging(target, arrays_table(target), replaces=replaces).as_bytes()


def _merging(target: Target, table: sql.Composed, *, replaces: bool) -> sql.Composed:
    action: sql.Composable = sql.SQL("NOTHING")
    if replaces:
        assignments = [
            (_KEPT_PLACE if column.is_place else _REPLACED).format(name=sql.Identifier(column.name))
            for column in COLUMNS
            if column.is_updated
        ]
        # A text that did not change keeps its id, and with it what the keyword index has of it.
        new_id = sql.SQL(
            "previous_id = c.keyword_id, keyword_id = CASE WHEN c.content_hash = excluded.content_hash "
            "AND c.language IS NOT DISTINCT FROM excluded.language THEN c.keyword_id ELSE excluded.keyword_id END"
        )
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join([*assignments, new_id]))
    returned = sql.SQL("document_id, chunk_id, keyword_id, previous_id")
    merged = sql.SQL("WITH merged AS ({}{} RETURNING {})").format(insertion(target, table), action, returned)
    if target.vectors is not None:
        merged += sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM {} AS s "
            "JOIN merged USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL "
            "ORDER BY s.document_id, s.chunk_id ON CONFLICT (document_id, chunk_id) "
            "DO UPDATE SET embedding = excluded.embedding)"
        ).format(target.vectors, table)
    return merged + sql.SQL(
        " SELECT count(*), array_send(array_agg(keyword_id)), "
        "array_send(array_agg(previous_id) FILTER (WHERE previous_id <> keyword_id)) FROM merged"
    )


@lru_cache(maxsize=256)
def inserting_new(target: Target) -> bytes:
    """Return SQL that inserts a few rows with vectors if none of them exists and the collection is unchanged."""
    names = target.names
    vectors: sql.Composable = sql.SQL("")
    if target.vectors is not None:
        vectors = sql.SQL(
            ", embedded AS (INSERT INTO {} SELECT s.document_id, s.chunk_id, s.embedding FROM rows AS s "
            "JOIN inserted USING (document_id, chunk_id) WHERE s.embedding IS NOT NULL)"
        ).format(target.vectors)
    return (
        sql.SQL(
            "WITH rows AS MATERIALIZED (SELECT * FROM {table} AS s), inserted AS (INSERT INTO {chunk} ({columns}) "
            "SELECT {columns} FROM rows AS s WHERE ({state}) = %(expected)s "
            "AND NOT EXISTS (SELECT FROM rows JOIN {chunk} AS c USING (document_id, chunk_id)) "
            "ORDER BY s.document_id, s.chunk_id RETURNING document_id, chunk_id){vectors} "
            "SELECT count(*) FROM inserted"
        )
        .format(
            table=arrays_table(target),
            chunk=names.chunk,
            columns=target.column_list,
            state=collection_state(names),
            vectors=vectors,
        )
        .as_bytes()
    )


def collection_state(names: Names, *, is_held: bool = False) -> sql.Composed:
    """Return SQL of a text that changes if the collection, its index generations or its embedding versions change."""
    # With `is_held`, the statement locks the row, and reads the number of the serving set of vectors as well.
    return sql.SQL(
        "SELECT md5(r::text){} FROM {} AS r WHERE r.name = %(name)s AND r.collection_id = %(collection_id)s{}"
    ).format(
        sql.SQL(", r.embedding_version" if is_held else ""),
        names.registry,
        sql.SQL(" FOR SHARE OF r" if is_held else ""),
    )


class VectorsGoneError(Exception):
    """Another writer has replaced or deleted stored vectors that rows without a vector were to keep."""

    def __init__(self, keys: set[Key]) -> None:
        super().__init__(f"another writer has replaced or deleted the vectors of {len(keys)} chunks")
        self.keys = keys


OnDuplicate = Literal["update", "skip", "fail"]
WriteMode = Literal["direct", "merge"]


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: its rows, and the tables that receive them."""

    connection: Connection
    collection: CollectionInfo
    index: BatchIndex | None  # the keyword index's share
    target: Target  # the tables that are written
    relies_on_stored: bool  # whether rows without a vector need the one that is stored
    # Vectors of other models: they hold none of a text that changed or was deleted.
    others: tuple[sql.Identifier, ...] = ()

    def numbered(self, part: ChunkBatch) -> ChunkBatch:
        """If the collection has a keyword index, give the rows ids in it and begin to analyse the texts."""
        if self.index is not None:
            part.keyword_id = self.index.assign_ids(part.language, part.context, part.chunk_text).tolist()
        return part

    def wire_columns(self, part: ChunkBatch) -> list[tuple[str, str, object]]:
        return [(column.name, column.wire, part.values(column.name)) for column in self.target.columns]


async def write_chunks(
    connection: Connection,
    collection: CollectionInfo,
    rows: RowSource,
    *,
    mode: WriteMode = "merge",
    on_duplicate: OnDuplicate = "update",
    documents: Sequence[DocumentRow] | RowDocuments = (),
    within: Sequence[UUID] = (),
    known_documents: AbstractSet[bytes] | None = None,
    replaced_documents: set[bytes] | None = None,
    bulk: BulkIngestConfig = DEFAULT_BULK,
) -> int:
    """Write a batch of chunks, with documents, vectors and postings, in the caller's transaction; return how many."""
    # Locks are taken in one order by all writers, so that none waits for another in a circle: the collection's row of
    # the registry (with a keyword index), documents, chunks, vectors; each table's in the order of its key.
    #
    # `mode` is ``direct`` when the collection was empty. A document that has chunks by now is merged instead; a key of
    # another row that exists after all fails the transaction (23505).
    #
    # `within` are keys of documents of which single chunks are written; they are locked first. `known_documents` are
    # the keys of those documents that exist, which this transaction has locked: if another one exists by now, the write
    # fails; None allows any to exist. `replaced_documents` gets the keys of those that existed.
    if not len(rows) and not documents:
        return 0
    async with begin_write(connection, collection, len(rows)) as index:
        target = Target.of(collection, numbered=index is not None)
        others = await _other_tables(connection, collection)
        write = _Write(connection, collection, index, target, rows.relies_on_stored, others)
        replaced = await _write_documents(write, documents, mode, known_documents)
        if replaced_documents is not None:
            replaced_documents.clear()  # of an attempt before
            replaced_documents.update(replaced)
        if within:
            await share_documents(connection, collection, within)
        if (
            mode == "direct"
            and not write.others
            and not write.relies_on_stored
            # Chunks that another writer has stored of these documents may have other keys: none would conflict.
            and not (replaced and await have_chunks(connection, collection, replaced))
        ):
            # The documents are new: COPY straight into the tables.
            return await _copy_direct(write, rows, bulk)
        if len(rows) <= bulk.small_batch_rows:
            # A few rows: arrays through ``unnest`` (a temporary table for one row bloats the catalogs).
            few = write.numbered(rows.whole())
            values = array_values(collection, target, few)
            source = Source(arrays_table(target), values, few.has_every_vector)
        else:
            # Many rows: COPY into a temporary table, then one merge in key order (no deadlocks between writers).
            source = await _staged_source(write, rows, bulk)
        if on_duplicate == "fail":
            await _refuse_stored(write, source)
        gone = await _delete_others(write, source, _keys_of(documents)) if documents else NO_IDS
        count = await _merge(write, source, on_duplicate, gone)
        if on_duplicate == "fail" and count < len(rows):
            # Another writer has stored some since they were looked for. The next attempt finds them.
            raise SerializationFailure("rows were stored in the meantime")
        if count and write.others:
            await note_lacking(connection, collection)
        return count


async def _write_documents(
    write: _Write, documents: Sequence[DocumentRow] | RowDocuments, mode: WriteMode, known: AbstractSet[bytes] | None
) -> set[bytes]:
    if not documents:
        return set()
    # Vectors of other models keep rows from being copied.
    direct = mode == "direct" and not write.others
    existed = await write_documents(write.connection, write.collection, documents, utc_now(), direct=direct)
    if known is not None and not existed <= known:
        # Another writer has stored them since they were locked. The next attempt finds them.
        error = UniqueViolation if mode == "direct" else SerializationFailure
        raise error("documents were stored in the meantime")
    return existed


async def _other_tables(connection: Connection, collection: CollectionInfo) -> tuple[sql.Identifier, ...]:
    """Return the tables of vectors of all embedding versions except the one that is written here."""
    stored, used = await stored_versions(connection, collection), collection.embedding
    if used is not None and used.version not in stored:
        raise dropped(collection)
    return tuple(collection.names.embedding(version) for version in stored if used is None or version != used.version)


def _keys_of(documents: Sequence[DocumentRow] | RowDocuments) -> str:
    if isinstance(documents, RowDocuments):
        return key_array(documents.document_id)
    return key_array(row.document_id.bytes for row in documents)


async def _copy_direct(write: _Write, rows: RowSource, bulk: BulkIngestConfig) -> int:
    connection, collection = write.connection, write.collection
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)")
    made: list[ChunkBatch] = []

    def chunks() -> Iterator[_core.CopyEncoder]:
        for part in rows.parts():
            made.append(part)
            yield _core.CopyEncoder(write.wire_columns(write.numbered(part)), part.chunk_id)

    target = copy.format(collection.names.chunk, write.target.column_list)
    written = await copy_rows(connection, target, chunks(), bulk.copy_block_bytes)
    if collection.embedding is not None and write.target.vectors is not None:
        storage = collection.embedding.storage
        vectors = (_vector_encoder(part, storage) for part in made if part.embeddings is not None)
        target = copy.format(write.target.vectors, sql.SQL("document_id, chunk_id, embedding"))
        await copy_rows(connection, target, vectors, bulk.copy_block_bytes)
    if write.index is not None:
        await write.index.write(connection, None)
    return written


def _vector_encoder(part: ChunkBatch, storage: str) -> _core.CopyEncoder:
    """Return an encoder of the keys and vectors of those rows that have a vector."""
    keys: list[list[Any]] = [part.document_id, part.chunk_id]
    embeddings = part.embeddings
    if isinstance(embeddings, list):
        kept = [number for number, vector in enumerate(embeddings) if vector is not None]
        keys = [[values[number] for number in kept] for values in keys]
        embeddings = [embeddings[number] for number in kept]
    columns = [("document_id", "uuid", keys[0]), ("chunk_id", "text", keys[1]), ("embedding", storage, embeddings)]
    return _core.CopyEncoder(columns, keys[1])


async def _staged_source(write: _Write, rows: RowSource, bulk: BulkIngestConfig) -> Source:
    """Copy rows into a temporary table."""
    connection, collection = write.connection, write.collection
    # The name is random because a caller's transaction may contain the table of an earlier write.
    name = f"semlex_{secrets.token_hex(8)}"
    staging = sql.Identifier("pg_temp", name)
    embedding = collection.embedding
    vector_type = sql.SQL(write.target.vector_type)
    await connection.execute(
        sql.SQL(
            "CREATE TEMPORARY TABLE {} WITH (toast_tuple_target = {}) ON COMMIT DROP "
            "AS SELECT {}, NULL::{} AS embedding FROM {} WITH NO DATA"
        ).format(
            sql.Identifier(name),
            sql.Literal(MAX_ROW_BYTES),
            write.target.column_list,
            vector_type,
            collection.names.chunk,
        )
    )
    every_vector = True

    def parts() -> Iterator[_core.CopyEncoder]:
        nonlocal every_vector
        for part in rows.parts():
            every_vector = every_vector and part.has_every_vector
            columns = write.wire_columns(write.numbered(part))
            if embedding is not None:
                vectors = [None] * len(part) if part.embeddings is None else part.embeddings
                columns.append(("embedding", embedding.storage, vectors))
            yield _core.CopyEncoder(columns, part.chunk_id)

    column_list = (
        write.target.column_list if embedding is None else sql.SQL("{}, embedding").format(write.target.column_list)
    )
    copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(staging, column_list)
    await copy_rows(connection, copy, parts(), bulk.copy_block_bytes)
    return Source(sql.SQL("{}").format(staging), {}, every_vector)


async def _delete_others(write: _Write, source: Source, documents: str) -> NDArray[np.int64]:
    """Delete stored chunks of `documents` that are not in `source`; return the keyword ids of the deleted chunks."""
    names = write.collection.names
    others = sql.SQL(
        "DELETE FROM {} AS t WHERE t.document_id = ANY(%(replaced)s::uuid[]) AND NOT EXISTS (SELECT 1 FROM {} "
        "AS s WHERE s.document_id = t.document_id AND s.chunk_id = t.chunk_id)"
    )
    values = {**source.parameters, "replaced": documents}
    statement = sql.SQL("WITH gone AS ({} RETURNING t.keyword_id) SELECT array_send(array_agg(keyword_id)) FROM gone")
    deleted = await fetch_value(write.connection, statement.format(others.format(names.chunk, source.table)), values)
    for vectors in (*write.others, write.target.vectors):
        if vectors is not None:
            await write.connection.execute(others.format(vectors, source.table), values)
    return ids_of(deleted)


async def _refuse_stored(write: _Write, source: Source) -> None:
    """Raise `DuplicateError` if chunks with keys of `source` are stored."""
    found = await fetch_rows(
        write.connection,
        sql.SQL(
            "SELECT s.chunk_id FROM {} AS s JOIN {} AS c USING (document_id, chunk_id) "
            "ORDER BY s.chunk_id LIMIT %(most)s"
        ).format(source.table, write.collection.names.chunk),
        {**source.parameters, "most": SHOWN_DUPLICATES},
    )
    if found:
        raise DuplicateError([chunk_id for (chunk_id,) in found])


async def _merge(write: _Write, source: Source, on_duplicate: OnDuplicate, gone: NDArray[np.int64]) -> int:
    connection, names, vectors = write.connection, write.collection.names, write.target.vectors
    outdated = list(write.others)
    if vectors is not None and not source.every_vector and not write.relies_on_stored:
        outdated.append(vectors)
    updates = on_duplicate == "update"
    if updates and (outdated or write.relies_on_stored):
        # A text that changed and came without a vector must not keep the old one; those of other models come with no
        # text. Whether it changed is known only once the row is locked, and rows are locked in key order, old and new
        # ones alike: without that, two writers can wait for each other.
        locking = insertion(write.target, source.table) + sql.SQL("UPDATE SET chunk_id = excluded.chunk_id WHERE FALSE")
        await connection.execute(locking, source.parameters)
        await _refuse_lacking(write, source, sql.SQL("(e.chunk_id IS NULL OR c.content_hash <> s.content_hash)"))
        for table in outdated:
            came_without = sql.SQL("AND s.embedding IS NULL" if table is vectors else "")
            await connection.execute(
                sql.SQL(
                    "DELETE FROM {} AS e USING {} AS s JOIN {} AS c USING (document_id, chunk_id) "
                    "WHERE e.document_id = s.document_id AND e.chunk_id = s.chunk_id "
                    "AND c.content_hash <> s.content_hash {}"
                ).format(table, source.table, names.chunk, came_without),
                source.parameters,
            )
    row = await fetch_row(connection, merging(write.target, source, replaces=updates), source.parameters)
    if not updates:
        await _refuse_lacking(write, source, sql.SQL("e.chunk_id IS NULL AND c.content_hash = s.content_hash"))
    count, stored, replaced = row or (0, None, None)
    if write.index is not None:
        await write.index.write(connection, ids_of(stored), joined([gone, ids_of(replaced)]))
    return int(count)


async def _refuse_lacking(write: _Write, source: Source, lacking: sql.SQL) -> None:
    """Raise `VectorsGoneError` if stored vectors that rows were to keep are gone."""
    vectors = write.target.vectors
    if vectors is None or not write.relies_on_stored:
        return
    found = await fetch_rows(
        write.connection,
        sql.SQL(
            "SELECT s.document_id, s.chunk_id FROM {} AS s JOIN {} AS c USING (document_id, chunk_id) "
            "LEFT JOIN {} AS e USING (document_id, chunk_id) WHERE s.embedding IS NULL AND {}"
        ).format(source.table, write.collection.names.chunk, vectors, lacking),
        source.parameters,
    )
    if found:
        raise VectorsGoneError(set(found))


# The first statement returns what a later attempt needs, if nothing is known or something changed.
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class _Known:
    """What a write has learned about the collection; the next write relies on it as long as `state` is unchanged."""

    state: str  # see `collection_state`
    serving: int  # number of the serving set of vectors; 0: none
    reserved: Reserved | None  # of the keyword index, if there is one


@dataclass(slots=True)
class _Answers:
    """The cursors of one attempt to write, with the server's answers."""

    state: Cursor
    versions: Cursor
    inserted: Cursor | None = None
    reserved: ReservedAnswers | None = None
    sizes: Cursor | None = None


# A writer needs generations of the keyword index, sets of vectors and ids that nobody else uses. They change rarely,
# and only together with the collection's row in the registry, so one write remembers them for the next. The rows
# are sent together with the locks, and are stored only if that row is unchanged and none of the rows exists. Otherwise
# nothing is written, and `write_chunks` is used.
@dataclass(slots=True)
class NewRows:
    """Writes a few new rows of one collection in a single round trip."""

    database: Database
    _known: _Known | None = field(default=None, init=False)

    async def write(self, collection: CollectionInfo, rows: ChunkBatch) -> bool | None:
        """Store rows if none of them exists. Return whether a merge of segments is due; None if nothing was stored."""
        if self.database.joins_transaction or write_guard.get() is not None:
            return None
        known, self._known = self._known, None  # its ids are used once
        for _ in range(ATTEMPTS):
            prepared = [] if known is None else await _statements(collection, rows, known)
            if prepared is None:
                return None
            try:
                answers = await self._send(collection, prepared)
            except StoreError as error:
                if error.sqlstate != UNIQUE_VIOLATION:
                    raise
                return None  # another writer has stored one of them since the statement began
            now = await _learned(collection, answers)
            count = await answers.inserted.fetchone() if answers.inserted else None
            if count and count[0] == len(rows):
                self._known = now
                index = collection.keyword.index
                return index is not None and answers.sizes is not None and await index.wants_merge(answers.sizes)
            if known is not None and now.state == known.state:
                self._known = now
                return None
            known = now
        return None

    async def _send(self, collection: CollectionInfo, statements: list[Statement]) -> _Answers:
        answers: list[_Answers] = []
        index = collection.keyword.index
        attempts = iter([statements])

        async def send(connection: Connection) -> None:
            await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", [writing_lock(collection)])
            state = await connection.execute(_held_state(collection.names), _identity(collection))
            # Sent once: if only the answer was lost, the index has the ids of these rows, whatever became of the rows.
            wanted = next(attempts, [])
            sent = [await connection.cursor(binary=True).execute(one.text, one.parameters) for one in wanted]
            found = _Answers(state, await ask_versions(connection, collection), next(iter(sent), None))
            if index is not None:
                found.reserved = await index.reserve(connection, collection, 1)
                found.sizes = await index.ask_sizes(connection, collection)
            answers[:] = [found]

        await self.database.write_in_one_go("add documents", send)
        return answers[0]


async def _statements(collection: CollectionInfo, rows: ChunkBatch, known: _Known) -> list[Statement] | None:
    """Return the statements that write the rows; the first counts the rows. None if one round trip is not enough."""
    index, few, used = collection.keyword.index, None, collection.embedding
    if used is not None and used.version != known.serving:
        return None  # what the serving vectors lack has to be noted
    if index is not None and known.reserved is not None:
        with index.share(collection.names, known.reserved) as share:
            rows.keyword_id = share.assign_ids(rows.language, rows.context, rows.chunk_text).tolist()
            few = await share.write_few(rows.keyword_id[0])
        if few is None:
            return None
    target = Target.of(collection, numbered=index is not None)
    values = array_values(collection, target, rows) | _identity(collection) | {"expected": known.state}
    inserting = Statement(inserting_new(target), values)
    return [inserting] if few is None else [inserting, few]


async def _learned(collection: CollectionInfo, answers: _Answers) -> _Known:
    """Read from the server's answers what the next write may rely on."""
    row = await answers.state.fetchone()
    if row is None:
        raise gone(collection)
    embedding = collection.embedding
    if embedding is not None and (embedding.version,) not in await answers.versions.fetchall():
        raise dropped(collection)
    state, serving = row
    return _Known(state, serving, None if answers.reserved is None else await answers.reserved.told())


def _identity(collection: CollectionInfo) -> dict[str, Any]:
    return {"name": collection.names.collection, "collection_id": collection.collection_id}


@lru_cache(maxsize=256)
def _held_state(names: Names) -> bytes:
    return collection_state(names, is_held=True).as_bytes()
