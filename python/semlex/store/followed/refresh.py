"""Replace the metadata of rows whose text is unchanged, in all their chunks; texts, vectors and postings stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import Names


class RowMetadata(NamedTuple):
    """The present metadata of a row."""

    document_id: UUID
    text_hash: bytes
    metadata_hash: str
    json: bytes  # of the metadata


async def refresh_metadata(connection: Connection, names: Names, rows: Sequence[RowMetadata]) -> set[UUID]:
    """Replace the metadata of documents whose stored text equals the row's; return their keys."""
    # The transaction must have begun as that of every writer does.
    ordered = sorted(rows, key=lambda row: row.document_id.bytes)
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "WITH locked AS MATERIALIZED (SELECT d.document_id, k.hash FROM {document} AS d "
            "JOIN unnest(%(documents)s::uuid[], %(texts)s::bytea[], %(hashes)s::text[]) AS k(document_id, text, hash) "
            "USING (document_id) WHERE d.content_hash = k.text ORDER BY d.document_id FOR UPDATE OF d) "
            "UPDATE {document} AS d SET file_state = l.hash, updated_at = clock_timestamp() FROM locked AS l "
            "WHERE d.document_id = l.document_id RETURNING d.document_id"
        ).format(document=names.document),
        {
            "documents": [row.document_id for row in ordered],
            "texts": [row.text_hash for row in ordered],
            "hashes": [row.metadata_hash for row in ordered],
        },
    )
    refreshed = {document_id for (document_id,) in await cursor.fetchall()}
    kept = [row for row in ordered if row.document_id in refreshed]
    await connection.execute(
        sql.SQL(
            "WITH given AS MATERIALIZED (SELECT k.document_id, m.value FROM unnest(%(documents)s::uuid[]) "
            "WITH ORDINALITY AS k(document_id, number) JOIN jsonb_array_elements(%(metadata)s::jsonb) "
            "WITH ORDINALITY AS m(value, number) USING (number)), "
            "locked AS MATERIALIZED (SELECT c.document_id, c.chunk_id, g.value FROM {chunk} AS c JOIN given AS g "
            "USING (document_id) ORDER BY c.document_id, c.chunk_id FOR UPDATE OF c) "
            "UPDATE {chunk} AS c SET metadata = l.value, updated_at = clock_timestamp() FROM locked AS l "
            "WHERE c.document_id = l.document_id AND c.chunk_id = l.chunk_id"
        ).format(chunk=names.chunk),
        {
            "documents": [row.document_id for row in kept],
            # One text: the driver makes arrays value by value, which takes ten times as long.
            "metadata": f"[{','.join(row.json.decode() for row in kept)}]",
        },
    )
    return refreshed
