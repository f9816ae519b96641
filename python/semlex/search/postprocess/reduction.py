"""Reduce hits: remove near duplicates, and limit the hits of each document."""

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
    """Return the hits that are not near duplicates, each with the near duplicates of it that were left out."""
    # A hit is left out if at least `share` of its runs of five words occur in one better hit; it is listed with the one
    # with which it shares most. Overlapping chunks of one document are never compared, because joining them removes the
    # shared text.
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
    """Return whether both are parts of one document's text that share characters."""
    if one.char_start is None or one.char_end is None or other.char_start is None or other.char_end is None:
        return False
    shares = max(one.char_start, other.char_start) < min(one.char_end, other.char_end)
    return shares and document_of(one) == document_of(other)


def at_most_per_document(hits: Sequence[SearchResult], count: int) -> list[SearchResult]:
    """Return the best hits of each document, in their given order."""
    taken: Counter[str] = Counter()
    chosen = []
    for hit in hits:
        taken[document_of(hit)] += 1
        if taken[document_of(hit)] <= count:
            chosen.append(hit)
    return chosen
