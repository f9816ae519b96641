"""Find documents by the names that people use (ids, paths, ends of paths, lines), and list them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.errors import ConfigurationError
from semlex.store.postgres.rows import cursor_with_times
from semlex.store.query.chunk_keys import keys_of
from semlex.store.query.filters import is_of_document
from semlex.store.query.leg import GIVEN_KEYS, Key, key_arrays
from semlex.store.write.sources import OF_TABLES, is_present, read_sources, unknown_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo
    from semlex.store.schema.names import Names


SHOWN = 5
# Entries of the log that are read, newest first.
LOG_ENTRIES = 1_000
# Paths of which the one most like an unknown name is chosen.
LISTED_PATHS = 5_000
_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class KnownSource:
    """A source of documents, such as a folder, that the collection has or had."""

    name: str
    root: str  # absolute
    is_present: bool  # False if it was removed


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """The document, or part of one, that a name given by a user means, with the keys of the chunks."""

    name: str  # source and path as lists of documents show them, or an id
    keys: tuple[Key, ...]  # of its chunks, or of those that the name means
    notes: tuple[str, ...] = ()  # about the choice, for users


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """What the log says about a run; it may explain why a document is missing."""

    command: str
    where: str  # what was read or deleted
    started_at: datetime
    deleted: int  # documents of which nothing was left
    problems: dict[str, str]  # path -> code of the files that could not be read


@dataclass(frozen=True, slots=True)
class Records:
    """Recent runs and paths of documents, to explain why a document was not found."""

    runs: tuple[LoggedRun, ...]  # the newest first
    paths: tuple[str, ...]  # of documents, to suggest one similar to an unknown name


async def read_known_sources(connection: Connection, names: Names) -> list[KnownSource]:
    """Return all sources of files, removed ones too, ordered by name."""
    statement = sql.SQL("SELECT s.name, s.root, {} FROM {} AS s WHERE s.kind <> ALL(%s) ORDER BY s.name, s.source_id")
    cursor = await connection.cursor(binary=True).execute(
        statement.format(is_present(names), names.source), [list(OF_TABLES)]
    )
    return [KnownSource(*row) for row in await cursor.fetchall()]


async def find_named(
    connection: Connection, names: Names, name: str, places: Sequence[tuple[str, str]]
) -> NamedDocument | None:
    """Find what a name means: an id, a path, a path on disk, an added document, or the end of exactly one path."""
    found = await _chunks_with_id(connection, names, name)
    if found is not None:
        return found
    with_line = _LINE.fullmatch(name)
    for base, line in ((name, None), *([(with_line[1], int(with_line[2]))] if with_line else [])):
        document = await _document(connection, names, base, places)
        if document is not None:
            return await _chunks_of(connection, names, *document, line)
        added = await _added(connection, names, base)
        if added:
            return NamedDocument(base, tuple(added))
    return None


def without_line(name: str) -> str:
    """Return a name without the line number at its end."""
    found = _LINE.fullmatch(name)
    return found[1] if found else name


async def _chunks_with_id(connection: Connection, names: Names, name: str) -> NamedDocument | None:
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL("SELECT c.document_id, c.chunk_id FROM {} JOIN {} AS c USING (document_id, chunk_id)").format(
            GIVEN_KEYS, names.chunk
        ),
        key_arrays(keys_of([name])),
    )
    keys = await cursor.fetchall()
    return NamedDocument(name, tuple(keys)) if keys else None


async def _document(
    connection: Connection, names: Names, name: str, places: Sequence[tuple[str, str]]
) -> tuple[str, UUID] | None:
    """Find a document by path, by its place on disk, or by the end of its path; return the document's name and key."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "SELECT d.document_id, s.name, d.uri FROM {} AS d JOIN {} AS s USING (source_id) "
            "WHERE d.uri = ANY(%(uris)s::text[]) OR right(d.uri, length(%(name)s) + 1) = '/' || %(name)s "
            'ORDER BY s.name COLLATE "C", d.uri COLLATE "C"'
        ).format(names.document, names.source),
        {"uris": [name, *(uri for _, uri in places)], "name": name},
    )
    rows = await cursor.fetchall()
    meant = [
        [row for row in rows if row[2] == name],
        [row for row in rows if (row[1], row[2]) in places],
        [row for row in rows if row[2].endswith(f"/{name}")],
    ]
    chosen = next(filter(None, meant), [])
    if len(chosen) > 1:
        shown = ", ".join(f"{source}: {uri}" for _, source, uri in chosen[:SHOWN])
        more = f" and {len(chosen) - SHOWN:,} more" if len(chosen) > SHOWN else ""
        raise ConfigurationError(
            f"several documents match {name!r}: give the whole name of one of them ({shown}{more})"
        )
    return (f"{chosen[0][1]}: {chosen[0][2]}", chosen[0][0]) if chosen else None


async def _chunks_of(
    connection: Connection, names: Names, name: str, document: UUID, line: int | None
) -> NamedDocument:
    """Return the chunks of a document; with a line (or page, row, cell), only those that contain it."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "SELECT c.document_id, c.chunk_id, coalesce(CASE "
            "WHEN c.place ? 'row' AND c.line IS NOT NULL THEN %(line)s::int = c.line "
            "WHEN c.line IS NOT NULL THEN %(line)s::int BETWEEN c.line AND "
            "c.line + length(c.chunk_text) - length(replace(c.chunk_text, chr(10), '')) "
            "ELSE %(line)s::int BETWEEN first.number AND first.number + jsonb_array_length("
            "coalesce(c.place->'breaks', '[]')) END, FALSE) "
            "FROM {} AS c, LATERAL (SELECT coalesce(c.page, (c.place->>'row')::int, (c.place->>'cell')::int)) "
            "AS first (number) WHERE c.document_id = %(document)s ORDER BY c.chunk_no, c.chunk_id"
        ).format(names.chunk),
        {"line": line, "document": document},
    )
    rows = await cursor.fetchall()
    if line is None:
        return NamedDocument(name, tuple((row[0], row[1]) for row in rows))
    held = tuple((row[0], row[1]) for row in rows if row[2])
    if held:
        return NamedDocument(f"{name}:{line}", held)
    note = f"no chunk contains line, page or row {line}: the whole document was examined"
    return NamedDocument(name, tuple((row[0], row[1]) for row in rows), (note,))


async def _added(connection: Connection, names: Names, name: str) -> list[Key]:
    """Return the keys of chunks that were added under a name."""
    cursor = await connection.cursor(binary=True).execute(
        sql.SQL(
            "SELECT c.document_id, c.chunk_id FROM {} AS c WHERE {} AND c.source_document <> '' "
            "AND NOT EXISTS (SELECT FROM {} AS d WHERE d.document_id = c.document_id) "
            "ORDER BY c.document_id, c.chunk_id"
        ).format(names.chunk, is_of_document(sql.SQL("%(name)s::text")), names.document),
        {"name": name},
    )
    return await cursor.fetchall()


async def read_records(connection: Connection, names: Names) -> Records:
    """Read recent runs and paths of documents."""
    cursor = await cursor_with_times(connection).execute(
        sql.SQL(
            "SELECT command, source_uri, started_at, deleted, problems FROM {} ORDER BY started_at DESC LIMIT %s"
        ).format(names.ingestion_log),
        [LOG_ENTRIES],
    )
    runs = [
        LoggedRun(
            command, where, started, deleted, {problem["source_document"]: problem["code"] for problem in problems}
        )
        for command, where, started, deleted, problems in await cursor.fetchall()
    ]
    await cursor.execute(sql.SQL("SELECT uri FROM {} LIMIT %s").format(names.document), [LISTED_PATHS])
    return Records(tuple(runs), tuple(uri for (uri,) in await cursor.fetchall()))


# A document as lists name it. Pages are in this order, so that the next page begins after the last name.
NAME = sql.SQL("(s.name || ': ' || d.uri) COLLATE \"C\"")


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that was read from a file or from a row of a followed table."""

    source: str
    root: str  # the source's folder
    uri: str  # path below it
    chunks: int  # how many
    written_at: datetime  # when it was written or moved, in UTC
    encoding: str | None  # the guessed encoding
    size_bytes: int
    modified_at: datetime  # of the file, in UTC
    content_hash: bytes  # of its bytes
    file_state: str | None
    is_row: bool


async def list_documents(
    connection: Connection,
    collection: CollectionInfo,
    source: str | None,
    *,
    limit: int | None = None,
    after: str | None = None,
) -> list[ListedDocument]:
    """Return the documents of a source or of all, by source and path."""
    if source is not None:
        known = await read_sources(connection, collection, tables=True)
        if source not in {one.name for one in known}:
            raise unknown_source(source, known)
    names = collection.names
    cursor = await cursor_with_times(connection).execute(
        sql.SQL(
            "SELECT s.name, s.root, d.uri, d.chunk_count, d.updated_at, d.encoding, d.size_bytes, d.modified_at, "
            "d.content_hash, d.file_state, s.kind = ANY(%(tables)s) "
            "FROM {document} AS d JOIN {source} AS s USING (source_id) "
            "WHERE {present} AND (%(source)s::text IS NULL OR s.name = %(source)s) "
            "AND (%(after)s::text IS NULL OR {name} > %(after)s) ORDER BY {name} LIMIT %(limit)s"
        ).format(document=names.document, source=names.source, present=is_present(names), name=NAME),
        {"source": source, "limit": limit, "after": after, "tables": list(OF_TABLES)},
    )
    return [ListedDocument(*row) for row in await cursor.fetchall()]
