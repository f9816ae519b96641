"""A reranker without a model: candidates are ordered by the query's words in them."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.models import cancellation
from semlex.reranking.base import CheckedReranker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class TermOverlapReranker(CheckedReranker):
    """Score candidates by how many of the query's words they contain, and how close together.

    A text with more of the words always ranks above one with fewer; among equals, the text in which they are closest
    together is first (after Clarke, Cormack and Tudhope, "Relevance ranking for one to three term queries", 2000). With
    n different words in the query, m of them in the text, and w words in the shortest stretch that holds all m::

        score = (m - 1 + m / w) / n      (0 if m is 0)

    The score is not a probability, and synonyms or inflected forms do not count. Words are those of Unicode (Annex 29)
    after compatibility normalisation and case folding. Safe for several threads.
    """

    @property
    def identity(self) -> str:
        """The name and version of this scoring rule, in one line."""
        return "term-overlap/1"

    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        wanted = frozenset(_words(query))
        scores = np.zeros(len(texts), dtype=np.float32)
        for row, text in enumerate(texts):
            cancellation.check()
            found, stretch = _shortest_cover(wanted, _words(text))
            if found:
                scores[row] = (found - 1 + found / stretch) / len(wanted)
        return scores

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _words(text: str) -> list[str]:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [folded[start:end] for start, end in _core.word_offsets(folded).tolist()]


def _shortest_cover(wanted: frozenset[str], words: Sequence[str]) -> tuple[int, int]:
    """Return how many wanted words a text contains, and the word count of its shortest stretch with all of them."""
    positions = [(position, word) for position, word in enumerate(words) if word in wanted]
    target = len({word for _, word in positions})
    shortest = len(words)
    inside: dict[str, int] = {}
    first = 0
    for last, word in positions:
        inside[word] = inside.get(word, 0) + 1
        while len(inside) == target:
            begin, leaving = positions[first]
            shortest = min(shortest, last - begin + 1)
            first += 1
            inside[leaving] -= 1
            if not inside[leaving]:
                del inside[leaving]
    return target, shortest
