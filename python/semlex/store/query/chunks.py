"""Read chunks: load hits with excerpts, fetch by id, list and count."""

from __future__ import annotations

import json
import math
from functools import cache, lru_cache, partial
from itertools import compress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from psycopg import AsyncCursor, sql

from semlex import _core
from semlex.store.descriptions import without_line
from semlex.store.keyword.base import MAX_TERMS
from semlex.store.postgres.rows import cursor_with_times, fetch_value
from semlex.store.query.chunk_keys import chunk_keys, indexed_keys, is_indexed, keys_of
from semlex.store.query.filters import Filter, with_rows
from semlex.store.query.leg import GIVEN_KEYS, BestRows, Key, Statement, key_arrays
from semlex.store.query.run import fetch, measure, size_seen
from semlex.store.query.score_calibration import binary_vectors, vectors_by_key
from semlex.store.write.copy import array_text
from semlex.types.documents import StoredChunk, StoredPlace, place_of
from semlex.types.results import SearchResult, Shown, show_when_read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.rows import RowColumns
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names


# An excerpt, and the position in the text of its first matched word, or None.
Excerpt = tuple[str, int | None]


def excerpts_of(
    query: str | None,
    texts: Sequence[str],
    languages: Sequence[str | None],
    analyzer_for: Callable[[str | None], _core.Analyzer | None],
) -> list[Excerpt]:
    """Return the excerpt of each text."""
    found: list[Excerpt] = [("", None)] * len(texts)
    for language in set(languages):
        rows = [row for row, own in enumerate(languages) if own == language]
        analyzer = None if query is None else analyzer_for(language)
        terms = [] if analyzer is None else [term for _, term in analyzer.query(query or "", MAX_TERMS).wanted]
        for row, own in zip(rows, _core.excerpts([texts[row] for row in rows], analyzer, terms), strict=True):
            found[row] = own
    return found


# Chunks are grouped by the key of an indexed document, or by the name that added chunks give theirs.
DocumentKey = UUID | str

COLUMNS = sql.SQL(
    "c.document_id, c.chunk_id, c.chunk_text, c.metadata::pg_catalog.text, c.parent_chunk_id, "
    "c.created_at, c.updated_at, c.source_document, c.chapter_title, c.section_title, c.subsection_title, "
    "c.char_start, c.char_end, c.line, c.page, c.place, c.child_ids, c.timestamp_start, c.timestamp_end, {place}"
    "{row_columns}, c.keyword_id, c.language"
)
LARGE_COLUMNS, PLACE_COLUMN = (2, 3), 15
FROM_PLACE = 5  # columns from the place to the source
# More rows than this are measured on the server first, so that a refused answer is never sent. This many have up to
# 36 MiB (MAX_CHUNK_BYTES and MAX_METADATA_BYTES each).
MEASURED_ROWS = 32
SIZE = sql.SQL(
    "SELECT coalesce(sum(octet_length(found.chunk_text) + octet_length(found.metadata::text)), 0)::bigint "
    "FROM ({}) AS found"
)
# By key for every row, whichever plan the planner prefers.
PLACE = sql.SQL(
    "(SELECT ARRAY[s.name, s.root] FROM {document} AS d "
    "JOIN {source} AS s ON s.source_id OPERATOR(pg_catalog.=) d.source_id "
    "WHERE d.document_id OPERATOR(pg_catalog.=) c.document_id)"
)


def _columns(names: Names, columns: RowColumns | None = None, *, has_places: bool) -> sql.Composed:
    # Planning the join with the sources takes longer than all the rest; chunks of added documents have none.
    place = PLACE.format(document=names.document, source=names.source) if has_places else sql.SQL("NULL")
    return COLUMNS.format(place=place, row_columns=sql.SQL("") if columns is None else columns.selected)


def _hits(names: Names, columns: RowColumns | None, *, has_places: bool) -> sql.Composed:
    return sql.SQL("SELECT {columns} FROM {keys} JOIN {chunk} AS c USING (document_id, chunk_id){rows}").format(
        columns=_columns(names, columns, has_places=has_places),
        keys=GIVEN_KEYS,
        chunk=names.chunk,
        rows=sql.SQL("") if columns is None else columns.joined,
    )


@lru_cache(maxsize=256)
def _plain_hits(names: Names, *, has_places: bool) -> bytes:
    return _hits(names, None, has_places=has_places).as_bytes()


@lru_cache(maxsize=256)
def _numbered_hits(names: Names, *, has_places: bool) -> bytes:
    statement = sql.SQL("SELECT {} FROM {} AS c WHERE c.keyword_id = ANY(%(numbers)s::int8[])")
    return statement.format(_columns(names, has_places=has_places), names.chunk).as_bytes()


@lru_cache(maxsize=256)
def _hit_columns(names: Names, *, has_places: bool) -> bytes:
    return _columns(names, has_places=has_places).as_bytes()


def best_rows(names: Names, count: int, *, has_places: bool) -> BestRows | None:
    """Return the columns that a search reads together with its hits; None if the rows' size must be checked first."""
    # `has_places` tells whether some hits may be chunks of documents that were read from files.
    if size_seen.get() is not None and count > MEASURED_ROWS:
        return None
    return BestRows(_hit_columns(names, has_places=has_places), LARGE_COLUMNS, count, has_places)


async def load_results(
    snapshot: Snapshot,
    collection: CollectionInfo,
    keys: Sequence[Key],
    query: str | None,
    *,
    brought: Mapping[Key, Any] | None = None,
    numbers: Sequence[int | None] = (),
    postings: _core.PostingSnapshot | None = None,
    columns: RowColumns | None = None,
    is_last: bool = False,
) -> dict[Key, SearchResult]:
    """Load hits by key, in one statement; the answer lacks keys of chunks that are gone."""
    # `brought` are rows that the leg has returned already, by `best_rows`; they are used if they are complete.
    # `numbers` are the ids of the chunks in the keyword index, as far as they are known.
    # `columns` are those of followed tables: a hit whose row there is gone or hidden is missing, too.
    if not keys:
        return {}
    if brought is not None and all(key in brought for key in keys):
        rows = [brought[key] for key in keys]
    else:
        has_places = any(is_indexed(chunk_id) for _, chunk_id in keys)
        known = [number for number in numbers if number is not None]
        rows = await _hit_rows(
            snapshot,
            collection.names,
            keys,
            columns,
            numbers=known if len(known) == len(keys) else None,
            has_places=has_places,
            is_last=is_last,
        )
    results = [SearchResult(*_stored(row)) for row in rows]
    if columns is not None:
        for hit, row in zip(results, rows, strict=True):
            hit.columns = columns.of(hit.table, row[PLACE_COLUMN + FROM_PLACE : -2])
        is_there = [hit.table not in columns.tables or hit.columns is not None for hit in results]
        rows, results = list(compress(rows, is_there)), list(compress(results, is_there))
    texts, languages = [hit.content for hit in results], [row[-1] for row in rows]
    # All excerpts are made together when the first one is read.
    excerpts = cache(partial(excerpts_of, query, texts, languages, collection.keyword.analyzer_for))
    for number, (hit, row) in enumerate(zip(results, rows, strict=True)):
        at = StoredPlace.of(row[PLACE_COLUMN])
        show_when_read(hit, partial(_show, excerpts, number, texts[number], at, hit.line, hit.page))
    if postings is not None:
        shares = postings.coverage(np.array([row[-2] for row in rows], dtype=np.int64))
        for hit, share in zip(results, shares.tolist(), strict=True):
            hit.coverage = None if math.isnan(share) else share
    return {(row[0], row[1]): hit for row, hit in zip(rows, results, strict=True)}


async def _hit_rows(
    snapshot: Snapshot,
    names: Names,
    keys: Sequence[Key],
    columns: RowColumns | None,
    *,
    numbers: list[int] | None,
    has_places: bool,
    is_last: bool,
) -> list[Any]:
    text: sql.Composed | bytes
    values: dict[str, Any]
    if columns is None and numbers is not None:
        text, values = _numbered_hits(names, has_places=has_places), {"numbers": array_text(numbers)}
    elif columns is None:
        text, values = _plain_hits(names, has_places=has_places), key_arrays(keys)
    else:
        text, values = _hits(names, columns, has_places=has_places), key_arrays(keys)
    if size_seen.get() is not None and len(keys) > MEASURED_ROWS:
        return await _rows(cursor_with_times(snapshot.connection), text, values, len(keys))
    return await fetch(snapshot, Statement(text, values, large_columns=LARGE_COLUMNS), is_last=is_last)


def _show(  # noqa: PLR0917 - as `partial` binds them
    excerpts: Callable[[], list[Excerpt]], number: int, text: str, at: StoredPlace, line: int | None, page: int | None
) -> Shown:
    """Return a hit's excerpt, and the place in the file of the first matched word, else of the chunk's beginning."""
    excerpt, match = excerpts()[number]
    if match is None or not at.for_people(line, page):
        return Shown(excerpt, None, page, at.row, at.for_people(line, page))
    found = at.at(text[:match], line, page)
    match_line = found.line if page is None and at.row is None else None
    return Shown(excerpt, match_line, found.page, found.row, place_of(*found))


async def _rows(
    cursor: AsyncCursor[Any], statement: sql.Composed | bytes, values: dict[str, Any], most: int
) -> list[Any]:
    """Return the rows of a statement that selects `COLUMNS`, and report the size of the rows to `size_seen`."""
    seen = size_seen.get()
    is_measured = seen is not None and most > MEASURED_ROWS
    if seen is not None and is_measured:
        measured = sql.SQL(statement.decode()) if isinstance(statement, bytes) else statement
        await cursor.execute(SIZE.format(measured), values)
        seen(int((await cursor.fetchall())[0][0]))
    await cursor.execute(statement, values)
    if seen is None or is_measured:
        return await cursor.fetchall()
    first = await cursor.fetchmany(1)
    measure(cursor, LARGE_COLUMNS)
    return first + await cursor.fetchall()


def _stored(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return the fields of a `StoredChunk` from a row of `COLUMNS`."""
    # The metadata is JSON text.
    _, chunk_id, text, metadata, parent, created, updated, name, chapter, section, subsections, *rest = row
    start, end, line, page, place, children, begins, ends, source, *_, language = rest
    at = StoredPlace.of(place)
    return (
        *(text, metadata, chunk_id, parent, children, created, updated, language, begins, ends),
        source[0] if source else "",
        # The root of a row's source names the table, and hits have folders there.
        source[1] if source and at.table is None else "",
        name,
        tuple(title for title in (chapter, section, *subsections) if title),
        *(start, end, line, page, at.row, at.cell, at.sheet, at.table, at.row_key),
        at.for_people(line, page),
    )


def _chunk(row: Sequence[Any]) -> StoredChunk:
    content, metadata, *others = _stored(row)
    return StoredChunk(content, json.loads(metadata), *others)


async def fetch_documents(
    connection: Connection, collection: CollectionInfo, chunk_ids: Sequence[str]
) -> dict[str, StoredChunk]:
    """Return chunks by id; missing ones are left out."""
    statement = _plain_hits(collection.names, has_places=any(map(is_indexed, chunk_ids)))
    cursor = cursor_with_times(connection)
    rows = await _rows(cursor, statement, key_arrays(keys_of(chunk_ids)), len(chunk_ids))
    return {row[1]: _chunk(row) for row in rows}


async def fetch_vectors(
    connection: Connection, collection: CollectionInfo, chunk_ids: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of chunks by id, float32 of shape (d,); chunks without one are left out."""
    if collection.embedding is None:
        return {}
    cursor = connection.cursor(binary=True)
    await cursor.execute(vectors_by_key(collection), key_arrays(keys_of(chunk_ids)))
    rows = await cursor.fetchall()
    vectors = binary_vectors(rows, collection)
    return {row[2]: vector for row, vector in zip(rows, vectors, strict=True)}


async def list_chunks(
    connection: Connection, collection: CollectionInfo, condition: Filter, limit: int, after: str | None
) -> list[StoredChunk]:
    """Return chunks that pass a filter, in the order of their keys."""
    condition = await with_rows(connection, collection.names, condition)
    begin = sql.SQL("AND (c.document_id, c.chunk_id) > (%(document_id)s, %(chunk_id)s)")
    statement = sql.SQL(
        "SELECT {columns} FROM {chunk} AS c WHERE {condition} {begin} "
        "ORDER BY c.document_id, c.chunk_id LIMIT %(limit)s"
    ).format(
        columns=_columns(collection.names, has_places=True),
        chunk=collection.names.chunk,
        condition=condition.expression,
        begin=sql.SQL("") if after is None else begin,
    )
    values: dict[str, Any] = {**condition.parameters, "limit": limit}
    if after is not None:
        values |= {"document_id": UUID(bytes=chunk_keys([after])[0]), "chunk_id": after}
    cursor = cursor_with_times(connection)
    return [_chunk(row) for row in await _rows(cursor, statement, values, limit)]


async def documents_of(
    connection: Connection, collection: CollectionInfo, keys: Sequence[Key]
) -> dict[Key, DocumentKey]:
    """Return the document of each of these chunks; chunks that are gone are left out."""
    # An added chunk belongs to the document that it names as its ``source_document``; one that names none is a document
    # of its own.
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "SELECT c.document_id, c.chunk_id, c.source_document FROM {} JOIN {} AS c USING (document_id, chunk_id)"
        ).format(GIVEN_KEYS, collection.names.chunk),
        key_arrays(keys),
    )
    rows = await cursor.fetchall()
    indexed = set(indexed_keys(chunk_id for _, chunk_id, _ in rows))
    return {
        (document_id, chunk_id): document_id if (document_id, chunk_id) in indexed or not name else name
        for document_id, chunk_id, name in rows
    }


async def cut_contexts(connection: Connection, collection: CollectionInfo, keys: Sequence[Key]) -> dict[str, str]:
    """Return the contexts, without chunk descriptions, of those chunks that were split from a document, by chunk id."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "SELECT c.chunk_id, c.context, c.content_hash FROM {} JOIN {} AS c USING (document_id, chunk_id) "
            "WHERE c.char_start IS NOT NULL"
        ).format(GIVEN_KEYS, collection.names.chunk),
        key_arrays(keys),
    )
    return {chunk_id: without_line(context, found) for chunk_id, context, found in await cursor.fetchall()}


async def count_chunks(connection: Connection, collection: CollectionInfo, condition: Filter) -> int:
    """Return the number of chunks that pass a filter."""
    condition = await with_rows(connection, collection.names, condition)
    statement = sql.SQL("SELECT count(*) FROM {} AS c WHERE {}").format(collection.names.chunk, condition.expression)
    counted = await fetch_value(connection, statement, condition.parameters)
    return int(counted)
