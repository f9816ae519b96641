"""The chunks of a loaded document: as a whole, or record by record, with the page of each."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.ingest.chunking import Chunk, Chunker
    from semlex.ingest.loaders.base import LoadedDocument, Record


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A chunk, and what its document says of it.

    Attributes:
        chunk: The chunk; its place is that in the whole text.
        metadata: JSON values.
        summary: A short description; mostly empty.
        page: Number of the page on which it begins, from 1; None where there are no pages.
        parent: Number of the last chunk before it that stands right under a heading above it; None where there is none.
    """

    chunk: Chunk
    metadata: Mapping[str, Any]
    summary: str = ""
    page: int | None = None
    parent: int | None = None


def cut_document(loaded: LoadedDocument, chunker: Chunker) -> tuple[str | None, list[DocumentChunk]]:
    """Cuts a document.

    Returns:
        title: The one it brings, else its first heading of level 1, else None.
        chunks: In the order of the text.
    """
    if not loaded.records:
        cut = chunker.cut(loaded.text, loaded.structure)
        chunks = [DocumentChunk(chunk, loaded.metadata) for chunk in cut.chunks]
        return loaded.title or cut.title, _placed(chunks, loaded)
    chunks = []
    line, counted = 1, 0
    for record in loaded.records:
        line, counted = line + _line_breaks(loaded.text, counted, record.start), record.start
        for chunk in _record_chunks(loaded, record, chunker):
            moved = replace(
                chunk,
                chunk_no=len(chunks),
                char_start=chunk.char_start + record.start,
                char_end=chunk.char_end + record.start,
                line=chunk.line + line - 1,
                heading_path=(*record.titles, *chunk.heading_path),
            )
            chunks.append(DocumentChunk(moved, {**loaded.metadata, **record.metadata}, record.summary))
    return loaded.title, _placed(chunks, loaded)


def _record_chunks(loaded: LoadedDocument, record: Record, chunker: Chunker) -> list[Chunk]:
    text = loaded.text[record.start : record.end]
    if record.is_chunk and text.strip():
        return [chunker.whole(text)]
    return chunker.cut(text, record.structure or loaded.structure).chunks


def _placed(chunks: list[DocumentChunk], loaded: LoadedDocument) -> list[DocumentChunk]:
    """The same with pages and parents."""
    placed = []
    above: list[tuple[tuple[str, ...], int]] = []
    for number, one in enumerate(chunks):
        path = one.chunk.heading_path
        while above and not (len(above[-1][0]) < len(path) and path[: len(above[-1][0])] == above[-1][0]):
            above.pop()
        parent = above[-1][1] if above else None
        above.append((path, number))
        page = bisect_right(loaded.pages, one.chunk.char_start) if loaded.pages else None
        if page is not None or parent is not None:
            one = DocumentChunk(one.chunk, one.metadata, one.summary, page, parent)  # noqa: PLW2901
        placed.append(one)
    return placed


def _line_breaks(text: str, start: int, end: int) -> int:
    part = text[start:end]
    return part.count("\n") + part.count("\r") - part.count("\r\n")
