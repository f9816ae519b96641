"""Fewer hits: those that say nearly the same once, and so many of a document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from semlex import _core
from semlex.search.postprocess.surroundings import document_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.types.results import SearchResult


def without_near_duplicates(
    hits: Sequence[SearchResult], share: float
) -> list[tuple[SearchResult, list[SearchResult]]]:
    """The hits that say something new, each with those that nearly say the same.

    A hit is left out where at least `share` of its runs of five words occur in one better hit, which bears it: in that
    of which it shares most. Chunks of one document that overlap are never compared: what they share is cut away where
    they are joined.
    """
    shares = _core.shared_shingles([hit.content for hit in hits])
    kept: dict[int, list[SearchResult]] = {}
    for number, hit in enumerate(hits):
        like = [other for other in kept if shares[number, other] >= share and not _overlap(hit, hits[other])]
        if like:
            kept[max(like, key=lambda other: (shares[number, other], -other))].append(hit)
        else:
            kept[number] = []
    return [(hits[number], same) for number, same in kept.items()]


def _overlap(one: SearchResult, other: SearchResult) -> bool:
    """Whether both are parts of one document's text that share characters."""
    if one.char_start is None or one.char_end is None or other.char_start is None or other.char_end is None:
        return False
    shares = max(one.char_start, other.char_start) < min(one.char_end, other.char_end)
    return shares and document_of(one) == document_of(other)


def at_most_per_document(hits: Sequence[SearchResult], count: int) -> list[SearchResult]:
    """The best hits of each document, in the order that they have."""
    taken: Counter[str] = Counter()
    chosen = []
    for hit in hits:
        taken[document_of(hit)] += 1
        if taken[document_of(hit)] <= count:
            chosen.append(hit)
    return chosen
