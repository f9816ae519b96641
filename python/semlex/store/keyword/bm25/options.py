"""Constants of the engine ``bm25``."""

from __future__ import annotations

from dataclasses import dataclass

from semlex.validation import check_parameters, number_errors, whole_number_errors

DEFAULT_CACHE_BYTES = 64 * 1024 * 1024
MAX_CACHE_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class Bm25Options:
    """How the engine ``bm25`` scores, and how much it remembers.

    Attributes:
        k1: How soon further occurrences of a word stop to count, from 0 (Robertson and Zaragoza, "The Probabilistic
            Relevance Framework", 2009).
        b: How much a long text is held against it, 0 to 1.
        cache_bytes: Most bytes of posting lists that are kept in memory.

    Raises:
        ConfigurationError: Out of range.
    """

    k1: float = 1.2
    b: float = 0.75
    cache_bytes: int = DEFAULT_CACHE_BYTES

    def __post_init__(self) -> None:
        check_parameters(
            number_errors("k1", self.k1, 0, 1000),  # beyond, it is the plain number of occurrences
            number_errors("b", self.b, 0, 1),
            whole_number_errors("cache_bytes", self.cache_bytes, 0, MAX_CACHE_BYTES),
        )


DEFAULT_BM25 = Bm25Options()
