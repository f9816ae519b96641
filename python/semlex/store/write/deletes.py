"""Delete chunks with their vectors and postings, and the rows of documents that become empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from psycopg import sql

from semlex.store.embedding_versions import stored_versions
from semlex.store.postgres.rows import fetch_row, fetch_rows, fetch_value, only_row
from semlex.store.query.filters import Filter, is_of_document
from semlex.store.query.leg import Key, key_arrays
from semlex.store.write.copy import ids_of
from semlex.store.write.documents import begin_write, lock_documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.keyword.bm25.write import BatchIndex
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo

# Documents, or chunks that are named by id, of one transaction.
BATCH_DOCUMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which chunks of these documents are selected, by a condition or by key."""

    documents: Sequence[UUID]  # keys
    condition: Filter  # SQL on `c` that the chunks have to pass
    keys: Sequence[Key] | None = None  # None: all chunks of these documents
    whole: bool = False  # whether documents without any chunk are included

    def expression(self) -> sql.Composed:
        """Return SQL of the condition that selects the chunks."""
        parts: list[sql.Composable] = [sql.SQL("c.document_id = ANY(%(selected)s)"), self.condition.expression]
        if self.keys is not None:
            parts.append(
                sql.SQL(
                    "(c.document_id, c.chunk_id) IN "
                    "(SELECT * FROM unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]))"
                )
            )
        return sql.SQL(" AND ").join(parts)

    def parameters(self) -> dict[str, Any]:
        """Return the values that `expression` binds."""
        keys = {} if self.keys is None else key_arrays(self.keys)
        return {"selected": list(self.documents), **self.condition.parameters, **keys}


async def delete_selection(connection: Connection, collection: CollectionInfo, selection: Selection) -> tuple[int, int]:
    """Delete chunks with their vectors; return the numbers of deleted chunks and of emptied documents."""
    # The row of a document without chunks is deleted, so that indexing its file stores it again. Locks are taken as
    # `write_chunks` takes them, so that no deadlock occurs.
    async with begin_write(connection, collection) as index:
        return await delete_within(connection, collection, selection, index)


async def delete_within(
    connection: Connection, collection: CollectionInfo, selection: Selection, index: BatchIndex | None
) -> tuple[int, int]:
    """Do the work of `delete_selection` inside a write that has begun."""
    names = collection.names
    documents = selection.documents
    await lock_documents(connection, names, [document.bytes for document in documents])
    row = await fetch_row(
        connection,
        sql.SQL(
            "WITH gone AS (DELETE FROM {chunk} AS t USING (SELECT c.document_id, c.chunk_id FROM {chunk} AS c "
            "WHERE {selected} ORDER BY 1, 2 FOR UPDATE) AS locked "
            "WHERE t.document_id = locked.document_id AND t.chunk_id = locked.chunk_id "
            "RETURNING t.document_id, t.chunk_id, t.keyword_id) "
            "SELECT array_agg(document_id), array_agg(chunk_id), array_send(array_agg(keyword_id)) FROM gone"
        ).format(chunk=names.chunk, selected=selection.expression()),
        selection.parameters(),
    )
    document_ids, chunk_ids, keyword_ids = row or (None, None, None)
    gone = list(zip(document_ids or [], chunk_ids or [], strict=True))
    for version in await stored_versions(connection, collection) if gone else ():
        # A chunk that another process has made since keeps its vector.
        await connection.execute(
            sql.SQL(
                "DELETE FROM {vectors} AS t USING (SELECT d.document_id, d.chunk_id FROM {vectors} AS d "
                "JOIN unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[]) AS k(document_id, chunk_id) "
                "USING (document_id, chunk_id) WHERE NOT EXISTS (SELECT 1 FROM {chunk} AS c "
                "WHERE c.document_id = d.document_id AND c.chunk_id = d.chunk_id) ORDER BY 1, 2 FOR UPDATE OF d) "
                "AS locked WHERE t.document_id = locked.document_id AND t.chunk_id = locked.chunk_id"
            ).format(vectors=names.embedding(version), chunk=names.chunk),
            key_arrays(gone),
        )
    emptied = await _forget_empty(
        connection, collection, {key[0] for key in gone}, documents if selection.whole else ()
    )
    if index is not None:
        await index.write(connection, None, ids_of(keyword_ids))
    return len(gone), emptied


async def _forget_empty(
    connection: Connection, collection: CollectionInfo, touched: set[UUID], meant: Sequence[UUID]
) -> int:
    """Delete the rows of empty documents, update the chunk counts of the others; return how many are empty."""
    names = collection.names
    counted = sql.SQL("SELECT document_id, count(*) FROM {} WHERE document_id = ANY(%s) GROUP BY 1 ORDER BY 1")
    left = dict(await fetch_rows(connection, counted.format(names.chunk), [list(touched)]))
    empty = touched - left.keys()
    deleted = await fetch_rows(
        connection,
        sql.SQL(
            "DELETE FROM {} AS d WHERE d.document_id = ANY(%s) "
            "AND NOT EXISTS (SELECT 1 FROM {} AS c WHERE c.document_id = d.document_id) RETURNING d.document_id"
        ).format(names.document, names.chunk),
        [[*empty, *meant]],
    )
    forgotten = {document for (document,) in deleted}
    if left:
        await connection.execute(
            sql.SQL(
                "UPDATE {} AS d SET chunk_count = n.chunks "
                "FROM unnest(%s::uuid[], %s::int[]) AS n(document_id, chunks) WHERE d.document_id = n.document_id"
            ).format(names.document),
            [list(left), list(left.values())],
        )
    return len(empty | forgotten)


async def count_selection(connection: Connection, collection: CollectionInfo, selection: Selection) -> tuple[int, int]:
    """Return the numbers that `delete_selection` would return, without deleting."""
    names = collection.names
    chunks, documents = await only_row(
        connection,
        sql.SQL(
            "SELECT coalesce(sum(hits), 0)::int8, count(*) FILTER (WHERE hits = chunks) FROM "
            "(SELECT count(*) FILTER (WHERE {selected}) AS hits, count(*) AS chunks FROM {chunk} AS c "
            "WHERE c.document_id = ANY(%(selected)s) GROUP BY c.document_id) AS counted WHERE hits > 0"
        ).format(selected=selection.expression(), chunk=names.chunk),
        selection.parameters(),
    )
    if selection.whole:
        documents += await fetch_value(
            connection,
            sql.SQL(
                "SELECT count(*) FROM {} AS d WHERE d.document_id = ANY(%s) "
                "AND NOT EXISTS (SELECT 1 FROM {} AS c WHERE c.document_id = d.document_id)"
            ).format(names.document, names.chunk),
            [list(selection.documents)],
        )
    return int(chunks), int(documents)


async def documents_that_pass(
    connection: Connection, collection: CollectionInfo, condition: Filter, after: UUID | None
) -> list[UUID]:
    """Return a page of document ids, ascending: those of documents with at least one chunk that passes the filter."""
    found = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT DISTINCT c.document_id FROM {} AS c WHERE c.document_id > %(after)s AND {} "
            "ORDER BY c.document_id LIMIT %(page)s"
        ).format(collection.names.chunk, condition.expression),
        {**condition.parameters, "after": after or UUID(int=0), "page": BATCH_DOCUMENTS},
    )
    return [document for (document,) in found]


async def documents_named(
    connection: Connection, collection: CollectionInfo, name: str, sources: Sequence[UUID] | None
) -> dict[UUID, UUID | None]:
    """Return the documents with this name, each with its source; added documents only if no source has the name."""
    # `sources` limits the search to some sources; None means all, and added documents.
    names = collection.names
    statement = sql.SQL(
        "SELECT document_id, source_id FROM {} WHERE uri = %s AND (%s::uuid[] IS NULL OR source_id = ANY(%s))"
    )
    found: dict[UUID, UUID | None] = dict(
        await fetch_rows(connection, statement.format(names.document), [name, sources, sources])
    )
    if found or sources is not None:
        return found
    added = await fetch_rows(
        connection,
        sql.SQL(
            "SELECT DISTINCT c.document_id FROM {} AS c WHERE {} "
            "AND NOT EXISTS (SELECT 1 FROM {} AS d WHERE d.document_id = c.document_id)"
        ).format(names.chunk, is_of_document(sql.SQL("%(name)s::text")), names.document),
        {"name": name},
    )
    return {document: None for (document,) in added}
