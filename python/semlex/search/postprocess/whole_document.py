"""Put a document together again from its chunks: its text, and its headings with their places."""

from __future__ import annotations

from itertools import groupby, takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from semlex import _core
from semlex.search.postprocess.passages import joined
from semlex.store.query.surroundings import PlacedChunk
from semlex.types.documents import MAX_CHUNK_BYTES, Heading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semlex.search.postprocess.passages import Passage
    from semlex.types.documents import StoredChunk

BETWEEN_PASSAGES = "\n\n"
# A section is one slice, however long it is.
MAX_WORDS = 2**31 - 1
# All chunks are of one document, whatever its key is.
DOCUMENT = UUID(int=0)


def text_of(chunks: Sequence[StoredChunk]) -> str:
    """Join the chunks of one document into its text, with shared text only once."""
    return BETWEEN_PASSAGES.join(passage.text for passage in _passages(chunks))


def headings_of(chunks: Sequence[StoredChunk], structure: str) -> tuple[Heading, ...]:
    """Return the headings of one document, with their lines."""
    # Small sections share a chunk, which has only the titles that they have in common. So headings are read from the
    # text again; if it has none, the titles that are stored with the chunks are used.
    found = [heading for passage in _passages(chunks) for heading in _in_text(passage, structure)]
    return tuple(found or _stored(chunks))


def _passages(chunks: Sequence[StoredChunk]) -> list[Passage]:
    return joined(
        PlacedChunk(
            (DOCUMENT, chunk.id), number, chunk.content, titles=chunk.heading_path,
            char_start=chunk.char_start, char_end=chunk.char_end, line=chunk.line, page=chunk.page,
        )
        for number, chunk in enumerate(chunks)
    )  # fmt: skip


def _in_text(passage: Passage, structure: str) -> Iterator[Heading]:
    if passage.char_start is None or not passage.text.strip():
        return
    sections = _core.split_text(
        passage.text, None, max_tokens=MAX_WORDS, overlap_tokens=0, min_tokens=0, structure=structure,
        max_bytes=max(MAX_CHUNK_BYTES, 4 * len(passage.text)),
    )  # fmt: skip
    above: tuple[str, ...] = ()
    for start, end, line, path in zip(sections.starts, sections.ends, sections.lines, sections.headings, strict=True):
        inside = tuple(chunk.key[1] for chunk in passage.chunks if _meets(chunk, passage.char_start, start, end))
        text = passage.text[start:end]
        for level, title, at in _new_titles(above, path, text):
            first = passage.first.line
            yield Heading(level, title, None if first is None else first + int(line) - 1 + at, inside)
        above = path


def _meets(chunk: PlacedChunk, offset: int, start: int, end: int) -> bool:
    if chunk.char_start is None or chunk.char_end is None:
        return False
    return chunk.char_start - offset < end and start < chunk.char_end - offset


def _new_titles(above: tuple[str, ...], path: tuple[str, ...], text: str) -> Iterator[tuple[int, str, int]]:
    """Yield level, title and line (relative to the section's first) of each heading with which a section begins."""
    # The last is the section's own heading, even if it has the same words as the one before; titles above it that the
    # previous section did not have come first.
    lines, at = text.splitlines(), 0
    for level in range(max(0, min(_shared(above, path), len(path) - 1)), len(path)):
        at = next((number for number in range(at, len(lines)) if path[level] in lines[number]), at)
        yield level + 1, path[level], at


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _stored(chunks: Sequence[StoredChunk]) -> Iterator[Heading]:
    above: tuple[str, ...] = ()
    for path, group in groupby(chunks, key=lambda chunk: chunk.heading_path):
        same = list(group)
        for level in range(_shared(above, path), len(path)):
            yield Heading(level + 1, path[level], same[0].line, tuple(chunk.id for chunk in same))
        above = path
