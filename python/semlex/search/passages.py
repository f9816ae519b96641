"""Read the chunks around hits, and join chunks of a document into passages, with shared text only once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, takewhile
from typing import TYPE_CHECKING
from uuid import UUID

from semlex import _core
from semlex.store.query.chunk_keys import indexed_keys, keys_of
from semlex.store.query.surroundings import PlacedChunk, Reach, read_surroundings
from semlex.types.answers import PassagePart
from semlex.types.documents import MAX_CHUNK_BYTES, Heading, StoredChunk, line_breaks
from semlex.types.results import KnowledgeHit, SearchResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.open_collection import OpenCollection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key

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
        """The place of each chunk in the document, and where the chunk begins in the passage's text."""
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
    """Join chunks into passages, sorted by the key of the document, and within a document by position."""
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
    """Return whether a passage and a chunk of the same document are so close that they might be joined."""
    start, end = passage.char_start, passage.char_end
    if start is None or end is None or chunk.char_start is None or chunk.char_end is None:
        return False
    return chunk.char_start - end <= MAX_BLANKS and start - chunk.char_end <= MAX_BLANKS


def _appended(passage: Passage, chunk: PlacedChunk) -> Passage | None:
    """Append a chunk that begins no earlier than the passage's last chunk; return None if they cannot be joined."""
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
    """Return `count` blanks to put between two chunks: first their line breaks (two if unknown), then spaces."""
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
    """Yield level, title and line (from 0, in `text`) of each heading at the beginning of a section."""
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


@dataclass(frozen=True, slots=True)
class PlacedHit:
    """A hit with the chunks around it."""

    hit: SearchResult
    chunk: PlacedChunk  # the hit's, with its place in the document
    around: tuple[PlacedChunk, ...] = ()  # in no order


@dataclass(frozen=True, slots=True)
class Around:
    """Which chunks around hits are read."""

    neighbours: int = 0  # chunks before and after each hit
    # Minimum share of a section's chunks that must be hits for the whole section to be read, above 0, up to 1; None for
    # no sections.
    sections: float | None = None
    parents: bool = False  # whether to read the chunk that a hit names as its parent

    def reaches(self, hits: Sequence[SearchResult]) -> list[Reach]:
        """Return how far around each hit chunks have to be read."""
        # A section with enough hits has at most their number, divided by the share, as chunks. If the chunks that were
        # read do not reach a section's end, it did not have enough hits.
        if self.sections is None:
            return [Reach(self.neighbours)] * len(hits)
        together = Counter(map(_section, hits))
        return [Reach(self.neighbours, int(together[_section(hit)] / self.sections)) for hit in hits]


def _section(hit: SearchResult) -> tuple[str, tuple[str, ...]]:
    return document_of(hit), hit.heading_path


def document_of(hit: SearchResult) -> str:
    """Return an identifier of a hit's document: the key in the hit's id, else its ``source_document``, else its id."""
    # Documents of two collections are different, even if the same file was read into both.
    keys = indexed_keys([hit.id])
    own = keys[0][0].hex if keys else hit.source_document or hit.id
    return f"{hit.collection}/{own}" if isinstance(hit, KnowledgeHit) else own


async def read_around(
    opened: OpenCollection, hits: Sequence[SearchResult], around: Around, *, with_vectors: bool = False
) -> tuple[list[PlacedChunk], dict[str, NDArray[np.float32]]]:
    """Read the hits as they are stored now and the chunks around them; if wanted, the hits' vectors (d,) by id."""
    # Everything is read in one snapshot and one round trip.
    keys: dict[Key, Reach] = dict(zip(keys_of([hit.id for hit in hits]), around.reaches(hits), strict=True))
    of_hits = list(keys)
    if around.parents:
        keys = dict.fromkeys(keys_of([hit.parent_id for hit in hits if hit.parent_id]), Reach()) | keys

    async def read(snapshot: Snapshot) -> tuple[list[PlacedChunk], dict[Key, NDArray[np.float32]]]:
        collection = await opened.follow(snapshot)
        vectors = of_hits if with_vectors else []
        share = around.sections or 1.0
        return await read_surroundings(snapshot, collection, keys, share=share, with_vectors=vectors)

    if not keys:
        return [], {}
    chunks, vectors = await opened.reader.read_snapshot("read the chunks around hits", read)
    return chunks, {key[1]: vector for key, vector in vectors.items()}


def placed(hits: Sequence[SearchResult], chunks: Iterable[PlacedChunk], around: Around) -> list[PlacedHit]:
    """Return the hits with the chunks around them, without hits that are gone or have another text now."""
    by_id = {one.key[1]: one for one in chunks}
    found = [(hit, by_id[hit.id]) for hit in hits if hit.id in by_id and by_id[hit.id].text == hit.content]
    documents: dict[UUID, dict[int, PlacedChunk]] = {}
    for chunk in by_id.values():
        if chunk.char_start is not None:
            documents.setdefault(chunk.document, {})[chunk.number] = chunk
    are_hits = {chunk.key for _, chunk in found}
    made = []
    for hit, chunk in found:
        beside: dict[Key, PlacedChunk] = {}
        if chunk.char_start is not None:
            numbered = documents[chunk.document]
            numbers = range(chunk.number - around.neighbours, chunk.number + around.neighbours + 1)
            near = [numbered[number] for number in numbers if number in numbered]
            beside = {one.key: one for one in (*near, *_section_of(chunk, numbered, are_hits, around.sections))}
        if around.parents and hit.parent_id in by_id:
            parent = by_id[hit.parent_id]
            beside[parent.key] = parent
        beside.pop(chunk.key, None)
        made.append(PlacedHit(hit, chunk, tuple(beside.values())))
    return made


def _section_of(
    chunk: PlacedChunk, numbered: Mapping[int, PlacedChunk], hits: set[Key], share: float | None
) -> list[PlacedChunk]:
    """Return the chunks of the section that contains a chunk, if enough of them are hits; else an empty list."""
    if share is None:
        return []
    section = []
    for step in (-1, 1):
        number = chunk.number if step > 0 else chunk.number - 1
        while number in numbered and numbered[number].titles == chunk.titles:
            section.append(numbered[number])
            number += step
    return section if sum(one.key in hits for one in section) >= share * len(section) else []
