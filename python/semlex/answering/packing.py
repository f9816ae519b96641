"""Hits within a budget of tokens: which fit, best first, and with how much of what stands around them."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.search.postprocess.passages import is_near, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from semlex.search.postprocess.passages import Passage
    from semlex.search.postprocess.surroundings import PlacedHit
    from semlex.store.query.surroundings import PlacedChunk

# Where a text may end: behind a full stop of any script with the quotes and brackets that close there, or at a line's
# end. A full stop of the Latin script needs a blank behind it: there are decimals.
SENTENCE_END = re.compile(
    r"""[.!?\u2026]["'\u201d\u2019\u00bb)\]]*(?=\s)|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09]*"""
    r"|[\u0964\u061f\n]"
)


class Packing:
    """Passages that were packed, document by document, each with what it costs.

    Args:
        cost: Tokens of a passage with all that is written around it.
        budget: Most tokens.
        spent: Tokens that are needed anyway.
    """

    def __init__(self, cost: Callable[[Passage], int], budget: int, spent: int) -> None:
        self._cost = cost
        self._left = budget - spent
        self._documents: dict[UUID, list[tuple[Passage, int]]] = {}

    def add(self, chunks: Sequence[PlacedChunk]) -> bool:
        """Takes chunks in where they fit, all or none; whether they did."""
        grown: dict[UUID, list[tuple[Passage, int]]] = {}
        more = 0
        for document in {chunk.document for chunk in chunks}:
            before = self._documents.get(document, [])
            there = {chunk.key for passage, _ in before for chunk in passage.chunks}
            new = [chunk for chunk in chunks if chunk.document == document and chunk.key not in there]
            # Only passages that a new chunk can reach become others.
            reached: list[tuple[Passage, int]] = []
            others: list[tuple[Passage, int]] = []
            for one in before:
                (reached if any(is_near(one[0], chunk) for chunk in new) else others).append(one)
            together = joined([*new, *(chunk for passage, _ in reached for chunk in passage.chunks)])
            made = [(passage, self._cost(passage)) for passage in together]
            grown[document] = [*others, *made]
            more += sum(cost for _, cost in made) - sum(cost for _, cost in reached)
        if more > self._left:
            return False
        self._documents |= grown
        self._left -= more
        return True

    def add_beginning(self, chunk: PlacedChunk) -> PlacedChunk | None:
        """Takes in as many whole sentences from the beginning of a chunk as fit; None where not even one does."""
        ends = [found.end() for found in SENTENCE_END.finditer(chunk.text)]
        count = bisect_right(ends, self._left, key=lambda end: self._cost(joined([_beginning(chunk, end)])[0]))
        # A longer text may have fewer tokens than a shorter one: what the search found is tried.
        while count > 0:
            beginning = _beginning(chunk, ends[count - 1])
            if self.add([beginning]):
                return beginning
            count -= 1
        return None


def _beginning(chunk: PlacedChunk, end: int) -> PlacedChunk:
    text = chunk.text[:end].rstrip()
    char_end = None if chunk.char_start is None else chunk.char_start + len(text)
    return replace(chunk, text=text, char_end=char_end, is_whole=False)


def packed(
    hits: Sequence[PlacedHit], cost: Callable[[Passage], int], *, budget: int, spent: int
) -> list[tuple[PlacedChunk, ...]]:
    """What fits of hits, best first: of each that does its own chunk, and behind it those that came with it.

    Each is taken with all that belongs to it where that fits, else by itself, else not at all; a worse one that is
    shorter may fit still. The best alone is cut behind a sentence where it is too long by itself.

    Args:
        budget: Most tokens.
        spent: Tokens that are needed anyway.
    """
    packing = Packing(cost, budget, spent)
    kept: list[tuple[PlacedChunk, ...]] = []
    for number, one in enumerate(hits):
        whole = (one.chunk, *one.around)
        if packing.add(whole):
            kept.append(whole)
        elif packing.add([one.chunk]):
            kept.append((one.chunk,))
        elif number == 0 and (beginning := packing.add_beginning(one.chunk)) is not None:
            kept.append((beginning,))
    return kept
