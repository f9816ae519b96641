"""Split the text of a file into chunks: along its sections first, then into pieces of bounded size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from semlex import _core
from semlex.errors import ValidationError
from semlex.ingest.loaders.base import LoadError, extracted_metadata
from semlex.ingest.loaders.registry import load, loader_named, loader_of
from semlex.models.tokenizer import TokenCounter, counter_of_words
from semlex.options.collection import UNICODE_WORDS, ChunkSettings
from semlex.types.documents import MAX_CHUNK_BYTES, MAX_METADATA_BYTES, Document, StoredPlace, line_breaks
from semlex.validation import text_errors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.ingest.loaders.base import FileBytes, LoadedDocument, Loader, LoadOptions, MetadataExtraction, Record
    from semlex.store.write.sources import KnownDocument


# Increase it with every change of the rules: documents of older ones can be cut again.
RULES_VERSION = 2
UNKNOWN = -1  # tokens of a chunk that is not counted yet
DEFAULT_SETTINGS = ChunkSettings()


_NO_METADATA: Mapping[str, Any] = {}  # shared: every further object is one that the garbage collector visits


@dataclass(slots=True)
class Chunk:
    """A slice of a text, and the data stored with it; `chunk_no` counts from 0, `line` from 1."""

    chunk_no: int
    text: str
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int  # exclusive
    line: int | None
    token_count: int
    chunk_type: Literal["text", "code"] = "text"
    introduction: str = ""
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NO_METADATA)
    summary: str = ""
    page: int | None = None
    place: dict[str, Any] | None = None  # a `StoredPlace` as it is stored
    parent: int | None = None  # a chunk_no


class CutText(NamedTuple):
    """The first heading of level 1 of a text, and the chunks that it was split into."""

    title: str | None
    chunks: list[Chunk]


class Chunker:
    """Splits texts into chunks."""

    def __init__(self, counter: TokenCounter, settings: ChunkSettings = DEFAULT_SETTINGS) -> None:
        settings.check()
        self._counter = counter
        self.settings = settings

    def cut(self, text: str, structure: str = "markdown") -> CutText:
        """Split one text into chunks."""
        if errors := text_errors("text", text, nul=True):
            raise ValidationError(errors)
        if not text or text.isspace():
            return CutText(None, [])
        title, chunks = self._split(text, self._offsets(text), self.settings.chunk_tokens, structure)
        self._count(chunks)
        while any(chunk.token_count > self.settings.chunk_tokens for chunk in chunks):
            shorter = self._shortened(text, chunks)
            if shorter == chunks:
                break
            chunks = shorter
            self._count(chunks)
        for number, chunk in enumerate(chunks):
            chunk.chunk_no = number
        return CutText(title, chunks)

    def whole(self, text: str) -> Chunk:
        """Return a text as one chunk, however long it is."""
        kept = text.strip()
        start = text.index(kept)
        return Chunk(0, kept, (), start, start + len(kept), 1 + line_breaks(text[:start]), self.counts([kept])[0])

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        counts: list[int] = self._counter.count_tokens(texts).tolist()
        return counts

    # A chunk counted alone may have a few more tokens than inside the text, by which the Rust core cuts. So finished
    # chunks are counted; those above the bound lose their overlap, and are cut if needed.
    def _count(self, chunks: list[Chunk]) -> None:
        """Count the tokens of all chunks whose token count is unknown, in one call."""
        unknown = [chunk for chunk in chunks if chunk.token_count == UNKNOWN]
        if unknown:
            for chunk, count in zip(unknown, self.counts([chunk.text for chunk in unknown]), strict=True):
                chunk.token_count = count

    def _shortened(self, text: str, chunks: list[Chunk]) -> list[Chunk]:
        """Shorten chunks that are too long: remove their overlap, or split those that have none."""
        # Texts get strictly shorter until every one fits or is a single character, so repeating this ends.
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
        # Two thirds leave room for overlap and give two similar pieces; the full bound would leave a crumb.
        bound = self.settings.chunk_tokens * 2 // 3
        smaller = self._split(chunk.text, offsets, bound, "plain")[1]
        # A counter may find fewer tokens in its offsets than it counts.
        while len(smaller) == 1 and bound > 1:
            bound //= 2
            smaller = self._split(chunk.text, offsets, bound, "plain")[1]
        if len(smaller) == 1:
            return [chunk]
        for piece in smaller:
            piece.heading_path, piece.chunk_type = chunk.heading_path, chunk.chunk_type
            piece.introduction = chunk.introduction
            piece.line = line_at(chunk.line, chunk.text[: piece.char_start])
            piece.char_start += chunk.char_start
            piece.char_end += chunk.char_start
        return smaller

    @cached_property
    def _counts_words(self) -> bool:
        # Late, because the name of a model's tokens may have to be read from a file.
        return counter_of_words(self._counter.counter_name) is not None

    def _offsets(self, text: str) -> NDArray[np.int64] | None:
        """Return the offsets of the tokens; None for Unicode words, because `split_text` finds these itself."""
        return None if self._counter.counter_name == UNICODE_WORDS else self._counter.token_offsets(text)

    def _split(
        self, text: str, offsets: NDArray[np.int64] | None, max_tokens: int, structure: str
    ) -> tuple[str | None, list[Chunk]]:
        found = _core.split_text(
            text,
            offsets,
            max_tokens=max_tokens,
            # The other numbers shrink in proportion.
            overlap_tokens=self.settings.overlap_tokens * max_tokens // self.settings.chunk_tokens,
            min_tokens=self.settings.min_tokens * max_tokens // self.settings.chunk_tokens,
            structure=structure,
            max_bytes=MAX_CHUNK_BYTES,
        )
        starts, ends = found.starts.tolist(), found.ends.tolist()
        # A model may tokenise a text differently alone than inside another; words are known to be the same.
        counts = found.token_counts.tolist() if self._counts_words else None
        lines, code = found.lines.tolist(), found.code.tolist()
        rows = zip(starts, ends, lines, code, found.headings, found.introductions, strict=True)
        return found.title, [
            Chunk(
                number,
                text[start:end],
                path,
                start,
                end,
                line,
                counts[number] if counts is not None and _stands_apart(text, start, end) else UNKNOWN,
                "code" if is_code else "text",
                before or "",
            )
            for number, (start, end, line, is_code, path, before) in enumerate(rows)
        ]


def _stands_apart(text: str, start: int, end: int) -> bool:
    """Return whether a slice of a text certainly begins and ends between words."""
    return (
        (start == 0 or text[start - 1].isspace())
        and (end == len(text) or text[end].isspace())
        # Another character after a blank may belong to the blank (an accent, a joiner).
        and (text[start].isascii() or text[start].isalnum())
    )


def _from(text: str, chunk: Chunk, start: int) -> Chunk:
    """Return the part of a chunk that begins at `start`."""
    rest = text[start : chunk.char_end].lstrip()
    start = chunk.char_end - len(rest)
    line = line_at(chunk.line, text[chunk.char_start : start])
    return replace(chunk, text=rest, char_start=start, line=line, token_count=UNKNOWN)


def line_at(line: int | None, before: str) -> int | None:
    """Return the line of the character after the text `before`, which begins on `line`; None if `line` is None."""
    return None if line is None else line + line_breaks(before)


def _place_in(record: Record, chunk: Chunk) -> dict[str, Any] | None:
    """Return a chunk's place as it is stored: its first row, and the offsets in the chunk at which later rows begin."""
    place = record.place
    if place.row is not None and place.breaks:
        passed = bisect_right(place.breaks, chunk.char_start)
        breaks = _breaks_in(chunk, place.breaks, passed)
        place = place._replace(row=place.row + passed, breaks=breaks)
    return place.as_json()


def _breaks_in(chunk: Chunk, breaks: Sequence[int], first: int) -> list[int]:
    """Return the breaks within a chunk as offsets from its start; `first` is the index of the first such break."""
    return [at - chunk.char_start for at in breaks[first : bisect_left(breaks, chunk.char_end)]]


MAX_TITLE_CHARACTERS = 500
# Every chunk has all metadata of its file and record: a small file with many chunks could fill a disk.
MAX_COPIED_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of a run are read and split; `loop` is the event loop that runs an asynchronous extraction."""

    chunker: Chunker
    loaders: Mapping[str, Loader]
    options: LoadOptions
    with_context: bool = True
    extraction: MetadataExtraction | None = None
    loop: AbstractEventLoop | None = None

    def is_outdated(self, known: KnownDocument) -> bool:
        """Return whether a stored document would be read or split differently today."""
        today = (loader_named(known.uri, self.loaders).version, RULES_VERSION, self.chunker.settings)
        return today != (known.loader_version, known.chunker_version, known.chunk_settings)

    def as_read(self, known: KnownDocument) -> Reading:
        """Return a copy with the options with which the document was read before."""
        options = replace(self.options, **known.fields, detect_encoding=known.encoding is not None)
        return replace(self, options=options)

    def fields_for(self, uri: str) -> dict[str, Any]:
        """Return the options `text_fields` and `id_field` if they are set and the file's loader uses them."""
        if not getattr(loader_named(uri, self.loaders), "reads_fields", False):
            return {}
        options = self.options
        given = {"text_fields": list(options.text_fields), "id_field": options.id_field}
        return {name: value for name, value in given.items() if value}


class CutFile(NamedTuple):
    """A file that was read and split into chunks, with its loader."""

    loader: Loader
    loaded: LoadedDocument
    format: str
    title: str
    chunks: Sequence[Chunk]


def cut_file(file: FileBytes, reading: Reading) -> CutFile:
    """Turn the bytes of a file into chunks."""
    loader = loader_of(file, reading.loaders)
    loaded = load(file, loader, reading.options)
    extraction = reading.extraction
    if extraction is not None and extraction.per == "document":
        metadata = extracted_metadata(extraction, Document(loaded.text, dict(loaded.metadata), file.uri), reading.loop)
        loaded = replace(loaded, metadata=metadata)
    title, chunks = cut_document(loaded, reading.chunker)
    if extraction is not None and extraction.per == "chunk":
        size = 0
        for chunk in chunks:
            own = Document(chunk.text, dict(chunk.metadata), file.uri)
            chunk.metadata = extracted_metadata(extraction, own, reading.loop)
            size += _json_bytes(chunk.metadata)
            check_copies(size)
    return CutFile(loader, loaded, loaded.format or loader.name, (title or "")[:MAX_TITLE_CHARACTERS], chunks)


def cut_document(loaded: LoadedDocument, chunker: Chunker) -> tuple[str | None, list[Chunk]]:
    """Return the title of a loaded text, and its chunks with their places."""
    if loaded.records:
        title, chunks = loaded.title, _cut_records(loaded, chunker)
    else:
        title, chunks = chunker.cut(loaded.text, loaded.structure)
        title = loaded.title or title
        check_copies(_json_bytes(loaded.metadata) * len(chunks))
        for chunk in chunks:
            chunk.metadata = loaded.metadata
            chunk.line = chunk.line if loaded.has_lines else None
    _place(chunks, loaded.pages)
    return title, chunks


def _cut_records(loaded: LoadedDocument, chunker: Chunker) -> list[Chunk]:
    chunks: list[Chunk] = []
    line, counted = 1, 0
    own_bytes, copied = _json_bytes(loaded.metadata), 0
    for record in loaded.records:
        line, counted = line + line_breaks(loaded.text[counted : record.start]), record.start
        found = _record_chunks(loaded, record, chunker)
        # Most records are one chunk of a text without metadata: nothing is copied.
        record_bytes = _json_bytes(record.metadata) if own_bytes or len(found) > 1 else 0
        if own_bytes + record_bytes > MAX_METADATA_BYTES:
            message = f"a record on line {line} has {own_bytes + record_bytes} bytes of metadata, including the file's"
            raise LoadError("metadata_too_large", f"{message}; the limit is {MAX_METADATA_BYTES}: shorten it")
        copied += (own_bytes + record_bytes) * len(found)
        check_copies(copied)
        shared = {**loaded.metadata, **record.metadata} if own_bytes else record.metadata
        for chunk in found:
            chunk.chunk_no = len(chunks)
            chunk.char_start += record.start
            chunk.char_end += record.start
            if not loaded.has_lines:
                chunk.line = record.line
            elif chunk.line is not None:
                chunk.line += line - 1
            chunk.place = _place_in(record, chunk)
            chunk.heading_path = (*record.titles, *chunk.heading_path)
            chunk.metadata, chunk.summary = shared, record.summary
            chunks.append(chunk)
    return chunks


def _json_bytes(metadata: Mapping[str, Any]) -> int:
    return len(_core.to_json(metadata)) if metadata else 0


def check_copies(size: int, remedy: str = "shorten the metadata of long texts, or split the file") -> None:
    """Refuse the chunks of a document if their metadata together has too many bytes (`size`)."""
    if size > MAX_COPIED_BYTES:
        message = f"its chunks would have {size:,} bytes of metadata together; the limit is {MAX_COPIED_BYTES:,}"
        raise LoadError("metadata_too_large", f"{message}: {remedy}")


def _record_chunks(loaded: LoadedDocument, record: Record, chunker: Chunker) -> list[Chunk]:
    text = loaded.text[record.start : record.end]
    if record.is_chunk and text.strip():
        return [chunker.whole(text)]
    return chunker.cut(text, record.structure or loaded.structure).chunks


def _place(chunks: Sequence[Chunk], pages: Sequence[int]) -> None:
    above: list[Chunk] = []
    for chunk in chunks:
        path = chunk.heading_path
        while above and not (
            len(above[-1].heading_path) < len(path) and path[: len(above[-1].heading_path)] == above[-1].heading_path
        ):
            above.pop()
        chunk.parent = above[-1].chunk_no if above else None
        if pages:
            chunk.page = bisect_right(pages, chunk.char_start)
            chunk.place = StoredPlace(breaks=_breaks_in(chunk, pages, chunk.page)).as_json()
        above.append(chunk)
