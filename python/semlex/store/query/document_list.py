"""The documents that were read from files, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.postgres.settings import cursor_with_times
from semlex.store.write.sources import is_present, read_sources, unknown_source

if TYPE_CHECKING:
    from datetime import datetime

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


# A document as lists name it. Pages are in this order, so that its last name is where the next page begins.
NAME = sql.SQL("(s.name || ': ' || d.uri) COLLATE \"C\"")


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that was read from a file.

    Attributes:
        source: Name of its source.
        root: The folder of the source.
        uri: Path below it.
        chunks: Number of its chunks.
        written_at: When it was written or moved, in UTC.
        encoding: The encoding that was guessed; None where nothing was.
        size_bytes: Size of the file.
        modified_at: When the file had been changed, in UTC.
        content_hash: Of its bytes.
        file_state: State of the file, or None.
    """

    source: str
    root: str
    uri: str
    chunks: int
    written_at: datetime
    encoding: str | None
    size_bytes: int
    modified_at: datetime
    content_hash: bytes
    file_state: str | None


async def list_documents(
    connection: Connection,
    collection: CollectionInfo,
    source: str | None,
    *,
    limit: int | None = None,
    after: str | None = None,
) -> list[ListedDocument]:
    """The documents of a source or of all, by source and path.

    Args:
        connection: In a transaction.
    """
    if source is not None:
        known = await read_sources(connection, collection)
        if source not in {one.name for one in known}:
            raise unknown_source(source, known)
    names = collection.names
    cursor = cursor_with_times(connection)
    await cursor.execute(
        sql.SQL(
            "SELECT s.name, s.root, d.uri, d.chunk_count, d.updated_at, d.encoding, d.size_bytes, d.modified_at, "
            "d.content_hash, d.file_state "
            "FROM {document} AS d JOIN {source} AS s USING (source_id) "
            "WHERE {present} AND (%(source)s::text IS NULL OR s.name = %(source)s) "
            "AND (%(after)s::text IS NULL OR {name} > %(after)s) ORDER BY {name} LIMIT %(limit)s"
        ).format(document=names.document, source=names.source, present=is_present(names), name=NAME),
        {"source": source, "limit": limit, "after": after},
    )
    return [ListedDocument(*row) for row in await cursor.fetchall()]
