"""Sections of documents: the chunks that stand under one heading, as the table knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.query.leg import Statement
from semlex.store.query.run import fetch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key
    from semlex.store.schema.collection import CollectionInfo

_PATH = sql.SQL("c.chapter_title, c.section_title, c.subsection_title")
_HAS_HEADING = sql.SQL("(c.chapter_title <> '' OR c.section_title <> '' OR cardinality(c.subsection_title) > 0)")
# Chunks of one file have its key. Added ones, each a document by itself, are joined by the name that they give theirs.
_FILE = sql.SQL(
    "CASE WHEN c.char_start IS NULL AND (c.source_document <> '' OR NOT {has_heading}) THEN NULL ELSE c.document_id END"
).format(has_heading=_HAS_HEADING)
_SECTIONS = sql.SQL(
    "SELECT coalesce(s.name, ''), g.name, g.chapter_title, g.section_title, g.subsection_title, g.documents, g.chunks "
    "FROM (SELECT {file} AS file, c.source_document AS name, {path}, count(*) AS chunks, "
    "array_agg(DISTINCT c.document_id) FILTER (WHERE {has_heading}) AS documents "
    "FROM {chunk} AS c GROUP BY {file}, c.source_document, {path}) AS g "
    "LEFT JOIN {document} AS d ON d.document_id = g.file LEFT JOIN {source} AS s ON s.source_id = d.source_id"
)
_CHUNKS = sql.SQL(
    "SELECT c.document_id, c.chunk_id, c.source_document, c.language, c.context, c.chunk_text, {path} "
    "FROM {chunk} AS c WHERE c.document_id = ANY(%(documents)s::uuid[]) ORDER BY c.document_id, c.chunk_no, c.chunk_id"
)


@dataclass(frozen=True, slots=True)
class SectionRow:
    """Chunks of one document that have the same headings above them.

    Attributes:
        source: Name of the source; "" for what was added.
        document: Name of the document; "" where added chunks name none.
        path: The headings, outermost first; empty for chunks without one.
        documents: Keys of their documents: one for a file, one a chunk for what was added; empty without a heading.
        chunks: How many they are.
    """

    source: str
    document: str
    path: tuple[str, ...]
    documents: tuple[UUID, ...]
    chunks: int


@dataclass(frozen=True, slots=True)
class SectionChunk:
    """A chunk with what is analysed and embedded of it.

    Attributes:
        key: Its key.
        document: Name of its document.
        language: Its own, or None for the collection's.
        context: What stands above it.
        text: Its text.
        path: Its headings.
    """

    key: Key
    document: str
    language: str | None
    context: str
    text: str
    path: tuple[str, ...]


async def read_sections(snapshot: Snapshot, collection: CollectionInfo) -> list[SectionRow]:
    """All sections of a collection, in no order. The table is read once; the answer has a row a section."""
    names = collection.names
    parts = {"file": _FILE, "path": _PATH, "has_heading": _HAS_HEADING}
    text = _SECTIONS.format(**parts, chunk=names.chunk, document=names.document, source=names.source)
    rows = await fetch(snapshot, Statement(text, {}))
    return [
        SectionRow(source, name, titles((chapter, section, *rest)), tuple(documents or ()), chunks)
        for source, name, chapter, section, rest, documents, chunks in rows
    ]


async def read_section_chunks(
    snapshot: Snapshot, collection: CollectionInfo, documents: Sequence[UUID]
) -> list[SectionChunk]:
    """All chunks of documents, in the order of each."""
    text = _CHUNKS.format(path=_PATH, chunk=collection.names.chunk)
    rows = await fetch(snapshot, Statement(text, {"documents": list(documents)}))
    return [
        SectionChunk((key, chunk_id), name, language, context, content, titles((chapter, section, *rest)))
        for key, chunk_id, name, language, context, content, chapter, section, rest in rows
    ]


def titles(path: Sequence[str]) -> tuple[str, ...]:
    """A path without the levels that have no title."""
    return tuple(title for title in path if title)
