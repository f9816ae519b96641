"""Count what a collection holds, or estimate it from the server's statistics; describe the collection in a sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex.store.postgres.rows import fetch_value, only_row
from semlex.store.schema.names import Names, oid_of, stored_in
from semlex.store.write.sources import is_present

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo

# A table of this size is counted in some ten milliseconds.
SMALL_BYTES = 64 * 1024 * 1024


async def collection_figures(connection: Connection, collection: CollectionInfo, *, exact: bool) -> dict[str, Any]:
    """Return the counts that ``status`` shows; the transaction must have one snapshot."""
    # The figures are ``sources``, ``documents``, ``chunks``, ``tokens``, ``embedded`` (chunks), ``orphaned_vectors``
    # (their chunk is gone), and those of `Bm25Index.statistics`. ``estimated`` is True if a large table was not
    # counted: its number is an estimate then, and figures that need a count are None.
    estimates = {} if exact else await _estimates(connection, collection.names, _tables(collection))
    estimated = bool(estimates)
    counted = await _counted(connection, collection, estimates)
    index = collection.keyword.index
    indexed = {} if index is None else await index.statistics(connection, collection, counted=not estimated)
    return {"embedded": 0, "orphaned_vectors": 0} | counted | estimates | {"estimated": estimated} | indexed


def _tables(collection: CollectionInfo) -> dict[str, sql.Identifier]:
    names, embedding = collection.names, collection.embedding
    tables = {"sources": names.source} | _documents_and_chunks(names)
    return tables if embedding is None else tables | {"embedded": names.embedding(embedding.version)}


def _documents_and_chunks(names: Names) -> dict[str, sql.Identifier]:
    return {"documents": names.document, "chunks": names.chunk}


def _count_documents(names: Names) -> sql.Composed:
    """Return SQL that counts documents in two tables, because added ones have only chunks, and empty files none."""
    return sql.SQL(
        "(SELECT count(*) FROM (SELECT document_id FROM {} UNION SELECT document_id FROM {}) AS each_document)"
    ).format(names.document, names.chunk)


async def collection_counts(connection: Connection, schema: str, collection: str) -> dict[str, Any]:
    """Count a collection's documents and chunks for a list of collections; both are None if they cannot be read."""
    names = Names(schema, collection)
    tables = _documents_and_chunks(names)
    are_readable = await fetch_value(
        connection,
        # CASE, because a missing table has no privileges to check.
        "SELECT bool_and(CASE WHEN to_regclass(name) IS NULL THEN false "
        "ELSE has_table_privilege(to_regclass(name), 'SELECT') END) FROM unnest(%s::text[]) AS name",
        [[table.as_string(connection) for table in tables.values()]],
    )
    if not are_readable:
        return dict.fromkeys(tables) | {"estimated": False}
    estimates = await _estimates(connection, names, tables)
    found = await _evaluate(connection, _row_counts(names, tables, estimates)) | estimates
    return {name: found[name] for name in tables} | {"estimated": bool(estimates)}


def _row_counts(
    names: Names, tables: Mapping[str, sql.Identifier], estimates: Mapping[str, int]
) -> dict[str, sql.Composable]:
    """Return SQL of the number of rows of each table that is not estimated, by name."""
    return {
        name: _count_documents(names) if name == "documents" else sql.SQL("(SELECT count(*) FROM {})").format(table)
        for name, table in tables.items()
        if name not in estimates
    }


async def _evaluate(connection: Connection, parts: Mapping[str, sql.Composable]) -> dict[str, int]:
    """Return the value of each of these SQL expressions, by name, in one statement."""
    if not parts:
        return {}
    counts = await only_row(connection, sql.SQL("SELECT {}").format(sql.SQL(", ").join(parts.values())))
    return dict(zip(parts, counts, strict=True))


async def _estimates(connection: Connection, names: Names, tables: Mapping[str, sql.Identifier]) -> dict[str, int]:
    """Return estimates of the rows of large tables, by name; documents are estimated if chunks are."""
    found = await _estimated_rows(connection, tables)
    files = found.pop("documents", None)
    if "chunks" in found and (distinct := await _distinct_documents(connection, names, found["chunks"])) is not None:
        if files is None:
            files = await fetch_value(connection, sql.SQL("SELECT count(*) FROM {}").format(names.document))
        found["documents"] = max(files, distinct)
    return found


async def _distinct_documents(connection: Connection, names: Names, chunks: int) -> int | None:
    """Estimate from the server's statistics how many documents the chunks belong to; None without statistics."""
    # A negative number is a share of the rows. No document is in two partitions.
    count, share = await only_row(
        connection,
        sql.SQL(
            "SELECT sum(greatest(s.n_distinct, 0)), "
            "sum(-least(s.n_distinct, 0) * greatest(l.reltuples, 0)) / nullif(sum(greatest(l.reltuples, 0)), 0) "
            "FROM {} JOIN pg_catalog.pg_namespace AS n ON n.oid = l.relnamespace "
            "JOIN pg_catalog.pg_stats AS s ON (s.schemaname, s.tablename) = (n.nspname, l.relname) "
            "WHERE s.attname = 'document_id' AND NOT s.inherited"
        ).format(stored_in(oid_of(names.chunk))),
    )
    return None if count is None else round(count + (share or 0) * chunks)


async def _estimated_rows(connection: Connection, tables: Mapping[str, sql.Identifier]) -> dict[str, int]:
    """Return the planner's estimate of the rows of each large table that has statistics, by name."""
    cursor = await connection.execute(
        sql.SQL(
            "SELECT s.* FROM unnest(%s::text[]) WITH ORDINALITY AS t(name, place) CROSS JOIN LATERAL ("
            "SELECT sum(pg_catalog.pg_relation_size(l.oid))::float8, "
            "coalesce(sum(l.reltuples::float8) FILTER (WHERE l.reltuples >= 0), -1), "
            "coalesce(sum(l.relpages::float8) FILTER (WHERE l.reltuples >= 0), 0) "
            "* pg_catalog.current_setting('block_size')::int FROM {}) AS s ORDER BY t.place"
        ).format(stored_in(sql.SQL("t.name::regclass"))),
        [[table.as_string(connection) for table in tables.values()]],
    )
    return {
        name: round(rows * size / then)
        for name, (size, rows, then) in zip(tables, await cursor.fetchall(), strict=True)
        if size > SMALL_BYTES and rows >= 0 and then > 0
    }


async def _counted(
    connection: Connection, collection: CollectionInfo, estimates: dict[str, int]
) -> dict[str, int | None]:
    """Count what is not estimated; a count for which a large table would have to be read is None."""
    tables = _tables(collection)
    chunks = tables["chunks"]
    parts = _row_counts(collection.names, tables, estimates)
    if "sources" in parts:
        present = is_present(collection.names)
        parts["sources"] = sql.SQL("(SELECT count(*) FROM {} AS s WHERE {})").format(tables["sources"], present)
    unknown: dict[str, int | None] = {}
    if estimates:
        unknown = {"tokens": None, "orphaned_vectors": None}
    else:
        parts["tokens"] = sql.SQL("(SELECT coalesce(sum(token_count), 0)::bigint FROM {})").format(chunks)
        if "embedded" in tables:
            parts["embedded"] = sql.SQL("(SELECT count(*) FROM {} JOIN {} USING (document_id, chunk_id))").format(
                tables["embedded"], chunks
            )
            parts["orphaned_vectors"] = sql.SQL("(SELECT count(*) FROM {} AS e WHERE {})").format(
                tables["embedded"], is_orphaned(chunks)
            )
    return await _evaluate(connection, parts) | unknown


async def count_vectors(connection: Connection, collection: CollectionInfo, version: int, *, exact: bool) -> int:
    """Return how many vectors an embedding version has; estimated if the table is large, unless `exact`."""
    table = collection.names.embedding(version)
    estimates = {} if exact else await _estimated_rows(connection, {"vectors": table})
    if estimates:
        return estimates["vectors"]
    counted = await fetch_value(connection, sql.SQL("SELECT count(*) FROM {}").format(table))
    return int(counted)


async def vector_counts(connection: Connection, collection: CollectionInfo, version: int) -> tuple[int, int, int]:
    """Return how many chunks have and lack a vector of a version, and the bytes of its table with indexes."""
    names, vectors = collection.names, collection.names.embedding(version)
    with_vector, without, size = await only_row(
        connection,
        sql.SQL(
            "SELECT (SELECT count(*) FROM {vectors} JOIN {chunk} USING (document_id, chunk_id)), "
            "(SELECT count(*) FROM {chunk} AS c WHERE NOT EXISTS (SELECT 1 FROM {vectors} AS e "
            "WHERE e.document_id = c.document_id AND e.chunk_id = c.chunk_id)), "
            "(SELECT sum(pg_catalog.pg_total_relation_size(l.oid))::bigint FROM {stored})"
        ).format(vectors=vectors, chunk=names.chunk, stored=stored_in(oid_of(vectors))),
    )
    return with_vector, without, size


def is_orphaned(chunks: sql.Identifier) -> sql.Composed:
    """Return SQL of whether the chunk of a vector (row ``e``) is gone."""
    return sql.SQL(
        "NOT EXISTS (SELECT 1 FROM {} AS c WHERE c.document_id = e.document_id AND c.chunk_id = e.chunk_id)"
    ).format(chunks)


MAX_DESCRIPTION_BYTES = 1000
# Keys are hashes: the first ones are a sample of the documents that is always the same.
SAMPLED_CHUNKS = 1000
MAX_TITLES = 8
MAX_TITLE = 60

# Only a description that somebody wrote is stored. Titles are read when they are needed: they are never out of date,
# and storing them would change the registry's row, by which writers know that nothing has changed.
TITLES = sql.SQL(
    "SELECT CASE WHEN c.chapter_title <> '' THEN c.chapter_title ELSE coalesce(d.title, '') END "
    "FROM (SELECT document_id, chapter_title FROM {chunk} ORDER BY document_id, chunk_id LIMIT {rows}) AS c "
    "LEFT JOIN {document} AS d USING (document_id)"
)


async def read_own_description(connection: Connection, names: Names) -> str | None:
    """Return the description that was written for a collection; None if none was written."""
    statement = sql.SQL("SELECT description FROM {} WHERE name = %s").format(names.registry)
    description: str | None = await fetch_value(connection, statement, [names.collection])
    return description


async def write_description(connection: Connection, names: Names, text: str | None) -> None:
    """Store the description of a collection; None removes it, so that titles describe the collection."""
    await connection.execute(
        sql.SQL("UPDATE {} SET description = %s WHERE name = %s").format(names.registry), [text, names.collection]
    )


async def read_titles(connection: Connection, names: Names) -> list[str]:
    """Return the titles with the most chunks in a sample, the most frequent first; each on one line, shortened."""
    statement = TITLES.format(chunk=names.chunk, document=names.document, rows=sql.Literal(SAMPLED_CHUNKS))
    cursor = await connection.execute(statement)
    counts = Counter(" ".join(title.split()) for (title,) in await cursor.fetchall())
    ordered = sorted((title for title in counts if title), key=lambda title: (-counts[title], title))
    return [title if len(title) <= MAX_TITLE else f"{title[: MAX_TITLE - 1]}…" for title in ordered[:MAX_TITLES]]


async def read_description(connection: Connection, names: Names) -> str:
    """Return the description that was written for a collection, else one made of its titles; "" without titles."""
    own = await read_own_description(connection, names)
    if own is not None:
        return own
    titles = await read_titles(connection, names)
    return f"Among its titles: {'; '.join(titles)}." if titles else ""
