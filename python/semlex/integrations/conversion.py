"""What the integrations have in common: filters that always or never hold, filters on ids, scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from semlex.filters.fields import refusal
from semlex.filters.tree import MAX_DEPTH, F, FilterTree, joined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from semlex.retriever.collection import Collection
    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResult

EVERYTHING: FilterTree = F("@uri").exists() | ~F("@uri").exists()
NOTHING: FilterTree = F("@uri").exists() & ~F("@uri").exists()
PAGE = 1_000


def key_field(*parts: str) -> F:
    """A path of keys as they are, whatever characters they have."""
    return F(".".join(json.dumps(part) for part in parts))


def all_of(parts: Iterable[FilterTree]) -> FilterTree:
    """What holds where all of these do; of none, always."""
    trees = list(parts)
    return joined("and", trees) if trees else EVERYTHING


def any_of(parts: Iterable[FilterTree]) -> FilterTree:
    """What holds where one of these does; of none, never."""
    trees = list(parts)
    return joined("or", trees) if trees else NOTHING


def check_depth(place: str, depth: int) -> None:
    """Refuses a group of a filter that stands too deep, before Python's own bound of nested calls is reached.

    Raises:
        ValidationError: It does.
    """
    if depth > MAX_DEPTH:
        raise refusal(place, "too_deep", str(MAX_DEPTH))


def has_id(ids: Sequence[str]) -> FilterTree:
    """What holds for chunks with these ids; of none, never."""
    named = [one for one in ids if one]
    return F("@id").in_(named) if named else NOTHING


async def pages(collection: Collection, filters: FilterTree | None) -> AsyncIterator[list[StoredChunk]]:
    """All chunks that pass a filter, in the order of their keys."""
    after = None
    while page := await collection.list(filters, limit=PAGE, after=after):
        yield page
        after = page[-1].id


def metadata_with_place(chunk: StoredChunk) -> dict[str, object]:
    """The metadata of a chunk; of one that was read from a file also where it stands, unless such a key is there."""
    if not chunk.source:
        return dict(chunk.metadata)
    place = {
        "source": chunk.source,
        "source_document": chunk.source_document,
        "heading_path": list(chunk.heading_path),
        "line": chunk.line,
        "page": chunk.page,
    }
    return {name: value for name, value in place.items() if value} | chunk.metadata


def score_of(hit: SearchResult) -> float | None:
    """The score that has put a hit in its place: the reranker's, else of the fusion, else of the leg that answered.

    None of a hit of a fallback that gives no scores.
    """
    scores = (hit.rerank_score, hit.fused_score, hit.vector_score, hit.keyword_score)
    return next((score for score in scores if score is not None), None)
