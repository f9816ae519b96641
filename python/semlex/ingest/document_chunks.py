"""The chunks of a file: of its text as a whole, or record by record, with the page of each."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.registry import load, loader_named, loader_of
from semlex.types.documents import MAX_METADATA_BYTES, Document, line_breaks

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping, Sequence

    from semlex.ingest.chunking import Chunk, Chunker
    from semlex.ingest.loaders.base import FileBytes, LoadedDocument, Loader, LoadOptions, Record
    from semlex.ingest.loaders.extraction import MetadataExtraction
    from semlex.store.write.sources import KnownDocument

MAX_TITLE_CHARACTERS = 500
# Every chunk has all metadata of its text and its record: a small file of many chunks could fill a disk with copies.
MAX_COPIED_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class DocumentChunk:
    """A chunk, and what its document says of it.

    Attributes:
        chunk: The chunk; its place is that in the whole text.
        metadata: JSON values; chunks of one text or record share them.
        summary: A short description; mostly empty.
        page: Number of the page on which it begins, from 1; None where there are no pages.
        parent: Number of the last chunk before it that stands right under a heading above it; None where there is none.
    """

    chunk: Chunk
    metadata: Mapping[str, Any]
    summary: str = ""
    page: int | None = None
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of a run are read and cut.

    Attributes:
        chunker: Cuts texts.
        loaders: By suffix.
        options: Of the loaders.
        with_context: Whether titles and heading path are part of what is analysed and embedded.
        extraction: Reads metadata out of texts, or None.
        loop: Where that waits, if it does.
    """

    chunker: Chunker
    loaders: Mapping[str, Loader]
    options: LoadOptions
    with_context: bool = True
    extraction: MetadataExtraction | None = None
    loop: AbstractEventLoop | None = None

    def is_outdated(self, known: KnownDocument) -> bool:
        """Whether a document that was read before would be read or cut in another way today."""
        loader, chunker = loader_named(known.uri, self.loaders), self.chunker
        today = (loader.version, chunker.version, chunker.settings)
        return today != (known.loader_version, known.chunker_version, known.chunk_settings)

    def as_read(self, known: KnownDocument) -> Reading:
        """The same with the options by which a document was read before."""
        options = replace(self.options, **known.fields, detect_encoding=known.encoding is not None)
        return replace(self, options=options)

    def fields_for(self, uri: str) -> dict[str, Any]:
        """By which fields the rows of such a file are read: the options' names and values, where any are given."""
        if not getattr(loader_named(uri, self.loaders), "reads_fields", False):
            return {}
        options = self.options
        given = {"text_fields": list(options.text_fields), "id_field": options.id_field}
        return {name: value for name, value in given.items() if value}


@dataclass(frozen=True, slots=True)
class CutFile:
    """A file, read and cut.

    Attributes:
        loader: What has read it.
        loaded: Its text.
        title: The one it brings, else its first heading of level 1, else "".
        chunks: In the order of the text.
    """

    loader: Loader
    loaded: LoadedDocument
    title: str
    chunks: Sequence[DocumentChunk]

    @property
    def format(self) -> str:
        """Name of its format."""
        return self.loaded.format or self.loader.name


def cut_file(file: FileBytes, reading: Reading) -> CutFile:
    """Makes chunks of the bytes of a file."""
    loader = loader_of(file, reading.loaders)
    loaded = load(file, loader, reading.options)
    extraction = reading.extraction
    if extraction is not None and extraction.per == "document":
        metadata = extraction.merged(Document(loaded.text, dict(loaded.metadata), file.uri), reading.loop)
        loaded = replace(loaded, metadata=metadata)
    title, chunks = _cut(loaded, reading.chunker)
    if extraction is not None and extraction.per == "chunk":
        chunks = _with_metadata(chunks, file.uri, extraction, reading.loop)
    return CutFile(loader, loaded, (title or "")[:MAX_TITLE_CHARACTERS], chunks)


def _with_metadata(
    chunks: Sequence[DocumentChunk], uri: str, extraction: MetadataExtraction, loop: AbstractEventLoop | None
) -> list[DocumentChunk]:
    """The chunks with what is read out of each."""
    made, size = [], 0
    for one in chunks:
        metadata = extraction.merged(Document(one.chunk.text, dict(one.metadata), uri), loop)
        size += _json_bytes(metadata)
        _check_copies(size)
        made.append(replace(one, metadata=metadata))
    return made


def _cut(loaded: LoadedDocument, chunker: Chunker) -> tuple[str | None, list[DocumentChunk]]:
    if not loaded.records:
        cut = chunker.cut(loaded.text, loaded.structure)
        _check_copies(_json_bytes(loaded.metadata) * len(cut.chunks))
        chunks = [DocumentChunk(chunk, loaded.metadata) for chunk in cut.chunks]
        return loaded.title or cut.title, _placed(chunks, loaded)
    chunks = []
    line, counted = 1, 0
    own_bytes, copied = _json_bytes(loaded.metadata), 0
    for record in loaded.records:
        line, counted = line + line_breaks(loaded.text[counted : record.start]), record.start
        found = _record_chunks(loaded, record, chunker)
        # Most records are one chunk of a text without metadata: nothing is copied.
        record_bytes = _json_bytes(record.metadata) if own_bytes or len(found) > 1 else 0
        if own_bytes + record_bytes > MAX_METADATA_BYTES:
            message = f"a record on line {line} has {own_bytes + record_bytes} bytes of metadata with that of the file"
            raise LoadError("metadata_too_large", f"{message}; the limit is {MAX_METADATA_BYTES}: shorten it")
        copied += (own_bytes + record_bytes) * len(found)
        _check_copies(copied)
        shared = {**loaded.metadata, **record.metadata} if own_bytes else record.metadata
        for chunk in found:
            moved = replace(
                chunk,
                chunk_no=len(chunks),
                char_start=chunk.char_start + record.start,
                char_end=chunk.char_end + record.start,
                line=chunk.line + line - 1,
                heading_path=(*record.titles, *chunk.heading_path),
            )
            chunks.append(DocumentChunk(moved, shared, record.summary))
    return loaded.title, _placed(chunks, loaded)


def _json_bytes(metadata: Mapping[str, Any]) -> int:
    return len(_core.to_json(metadata)) if metadata else 0


def _check_copies(size: int) -> None:
    if size > MAX_COPIED_BYTES:
        message = f"its chunks would have {size} bytes of metadata together, the limit is {MAX_COPIED_BYTES}"
        raise LoadError("metadata_too_large", f"{message}: shorten what stands beside long texts, or split the file")


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
        is_placed = page is None and parent is None
        placed.append(one if is_placed else DocumentChunk(one.chunk, one.metadata, one.summary, page, parent))
    return placed
