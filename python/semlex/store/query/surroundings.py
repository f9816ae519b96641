"""Read chunks by their place in a document: the neighbours and the section of a hit, with vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from psycopg import sql

from semlex.store.descriptions import without_line
from semlex.store.query.chunk_keys import indexed_keys
from semlex.store.query.leg import Key, Statement, key_arrays
from semlex.store.query.run import fetch, fetch_all
from semlex.store.query.score_calibration import binary_vectors, vectors_by_key
from semlex.types.documents import NOWHERE, StoredPlace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.schema.collection import CollectionInfo


# How far a section can reach is tightened by how many hits are that near: a run of chunks of which a share are hits is
# no longer than these divided by the share. Nothing is ordered: the document's chunks are found by the key, and those
# near a hit are kept.
NEAR = sql.SQL(
    "WITH hit AS (SELECT c.document_id, c.chunk_no, k.beside, k.section FROM "
    "unnest(%(document_ids)s::uuid[], %(chunk_ids)s::text[], %(beside)s::int[], %(sections)s::int[]) "
    "AS k(document_id, chunk_id, beside, section) JOIN {chunk} AS c USING (document_id, chunk_id)), "
    "near AS (SELECT h.document_id, h.chunk_no, "
    "greatest(h.beside, least(h.section, floor(count(*) / %(share)s::float8)::int)) AS reach "
    "FROM hit AS h JOIN hit AS o ON o.document_id = h.document_id AND abs(o.chunk_no - h.chunk_no) <= h.section "
    "GROUP BY h.document_id, h.chunk_no, h.beside, h.section) "
    "SELECT c.document_id, c.chunk_id, c.chunk_no, c.chunk_text, c.source_document, {title}, "
    "c.chapter_title, c.section_title, c.subsection_title, c.context, c.content_hash, "
    "c.char_start, c.char_end, c.line, c.page, c.place "
    "FROM {chunk} AS c WHERE c.document_id = ANY(%(documents)s::uuid[]) AND (c.document_id, c.chunk_no) IN "
    "(SELECT n.document_id, generate_series(n.chunk_no - n.reach, n.chunk_no + n.reach) FROM near AS n)"
)
TITLE = sql.SQL("(SELECT d.title FROM {document} AS d WHERE d.document_id = c.document_id)")


class Reach(NamedTuple):
    """How many chunks to read around a chunk."""

    beside: int = 0  # this many chunks before and after it
    # Up to this many before and after it, if a sufficient share of the chunks there is wanted, too.
    section: int = 0


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk with its place in its document."""

    key: Key  # its document's key, and its id
    number: int  # among the chunks of its document, from 0
    text: str
    # Path of its document below the source's folder, or the name that an added one was given; may be "".
    name: str = ""
    # Title of its document, and those above the chunk, outermost first.
    titles: tuple[str, ...] = ()
    char_start: int | None = None  # in characters of its document; None for added documents
    char_end: int | None = None  # exclusive
    line: int | None = None  # line and page count from 1
    page: int | None = None
    place: StoredPlace = NOWHERE
    is_whole: bool = True  # whether `text` is all of it
    # What announces the list, table or code of which it is a later piece; else "".
    introduction: str = ""

    @property
    def document(self) -> UUID:
        """The key of the chunk's document; an added chunk is a document of one chunk."""
        return self.key[0]

    @property
    def is_slice(self) -> bool:
        """Whether the text is exactly a part of the document's text, and not a text stored in place of that part."""
        if self.char_start is None or self.char_end is None:
            return False
        return self.char_end - self.char_start == len(self.text)


async def read_surroundings(
    snapshot: Snapshot,
    collection: CollectionInfo,
    wanted: Mapping[Key, Reach],
    *,
    share: float = 1.0,
    with_vectors: Sequence[Key] = (),
) -> tuple[list[PlacedChunk], dict[Key, NDArray[np.float32]]]:
    """Read the `wanted` chunks and those around them, in no order, and vectors of `with_vectors`, in one round trip."""
    # `share` is the minimum share of a section that must be wanted for `Reach.section`, above 0, up to 1. Chunks
    # without a vector have none in the answer; a vector has the shape (d,).
    title: sql.Composable = sql.SQL("''")
    keys = list(wanted)
    if indexed_keys([chunk_id for _, chunk_id in keys]):
        title = TITLE.format(document=collection.names.document)
    near = NEAR.format(chunk=collection.names.chunk, title=title)
    reaches = {
        "documents": list({document: None for document, _ in keys}),
        "beside": [reach.beside for reach in wanted.values()],
        "sections": [reach.section for reach in wanted.values()],
    }
    statements = [Statement(near, {**key_arrays(keys), **reaches, "share": share})]
    if with_vectors and collection.embedding is not None:
        statements.append(Statement(vectors_by_key(collection), key_arrays(with_vectors)))
    found, *rest = await fetch_all(snapshot, statements)
    chunks = [_placed(row) for row in found]
    if not rest:
        return chunks, {}
    vectors = binary_vectors(rest[0], collection)
    return chunks, {(row[1], row[2]): vector for row, vector in zip(rest[0], vectors, strict=True)}


def _placed(row: Sequence[Any]) -> PlacedChunk:
    document, chunk_id, number, text, name, title, chapter, section, subsections, *rest = row
    context, text_hash, start, end, line, page, place = rest
    path = titles((chapter, section, *subsections))
    own = path if not title or path[:1] == (title,) else (title, *path)
    # The context below the titles, which take one line if there are any.
    context = without_line(context, text_hash)
    introduction = "" if start is None else context.partition("\n")[2] if own else context
    key = (document, chunk_id)
    where = StoredPlace.of(place)
    return PlacedChunk(key, number, text, name, own, start, end, line, page, where, introduction=introduction)


_PATH = sql.SQL("c.chapter_title, c.section_title, c.subsection_title")
_HAS_HEADING = sql.SQL("(c.chapter_title <> '' OR c.section_title <> '' OR cardinality(c.subsection_title) > 0)")
# Chunks of one file have its key. Added ones, each a document of its own, are joined by the name that they give theirs.
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
    """A section: the chunks of one document under the same headings, counted."""

    source: str  # "" for added documents
    document: str  # "" if added chunks name none
    path: tuple[str, ...]  # the headings, outermost first; empty for chunks without one
    # Keys: one for a file, one a chunk for added documents; empty without a heading.
    documents: tuple[UUID, ...]
    chunks: int  # how many


@dataclass(frozen=True, slots=True)
class SectionChunk:
    """A chunk of a section, with the context and text that are analysed and embedded."""

    key: Key
    document: str  # its name
    language: str | None  # None: the collection's
    context: str
    text: str
    path: tuple[str, ...]  # its headings


async def read_sections(snapshot: Snapshot, collection: CollectionInfo) -> list[SectionRow]:
    """Return all sections of a collection, in no order. The table is read once; the result has one row per section."""
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
    """Return all chunks of these documents, by document and in the order of the text."""
    text = _CHUNKS.format(path=_PATH, chunk=collection.names.chunk)
    rows = await fetch(snapshot, Statement(text, {"documents": list(documents)}))
    return [
        SectionChunk((key, chunk_id), name, language, context, content, titles((chapter, section, *rest)))
        for key, chunk_id, name, language, context, content, chapter, section, rest in rows
    ]


def titles(path: Sequence[str]) -> tuple[str, ...]:
    """Return a heading path without the levels that have no title."""
    return tuple(title for title in path if title)
