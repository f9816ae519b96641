"""Join chunks of one document that touch or overlap into passages, with shared text only once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import TYPE_CHECKING

from semlex.types.documents import line_breaks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.store.query.surroundings import PlacedChunk

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
