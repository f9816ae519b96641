"""Small segments that were read whole, so that no query has to read them again."""

# Most commits add a small segment. Queries of other words than those of the search that read it need other lists of it.

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from semlex.store.keyword.bm25.read import MissingRow, PostingRow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semlex.store.keyword.bm25.read import SmallSegment

# Segments that are kept, at most; merges leave a few dozens. Each has about 50 KB or less.
MAX_KEPT = 200


class SmallSegments:
    """The posting rows of the small segments that were read last."""

    def __init__(self) -> None:
        self._kept: dict[bytes, SmallSegment] = {}

    def keep(self, segments: dict[bytes, SmallSegment], listed: Iterable[bytes]) -> None:
        """Keep further segments, and forget those that are not listed any more."""
        kept = self._kept | segments
        listed = [one for one in listed if one in kept]
        self._kept = {one: kept[one] for one in listed[-MAX_KEPT:]}

    def find(self, missing: Iterable[MissingRow]) -> tuple[list[PostingRow], list[MissingRow]]:
        """Return the rows that are kept, and what is still missing."""
        kept, rows, others = self._kept, list[PostingRow](), list[MissingRow]()
        for segment, term in missing:
            small = kept.get(segment)
            if small is None:
                others.append((segment, term))
            else:
                rows.append((segment, term, *row_of(small, term)))
        return rows, others


def row_of(segment: SmallSegment, term: bytes) -> tuple[bytes, bytes] | tuple[None, None]:
    """Return first term and data of the row that may hold a term; None and None if no row may."""
    first_terms, data = segment
    place = bisect_right(first_terms, term) - 1
    return (None, None) if place < 0 else (first_terms[place], data[place])
