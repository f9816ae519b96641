"""What the tables of a collection hold, and what they never may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.proving.ground import connected
from semlex.store.proving.keyword_index import check_keyword_index

if TYPE_CHECKING:
    from semlex.store.proving.ground import Connection
    from semlex.store.proving.keyword_index import IndexFindings
    from semlex.store.schema.names import Names

# SQL that counts what must not be there; the collection's tables are named in it.
FAULTS = {
    "a chunk id that stands twice": "SELECT count(*) - count(DISTINCT chunk_id) FROM {chunk}",
    "a chunk without a vector": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS (SELECT FROM {vectors} e "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a vector without a chunk": "SELECT count(*) FROM {vectors} e WHERE NOT EXISTS (SELECT FROM {chunk} c "
    "WHERE (e.document_id, e.chunk_id) = (c.document_id, c.chunk_id))",
    "a wrong number of chunks": "SELECT count(*) FROM {document} d WHERE chunk_count <> "
    "(SELECT count(*) FROM {chunk} c WHERE c.document_id = d.document_id)",
    "a chunk without a document": "SELECT count(*) FROM {chunk} c WHERE NOT EXISTS "
    "(SELECT FROM {document} d WHERE d.document_id = c.document_id)",
    "a file that stands twice": "SELECT count(*) - count(DISTINCT (source_id, uri)) FROM {document}",
    "a chunk under another name than its document": "SELECT count(*) FROM {chunk} c JOIN {document} d "
    "USING (document_id) WHERE c.source_document <> d.uri",
}


def count_faults(connection: Connection, names: Names, version: int = 1) -> dict[str, int]:
    """Return the faults of a collection, with their numbers; `version` is that of its vectors."""
    tables = {"chunk": names.chunk, "document": names.document, "vectors": names.embedding(version)}
    found = {}
    for fault, statement in FAULTS.items():
        row = connection.execute(sql.SQL(statement).format(**tables)).fetchone()
        assert row is not None  # noqa: S101 - a count returns a row
        found[fault] = row[0]
    return {fault: count for fault, count in found.items() if count}


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is stored."""

    id: str
    document_id: Any
    context: str
    text: str
    vector: list[float] | None


@dataclass(frozen=True, slots=True)
class StoredCollection:
    """What a collection has in one snapshot.

    Attributes:
        chunks: Those of a document in their order.
        documents: Key, name and content hash of each that was read from a file.
        faults: As of `count_faults`.
        index: What a check of the keyword index found.
    """

    chunks: list[StoredChunk]
    documents: list[tuple[Any, str, bytes]]
    faults: dict[str, int]
    index: IndexFindings


def stored_collection(url: str, names: Names, version: int = 1) -> StoredCollection | None:
    """Return the stored data of a collection, with the vectors of a version; None if it does not exist."""
    with connected(url) as connection:
        if not is_made(connection, names, version):
            return None
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            return StoredCollection(
                stored_chunks(connection, names, version),
                stored_documents(connection, names),
                count_faults(connection, names, version),
                check_keyword_index(connection, names),
            )


def stored_chunks(connection: Connection, names: Names, version: int = 1) -> list[StoredChunk]:
    """Return all chunks, those of a document in their order, with the vectors of a version."""
    statement = sql.SQL(
        "SELECT chunk_id, document_id, context, chunk_text, embedding::real[] FROM {} AS c "
        "LEFT JOIN {} AS e USING (document_id, chunk_id) ORDER BY document_id, chunk_no, chunk_id"
    ).format(names.chunk, names.embedding(version))
    return [StoredChunk(*row) for row in connection.execute(statement).fetchall()]


def stored_documents(connection: Connection, names: Names) -> list[tuple[Any, str, bytes]]:
    """Return key, name and content hash of each document that was read from a file."""
    statement = sql.SQL("SELECT document_id, uri, content_hash FROM {}").format(names.document)
    return connection.execute(statement).fetchall()


def is_made(connection: Connection, names: Names, version: int = 1) -> bool:
    """Return whether the tables of a collection are there, those of a version of its vectors included."""
    wanted = names.embedding(version).as_string(connection)
    return connection.execute("SELECT to_regclass(%s) IS NOT NULL", [wanted]).fetchone() == (True,)


def serving_version(connection: Connection, names: Names) -> int:
    """Return the number of the vectors that searches use."""
    statement = sql.SQL("SELECT embedding_version FROM {} WHERE name = %s").format(names.registry)
    row = connection.execute(statement, [names.collection]).fetchone()
    return 0 if row is None else int(row[0])


def count_rows(connection: Connection, names: Names) -> tuple[int, ...]:
    """Return the number of rows in each table to which an added document adds rows."""
    tables = (names.chunk, names.document, names.embedding(1), names.tombstone)
    counts = sql.SQL(", ").join(sql.SQL("(SELECT count(*) FROM {})").format(table) for table in tables)
    row = connection.execute(sql.SQL("SELECT {}").format(counts)).fetchone()
    return () if row is None else tuple(row)
