"""Hybrid search on the Postgres you already have.

    async with PostgreSQLRetriever(db_url) as retriever:
        await retriever.add_documents([Document("Postgres keeps rows in heap pages.", id="heap")])
        hits = await retriever.search("how are rows stored?", top_k=5)

The names below are loaded when they are first used, so that `import semlex` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
    from semlex.embedding.static import StaticEmbedder
    from semlex.errors import SemlexError, ValidationError
    from semlex.reranking.qwen3 import Qwen3Reranker
    from semlex.retriever import DocumentRetriever, PostgreSQLRetriever
    from semlex.store.copying import BulkIngestConfig
    from semlex.store.indexes import HnswIndex
    from semlex.sync import SyncRetriever
    from semlex.types import ChunkMetadata, Document, SearchQuery, SearchResult, SearchResults, VectorDocument

__all__ = [
    "BulkIngestConfig",
    "ChunkMetadata",
    "Document",
    "DocumentRetriever",
    "HnswIndex",
    "PostgreSQLRetriever",
    "Qwen3EmbeddingEncoder",
    "Qwen3Reranker",
    "SearchQuery",
    "SearchResult",
    "SearchResults",
    "SemlexError",
    "StaticEmbedder",
    "SyncRetriever",
    "ValidationError",
    "VectorDocument",
]

_MODULES = {
    "BulkIngestConfig": "semlex.store.copying",
    "DocumentRetriever": "semlex.retriever",
    "HnswIndex": "semlex.store.indexes",
    "PostgreSQLRetriever": "semlex.retriever",
    "Qwen3EmbeddingEncoder": "semlex.embedding.qwen3",
    "Qwen3Reranker": "semlex.reranking.qwen3",
    "SemlexError": "semlex.errors",
    "StaticEmbedder": "semlex.embedding.static",
    "SyncRetriever": "semlex.sync",
    "ValidationError": "semlex.errors",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'semlex' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "semlex.types")), name)


def __dir__() -> list[str]:
    return __all__
