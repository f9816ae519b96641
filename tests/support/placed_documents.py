"""Documents as they would be stored, without a server: texts cut into chunks with their places, and hits among them."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from semlex import _core
from semlex.ingest.document_chunks import Chunker, cut_document
from semlex.ingest.loaders.base import LoadedDocument
from semlex.models.tokenizer import WordCounter
from semlex.options.collection import ChunkSettings
from semlex.search.passages import Around
from semlex.store.query.chunk_keys import indexed_chunk_id
from semlex.store.query.surroundings import PlacedChunk, Reach
from semlex.types.documents import StoredPlace
from semlex.types.results import SearchResult
from tests.support.markdown_texts import MARKED, STRUCTURES, TEXT

LONG = st.lists(TEXT | MARKED, min_size=1, max_size=2).map("\n\n".join)
SECTIONS = st.none() | st.sampled_from([0.1, 0.34, 0.5, 1.0])
AROUND = st.builds(Around, neighbours=st.integers(0, 3), sections=SECTIONS, parents=st.booleans())


@dataclass(frozen=True)
class StoredDocument:
    name: str
    text: str
    chunks: tuple[PlacedChunk, ...]
    pages: Sequence[int] = ()


def stored(number, text, structure, settings, pages=()):
    name, key = f"folder/file{number}.md", uuid.UUID(int=number + 1)
    chunks, seen = [], {}
    loaded = LoadedDocument(text, structure, pages=pages)
    for chunk in cut_document(loaded, Chunker(WordCounter(), settings))[1]:
        text_hash = _core.hash_rows("text", [[""], [chunk.text]])[0]
        seen[text_hash] = seen.get(text_hash, -1) + 1
        chunk_id = indexed_chunk_id(key, text_hash, seen[text_hash])
        place = (chunk.char_start, chunk.char_end, chunk.line, chunk.page, StoredPlace.of(chunk.place))
        chunks.append(PlacedChunk((key, chunk_id), chunk.chunk_no, chunk.text, name, chunk.heading_path, *place))
    return StoredDocument(name, text, tuple(chunks), pages)


def hit_of(chunk, rank, parent=None):
    place = {"heading_path": chunk.titles, "char_start": chunk.char_start, "char_end": chunk.char_end}
    own = {"id": chunk.key[1], "parent_id": parent, "source_document": chunk.name, "line": chunk.line}
    return SearchResult(chunk.text, **own, **place, rank=rank)


@st.composite
def documents(draw):
    """1 to 3 of them, some with pages that begin anywhere."""
    tokens = draw(st.integers(16, 40))
    settings = ChunkSettings(tokens, draw(st.integers(0, tokens // 2 - 1)), draw(st.integers(0, tokens // 2)))
    texts = draw(st.lists(st.tuples(LONG, st.sampled_from(STRUCTURES)), min_size=1, max_size=3))
    made = []
    for number, (text, structure) in enumerate(texts):
        breaks = draw(st.none() | st.lists(st.integers(0, len(text)), max_size=6))
        pages = [] if breaks is None else [0, *sorted(breaks)]
        made.append(stored(number, text, structure, settings, pages))
    return made


@st.composite
def searches(draw):
    found = draw(documents())
    chunks = [chunk for document in found for chunk in document.chunks]
    chosen = draw(st.lists(st.sampled_from(chunks), max_size=8, unique_by=lambda chunk: chunk.key)) if chunks else []
    hits = []
    for rank, chunk in enumerate(chosen, 1):
        beside = [one.key[1] for one in chunks if one.document == chunk.document]
        hits.append(hit_of(chunk, rank, draw(st.sampled_from([None, *beside]))))
    return found, hits


def near(found, hits, around):
    chunks = [chunk for document in found for chunk in document.chunks]
    by_id = {chunk.key[1]: chunk for chunk in chunks}
    reaches = {hit.parent_id: Reach() for hit in hits if around.parents and hit.parent_id}
    reaches |= zip((hit.id for hit in hits), around.reaches(hits), strict=True)
    kept = set()
    for chunk_id, reach in reaches.items():
        own = by_id[chunk_id]
        beside = {one.key[1]: abs(one.number - own.number) for one in chunks if one.document == own.document}
        wanted = sum(chunk_id in reaches and distance <= reach.section for chunk_id, distance in beside.items())
        far = max(reach.beside, min(reach.section, int(wanted / (around.sections or 1))))
        kept |= {chunk_id for chunk_id, distance in beside.items() if distance <= far}
    return [chunk for chunk in chunks if chunk.key[1] in kept]
