"""Chunk sizes in tokens: the defaults, their ranges, and the sizes stored with a collection."""

from __future__ import annotations

from typing import NamedTuple

from semlex.validation import check_range

# 200 to 2,000 is the documented range; smaller bounds serve tests and models of short context.
MIN_CHUNK_TOKENS = 16
MAX_CHUNK_TOKENS = 2000
DEFAULT_CHUNK_TOKENS = 500
DEFAULT_OVERLAP_TOKENS = 50
# About two sentences: less says too little alone, and is joined with its neighbour. Chosen, not measured.
DEFAULT_MIN_TOKENS = 32


class ChunkSettings(NamedTuple):
    """How the texts of a collection are cut, in tokens.

    Attributes:
        overlap_tokens: Maximum tokens that neighbouring chunks of a section share.
        min_tokens: A section with fewer tokens is joined with the next one if both fit into a chunk.
    """

    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
    overlap_tokens: int = DEFAULT_OVERLAP_TOKENS
    min_tokens: int = DEFAULT_MIN_TOKENS

    @classmethod
    def stored(
        cls, chunk_tokens: int | None, overlap_tokens: int | None, min_tokens: int | None
    ) -> ChunkSettings | None:
        """Make the settings from stored values; None if none are stored yet."""
        if chunk_tokens is None or overlap_tokens is None or min_tokens is None:
            return None
        return cls(chunk_tokens, overlap_tokens, min_tokens)

    def check(self) -> None:
        """Raise `ConfigurationError` if a number is out of its range."""
        check_range("chunk_tokens", self.chunk_tokens, MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS)
        check_range("overlap_tokens", self.overlap_tokens, 0, max_overlap(self.chunk_tokens))
        check_range("min_tokens", self.min_tokens, 0, max_min(self.chunk_tokens))


def max_overlap(chunk_tokens: int) -> int:
    """Return the maximum overlap: below half of a chunk."""
    return max(0, chunk_tokens - 1) // 2


def max_min(chunk_tokens: int) -> int:
    """Return the maximum of `min_tokens`: half of a chunk."""
    return chunk_tokens // 2


def default_min(chunk_tokens: int) -> int:
    """Return the default of `min_tokens`: 32, or a quarter of a chunk if that is less."""
    return min(DEFAULT_MIN_TOKENS, chunk_tokens // 4)
