"""Which segments are merged next, by their sizes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# A segment numbers its chunks with 16 bits.
SEGMENT_CHUNKS = 65_536
# Size-tiered compaction: segments are grouped by floor(log_TIER(chunks)). A tier with TIER segments is merged, so that
# a chunk is rewritten once per tier.
TIER = 8
# From this power on (4,096 chunks) segments wait until a full one can be made of them.
PACKED_TIER = 4
# A segment with this many chunks is not merged with others.
FULL_CHUNKS = SEGMENT_CHUNKS * 9 // 10


def tier(chunks: int) -> int:
    """Return the power of `TIER` that a size belongs to."""
    power = 0
    while chunks >= TIER:
        chunks //= TIER
        power += 1
    return power


def choose_merge(sizes: Sequence[int]) -> list[int]:
    """Choose the segments of one language to merge next."""
    # Small segments are merged in tiers, as log-structured stores do (P. O'Neil et al., "The Log-Structured
    # Merge-Tree", 1996). Large ones wait until they fill a segment, so that they are rewritten once more and then
    # hardly ever.
    ascending = sorted(range(len(sizes)), key=lambda position: (sizes[position], position))
    for power in range(PACKED_TIER):
        if sum(tier(sizes[position]) == power for position in ascending) >= TIER:
            return _filled(sizes, [], [position for position in ascending if tier(sizes[position]) <= power])
    small = [position for position in reversed(ascending) if tier(sizes[position]) <= PACKED_TIER]
    for position in reversed(ascending):
        if tier(sizes[position]) > PACKED_TIER and sizes[position] < FULL_CHUNKS:
            filled = _filled(sizes, [position], small)
            if sum(sizes[one] for one in filled) >= FULL_CHUNKS:
                return filled
    if sum(sizes[position] for position in small) > SEGMENT_CHUNKS:
        return _filled(sizes, [], small)
    return []


def choose_packing(sizes: Sequence[int]) -> list[int]:
    """Choose the next merge on the way to the fewest segments: the largest with all that fit next to it."""
    descending = sorted(range(len(sizes)), key=lambda position: (-sizes[position], position))
    for number, position in enumerate(descending):
        filled = _filled(sizes, [position], descending[number + 1 :])
        if len(filled) > 1:
            return filled
    return []


def _filled(sizes: Sequence[int], begun: list[int], others: Sequence[int]) -> list[int]:
    """Return the positions begun and, in order, all others that fit."""
    filled = list(begun)
    room = SEGMENT_CHUNKS - sum(sizes[position] for position in begun)
    for position in others:
        if sizes[position] <= room:
            filled.append(position)
            room -= sizes[position]
    return filled
