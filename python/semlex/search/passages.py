"""Join chunks of one document into passages, with shared text only once, and a whole document with its headings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import groupby, takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from semlex import _core
from semlex.store.query.surroundings import PlacedChunk
from semlex.types.answers import PassagePart
from semlex.types.documents import MAX_CHUNK_BYTES, Heading, line_breaks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from semlex.types.documents import StoredChunk


# Between chunks that follow each other lie blank characters alone, which are not stored. More of them part passages.
MAX_BLANKS = 100


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of one document."""

    chunks: tuple[PlacedChunk, ...]  # one or more, in the order of the document
    # The text of the chunks, each character once. If they are slices of a document, it is the document from
    # `char_start` to `char_end`. Blank characters between chunks are not stored: their number and that of lines is
    # right, but tabs have become spaces.
    text: str

    @property
    def first(self) -> PlacedChunk:
        """The first chunk, whose line and page are the passage's."""
        return self.chunks[0]

    @property
    def char_start(self) -> int | None:
        """The first character of the passage in its document; None if its text is not a part of the document's."""
        return self.first.char_start if self.first.is_slice else None

    @property
    def char_end(self) -> int | None:
        """The end of the passage in its document (exclusive), in characters."""
        return None if self.char_start is None else self.char_start + len(self.text)

    @property
    def parts(self) -> tuple[PassagePart, ...]:
        """The chunks' places in the document, and where each begins in the text."""
        begin = self.first.char_start or 0
        return tuple(
            PassagePart((chunk.char_start or 0) - begin, chunk.line, chunk.page, chunk.place, chunk.is_slice)
            for chunk in self.chunks
        )

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles that all chunks of the passage have, outermost first."""
        return reduce(_common, (chunk.titles for chunk in self.chunks))


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(title for title, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def joined(chunks: Iterable[PlacedChunk]) -> list[Passage]:
    """Join chunks into passages, document by document in the order of keys, and in the order of each document."""
    # Chunks become one passage if their character ranges touch or overlap, or only blank characters are between them. A
    # chunk whose text is not a part of its document's, because it was added or replaced, is a passage of its own.
    passages: list[Passage] = []
    alone: list[Passage] = []
    for chunk in sorted(chunks, key=_order):
        longer = _appended(passages[-1], chunk) if passages else None
        if longer is not None:
            passages[-1] = longer
        else:
            (passages if chunk.is_slice else alone).append(Passage((chunk,), chunk.text))
    return sorted([*passages, *alone], key=lambda passage: _order(passage.first))


def _order(chunk: PlacedChunk) -> tuple[int, int, int, str]:
    return chunk.document.int, chunk.char_start or 0, chunk.number, chunk.key[1]


def is_near(passage: Passage, chunk: PlacedChunk) -> bool:
    """Return whether a passage and a chunk of its document might be joined."""
    start, end = passage.char_start, passage.char_end
    if start is None or end is None or chunk.char_start is None or chunk.char_end is None:
        return False
    return chunk.char_start - end <= MAX_BLANKS and start - chunk.char_end <= MAX_BLANKS


def _appended(passage: Passage, chunk: PlacedChunk) -> Passage | None:
    """Return the passage with another chunk, which begins no earlier; None if there is a gap between them."""
    last, text, end = passage.chunks[-1], passage.text, passage.char_end
    if end is None or chunk.char_start is None or not chunk.is_slice or last.document != chunk.document:
        return None
    chunks = (*passage.chunks, chunk)
    shared = end - chunk.char_start
    if shared >= 0:
        own = chunk.text[:shared]
        if not text.startswith(own, len(text) - shared):
            return None  # one of them was replaced by a text of the same length
        return Passage(chunks, text + chunk.text[shared:])
    follows = last.is_whole and chunk.number == last.number + 1 and -shared <= MAX_BLANKS
    return Passage(chunks, text + _blanks(-shared, last, chunk) + chunk.text) if follows else None


def _blanks(count: int, last: PlacedChunk, chunk: PlacedChunk) -> str:
    """Return `count` blank characters with the line ends between two chunks; a blank line if those are unknown."""
    lines = min(count, 2)
    if last.line is not None and chunk.line is not None and last.place.row is None:
        lines = min(count, max(0, chunk.line - last.line - line_breaks(last.text)))
    return "\n" * lines + " " * (count - lines)


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
    for level in range(max(0, min(len(_common(above, path)), len(path) - 1)), len(path)):
        at = next((number for number in range(at, len(lines)) if path[level] in lines[number]), at)
        yield level + 1, path[level], at


def _stored(chunks: Sequence[StoredChunk]) -> Iterator[Heading]:
    above: tuple[str, ...] = ()
    for path, group in groupby(chunks, key=lambda chunk: chunk.heading_path):
        same = list(group)
        for level in range(len(_common(above, path)), len(path)):
            yield Heading(level + 1, path[level], same[0].line, tuple(chunk.id for chunk in same))
        above = path
