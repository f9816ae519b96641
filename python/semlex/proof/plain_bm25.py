"""BM25 as it is written in the books, slowly: the specification of the keyword index."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from semlex import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TERMS = 64
TYPED_BIT = 1 << 31


def plain_bm25(
    texts: Mapping[str, tuple[str, str]], query: str, *, stop_words: bool = True, k1: float = 1.2, b: float = 0.75
) -> dict[str, float]:
    """The score of every text in which a word of the query occurs.

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the inverse document
    frequency of Lucene, which is never negative.

    Args:
        texts: Id -> (language, text).
        query: Optional words only: no phrase, no exclusion.
        stop_words: Whether they are left out.
        k1: Saturation.
        b: Weight of the length.
    """
    analyzers = {language: _core.Analyzer(language, stop_words) for language, _ in texts.values()}
    counts = {key: Counter(analyzers[language].terms(text)) for key, (language, text) in texts.items()}
    # A word with accents has a second term that keeps them. It adds nothing to the length.
    lengths = {key: sum(n for term, n in count.items() if not term.startswith("=")) for key, count in counts.items()}
    average = sum(lengths.values()) / len(lengths) if lengths else 0.0
    wanted = {language: analyzer.query(query, MAX_TERMS).wanted for language, analyzer in analyzers.items()}
    units = {unit for terms in wanted.values() for unit, _ in terms}
    scores: dict[str, float] = {}
    idfs: dict[int, float] = {}
    for unit in sorted(units):
        # A word of the query is one term in each language; texts are looked up with the term of their own.
        found = {
            key: frequency
            for key, (language, _) in texts.items()
            for own, term in wanted[language]
            if own == unit and (frequency := counts[key][term])
        }
        idfs[unit] = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
        # The folded term has the same unit without this bit; that with accents adds what its idf is above.
        idf = idfs[unit] - (idfs[unit & ~TYPED_BIT] if unit & TYPED_BIT else 0.0)
        if idf <= 0.0:
            continue  # a text with this term alone is not found
        for key, frequency in found.items():
            norm = k1 * (1 - b + b * lengths[key] / average)
            scores[key] = scores.get(key, 0.0) + idf * frequency * (k1 + 1) / (frequency + norm)
    return scores
