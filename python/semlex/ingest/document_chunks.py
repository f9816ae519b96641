"""The chunks of a file: of its text as a whole, or record by record, with the page of each."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from semlex import _core
from semlex.errors import ValidationError
from semlex.ingest.loaders.base import LoadError
from semlex.ingest.loaders.registry import load, loader_named, loader_of
from semlex.models.tokenizer import counter_of_words
from semlex.parameters import UNICODE_WORDS
from semlex.types.chunks import ChunkSettings
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_METADATA_BYTES, Document, line_breaks
from semlex.validation import text_errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.ingest.loaders.base import FileBytes, LoadedDocument, Loader, LoadOptions, Record
    from semlex.ingest.loaders.extraction import MetadataExtraction
    from semlex.models.tokenizer import TokenCounter
    from semlex.store.write.sources import KnownDocument


# Another rule of cutting needs another number: documents of an older one can be cut anew.
RULES_VERSION = 2
UNKNOWN = -1  # tokens of a chunk that is not counted yet
DEFAULT_SETTINGS = ChunkSettings()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of a text.

    Attributes:
        chunk_no: Place among the chunks of its text, from 0.
        text: ``text[char_start:char_end]`` of the whole; begins and ends with a character that is not blank.
        heading_path: Titles above the chunk, outermost first; where it spans sections, the titles they have in common.
        char_start: Where it begins, in characters.
        char_end: Where it ends, in characters (exclusive).
        line: Line on which it begins, from 1.
        token_count: Tokens of ``text``, counted by itself.
        chunk_type: ``code`` when it is source code or lies inside one block of code, else ``text``.
        introduction: What announces the list, the table or the code of which this is a later piece: the paragraph
            before it, or the header of the table; "" where it is none.
    """

    chunk_no: int
    text: str
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int
    line: int
    token_count: int
    chunk_type: Literal["text", "code"] = "text"
    introduction: str = ""


@dataclass(frozen=True, slots=True)
class CutText:
    """The chunks of a text.

    Attributes:
        title: Its first heading of level 1, or None.
        chunks: In the order of the text.
    """

    title: str | None
    chunks: list[Chunk]


class Chunker:
    """Cuts texts into chunks.

    Args:
        counter: Counts the tokens.
    """

    def __init__(self, counter: TokenCounter, settings: ChunkSettings = DEFAULT_SETTINGS) -> None:
        settings.check()
        self._counter = counter
        self.settings = settings

    @property
    def version(self) -> int:
        """Number of the rules of cutting."""
        return RULES_VERSION

    def cut(self, text: str, structure: str = "markdown") -> CutText:
        """Cuts one text.

        Returns:
            Its title, and the chunks in the order of the text. Together they hold every character that is not blank;
            each has at most `chunk_tokens` tokens (a single character may have more) and at most 128 KiB.
        """
        if errors := text_errors("text", text, nul=True):
            raise ValidationError(errors)
        if not text or text.isspace():
            return CutText(None, [])
        title, chunks = self._split(text, self._offsets(text), self.settings.chunk_tokens, structure)
        chunks = self._counted(chunks)
        while any(chunk.token_count > self.settings.chunk_tokens for chunk in chunks):
            shorter = self._shortened(text, chunks)
            if shorter == chunks:
                break
            chunks = self._counted(shorter)
        numbered = (
            chunk if chunk.chunk_no == number else replace(chunk, chunk_no=number)
            for number, chunk in enumerate(chunks)
        )
        return CutText(title, list(numbered))

    def whole(self, text: str) -> Chunk:
        """A text as one chunk, however many tokens it has."""
        kept = text.strip()
        start = text.index(kept)
        counts = self._counter.count_tokens([kept]).tolist()
        return Chunk(0, kept, (), start, start + len(kept), 1 + line_breaks(text[:start]), counts[0])

    def _counted(self, chunks: list[Chunk]) -> list[Chunk]:
        """Fills in the counts that are not known, in one call."""
        unknown = [chunk.text for chunk in chunks if chunk.token_count == UNKNOWN]
        if not unknown:
            return chunks
        counts = iter(self._counter.count_tokens(unknown).tolist())
        return [replace(chunk, token_count=next(counts)) if chunk.token_count == UNKNOWN else chunk for chunk in chunks]

    def _shortened(self, text: str, chunks: list[Chunk]) -> list[Chunk]:
        """Chunks that are too long give up what they repeat; those that repeat nothing are cut.

        Texts get strictly shorter until every one fits or is a single character, so repeating this comes to an end.
        """
        shorter: list[Chunk] = []
        is_cut = False
        for chunk in chunks:
            too_long = chunk.token_count > self.settings.chunk_tokens
            own_start = shorter[-1].char_end if shorter else 0
            if own_start > chunk.char_start and (too_long or is_cut):
                shorter.append(_from(text, chunk, own_start))
                is_cut = False
                continue
            smaller = self._cut(chunk) if too_long else [chunk]
            is_cut = len(smaller) > 1
            shorter += smaller
        return shorter

    def _cut(self, chunk: Chunk) -> list[Chunk]:
        offsets = self._offsets(chunk.text)
        # Two thirds leave room for overlap and give two pieces of like size, where a full one would leave a crumb.
        bound = self.settings.chunk_tokens * 2 // 3
        smaller = self._split(chunk.text, offsets, bound, "plain")[1]
        # A counter may find fewer tokens in its offsets than it counts.
        while len(smaller) == 1 and bound > 1:
            bound //= 2
            smaller = self._split(chunk.text, offsets, bound, "plain")[1]
        if len(smaller) == 1:
            return [chunk]
        return [
            replace(
                piece,
                heading_path=chunk.heading_path,
                char_start=chunk.char_start + piece.char_start,
                char_end=chunk.char_start + piece.char_end,
                line=chunk.line + piece.line - 1,
                chunk_type=chunk.chunk_type,
                introduction=chunk.introduction,
            )
            for piece in smaller
        ]

    @cached_property
    def _counts_words(self) -> bool:
        # Not asked before a text is cut: a model's name for its tokens may have to be read from a file.
        return counter_of_words(self._counter.counter_name) is not None

    def _offsets(self, text: str) -> NDArray[np.int64] | None:
        """Where the tokens stand; words are found where the text is cut."""
        return None if self._counter.counter_name == UNICODE_WORDS else self._counter.token_offsets(text)

    def _split(
        self, text: str, offsets: NDArray[np.int64] | None, max_tokens: int, structure: str
    ) -> tuple[str | None, list[Chunk]]:
        found = _core.split_text(
            text,
            offsets,
            max_tokens=max_tokens,
            # A smaller bound takes its share of the others, which so keep their proportion.
            overlap_tokens=self.settings.overlap_tokens * max_tokens // self.settings.chunk_tokens,
            min_tokens=self.settings.min_tokens * max_tokens // self.settings.chunk_tokens,
            structure=structure,
            max_bytes=MAX_CHUNK_BYTES,
        )
        starts, ends = found.starts.tolist(), found.ends.tolist()
        # A model may make other tokens of a text by itself than inside another; of words that is known.
        counts = found.token_counts.tolist() if self._counts_words else None
        rows = zip(
            starts, ends, found.lines.tolist(), found.code.tolist(), found.headings, found.introductions, strict=True
        )
        return found.title, [
            Chunk(
                number,
                text[start:end],
                path,
                start,
                end,
                line,
                counts[number] if counts is not None and _stands_apart(text, start, end) else UNKNOWN,
                "code" if code else "text",
                before or "",
            )
            for number, (start, end, line, code, path, before) in enumerate(rows)
        ]


def _stands_apart(text: str, start: int, end: int) -> bool:
    """Whether a part has as many words by itself as inside the text: no word reaches over its ends.

    What follows a blank may belong to it (an accent, a joiner) unless it is a letter, a digit, or a mark of ASCII.
    """
    return (
        (start == 0 or text[start - 1].isspace())
        and (end == len(text) or text[end].isspace())
        and (text[start].isascii() or text[start].isalnum())
    )


def _from(text: str, chunk: Chunk, start: int) -> Chunk:
    """The chunk without what stands before `start`."""
    rest = text[start : chunk.char_end].lstrip()
    start = chunk.char_end - len(rest)
    line = chunk.line + line_breaks(text[chunk.char_start : start])
    return replace(chunk, text=rest, char_start=start, line=line, token_count=UNKNOWN)


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
