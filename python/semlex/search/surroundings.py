"""Read the chunks around hits in their documents: neighbours, whole sections, parents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.store.query.chunk_keys import indexed_keys, keys_of
from semlex.store.query.surroundings import PlacedChunk, Reach, read_surroundings
from semlex.types.results import KnowledgeHit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    import numpy as np
    from numpy.typing import NDArray

    from semlex.open_collection import OpenCollection
    from semlex.store.postgres.snapshot import Snapshot
    from semlex.store.query.leg import Key
    from semlex.types.results import SearchResult


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
    """Return what identifies the document of a hit: its file, else its ``source_document``, else its id."""
    # Documents of two collections are different, even if the same file was read into both.
    keys = indexed_keys([hit.id])
    own = keys[0][0].hex if keys else hit.source_document or hit.id
    return f"{hit.collection}/{own}" if isinstance(hit, KnowledgeHit) else own


async def read_around(
    opened: OpenCollection, hits: Sequence[SearchResult], around: Around, *, with_vectors: bool = False
) -> tuple[list[PlacedChunk], dict[str, NDArray[np.float32]]]:
    """Read the hits as they are stored now, the chunks around them, and the vectors (d,) by the ids of the hits."""
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
    chunks, vectors = await opened.reader.read_snapshot("read what stands around hits", read)
    return chunks, {key[1]: vector for key, vector in vectors.items()}


def placed(hits: Sequence[SearchResult], chunks: Iterable[PlacedChunk], around: Around) -> list[PlacedHit]:
    """Return the hits with the chunks around them, without those that are gone or have another text now."""
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
    """Return the chunks of the section of one chunk, if enough of them are hits; else none."""
    if share is None:
        return []
    section = []
    for step in (-1, 1):
        number = chunk.number if step > 0 else chunk.number - 1
        while number in numbered and numbered[number].titles == chunk.titles:
            section.append(numbered[number])
            number += step
    return section if sum(one.key in hits for one in section) >= share * len(section) else []
