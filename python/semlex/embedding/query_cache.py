"""A cache of query vectors, in memory only: a standby or a read-only role could not store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.forks import new_lock
from semlex.lru_cache import LruCache
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from semlex.embedding.base import Embedder

# 1,024 queries of 1,024 dimensions are 4 MiB.
DEFAULT_QUERIES = 1024


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Figures of a cache: vectors in it, queries that it answered, and queries that had to be embedded."""

    entries: int
    capacity: int
    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Return the share of queries that the cache answered, 0 to 1; 0 before the first query."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class QueryEmbeddingCache:
    """Keeps the vectors of the last queries, by the key of the embedder's identity and the exact text. Thread-safe."""

    def __init__(self, capacity: int = DEFAULT_QUERIES) -> None:
        check_range("cached_queries", capacity, 0)
        self.capacity = capacity
        self._vectors: LruCache[tuple[str, str], NDArray[np.float32]] = LruCache(capacity)
        self._misses = 0
        self._lock = new_lock()

    def find(self, identity: str, text: str) -> NDArray[np.float32] | None:
        """Return the vector of a query, (dimensions,) and read-only, or None; only hits are counted."""
        return self._vectors.find((identity, text))

    def embed(self, embedder: Embedder, identity: str, text: str) -> NDArray[np.float32]:
        """Return the vector of a query, (dimensions,) and read-only: cached, or embedded now. Blocking."""
        # An equal query may have been embedded while this one waited for the model.
        found = self.find(identity, text)
        return self._kept(embedder, identity, text, embedder.embed_query(text)) if found is None else found

    def embed_many(self, embedder: Embedder, identity: str, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        """Embed queries that are not cached, in one batch if possible, and cache their vectors. Blocking."""
        together = getattr(embedder, "embed_queries", None)
        if together is None or len(texts) == 1:
            return [self.embed(embedder, identity, text) for text in texts]
        return [self._kept(embedder, identity, text, made) for text, made in zip(texts, together(texts), strict=True)]

    def _kept(self, embedder: Embedder, identity: str, text: str, made: ArrayLike) -> NDArray[np.float32]:
        vector = np.array(made, dtype=np.float32)
        vector.flags.writeable = False
        # A vector that no search can use is the caller's to refuse, and may be better the next time.
        usable = vector.shape == (embedder.dimensions,) and np.isfinite(vector).all() and vector.any()
        with self._lock:
            self._misses += 1
        if usable:
            self._vectors.keep((identity, text), vector)
        return vector

    @property
    def figures(self) -> CacheFigures:
        """Return the cache's figures."""
        return CacheFigures(len(self._vectors), self.capacity, self._vectors.hits, self._misses)
