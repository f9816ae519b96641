"""Small segments that were read whole, so that no query has to read them again."""

# Most commits add a small segment. Queries of other words than those of the search that read it need other lists of it.

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from semlex.store.keyword.bm25.read import MissingRow, PostingRow

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from semlex.store.keyword.bm25.read import SmallSegment

# Bytes of the segments that are kept, at most. Each has mostly 50 KB or less, and merges leave a few dozens.
MAX_BYTES = 16_000_000


class SmallSegments:
    """The posting rows of the small segments that were read last."""

    def __init__(self) -> None:
        self._kept: dict[bytes, SmallSegment] = {}  # those that were read last are last
        self._bytes: dict[bytes, int] = {}  # of each

    @property
    def used_bytes(self) -> int:
        """Bytes of all rows that are kept."""
        return sum(self._bytes.values())

    def keep(self, segments: dict[bytes, SmallSegment], listed: Container[bytes]) -> None:
        """Keep further segments; forget those that are not listed any more and, beyond the limit, the oldest."""
        sizes = self._bytes | {one: _bytes_of(segment) for one, segment in segments.items()}
        kept = {one: segment for one, segment in (self._kept | segments).items() if one in listed}
        used = sum(sizes[one] for one in kept)
        for one in [*kept]:
            if used <= MAX_BYTES:
                break
            used -= sizes[one]
            del kept[one]
        self._kept, self._bytes = kept, {one: sizes[one] for one in kept}

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


def _bytes_of(segment: SmallSegment) -> int:
    return sum(len(part) for parts in segment for part in parts)


def row_of(segment: SmallSegment, term: bytes) -> tuple[bytes, bytes] | tuple[None, None]:
    """Return first term and data of the row that may hold a term; None and None if no row may."""
    first_terms, data = segment
    place = bisect_right(first_terms, term) - 1
    return (None, None) if place < 0 else (first_terms[place], data[place])
