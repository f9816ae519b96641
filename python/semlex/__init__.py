"""Hybrid search on the Postgres you already have.

    async with PostgreSQLRetriever(db_url) as retriever:
        await retriever.add_documents([Document("Postgres keeps rows in heap pages.", id="heap")])
        hits = await retriever.search("how are rows stored?", top_k=5)

Retrievers:
    PostgreSQLRetriever: One collection: documents in, searches out.
    SyncRetriever: The same for programs without an event loop.
    DocumentRetriever: What an application needs of a retriever.

Values:
    Document: A text with its metadata.
    SearchQuery: A checked query.
    SearchResults: The hits of one search, and how they were found.
    SearchResult: One hit, with every stage's rank and score.
    StoredChunk: A document as it is stored.
    ChunkMetadata: A chunk with its metadata, as a file of JSON holds it.
    VectorDocument: Such a chunk with its vector.

Models that embed:
    StaticEmbedder, Qwen3EmbeddingEncoder, SentenceTransformersEmbedder, OpenAIEmbedder, GeminiEmbedder

Models that rerank:
    ScoreReranker, Qwen3Reranker, CrossEncoderReranker, LLMReranker, CohereReranker, TEIReranker

Options:
    Bm25Options: Constants of the keyword engine.
    HnswIndex: How the vector index is built.
    BulkIngestConfig: How documents are written.

Errors:
    SemlexError: Every error of semlex; `semlex.errors` has them all.
    ValidationError: A value was refused; its `errors` say which, where and why.

Each name is loaded when it is first used: `import semlex` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semlex.chunks import ChunkMetadata, VectorDocument
    from semlex.embedding.gemini import GeminiEmbedder
    from semlex.embedding.openai import OpenAIEmbedder
    from semlex.embedding.qwen3 import Qwen3EmbeddingEncoder
    from semlex.embedding.sentence_transformers import SentenceTransformersEmbedder
    from semlex.embedding.static import StaticEmbedder
    from semlex.errors import SemlexError, ValidationError
    from semlex.reranking.cohere import CohereReranker
    from semlex.reranking.cross_encoder import CrossEncoderReranker
    from semlex.reranking.llm import LLMReranker
    from semlex.reranking.qwen3 import Qwen3Reranker
    from semlex.reranking.tei import TEIReranker
    from semlex.reranking.term_overlap import ScoreReranker
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.retriever.synchronous import SyncRetriever
    from semlex.store.keyword.bm25.engine import Bm25Options
    from semlex.store.schema.indexes import HnswIndex
    from semlex.store.write.copy import BulkIngestConfig
    from semlex.types import Document, DocumentRetriever, SearchQuery, SearchResult, SearchResults, StoredChunk


__all__ = [
    "Bm25Options",
    "BulkIngestConfig",
    "ChunkMetadata",
    "CohereReranker",
    "CrossEncoderReranker",
    "Document",
    "DocumentRetriever",
    "GeminiEmbedder",
    "HnswIndex",
    "LLMReranker",
    "OpenAIEmbedder",
    "PostgreSQLRetriever",
    "Qwen3EmbeddingEncoder",
    "Qwen3Reranker",
    "ScoreReranker",
    "SearchQuery",
    "SearchResult",
    "SearchResults",
    "SemlexError",
    "SentenceTransformersEmbedder",
    "StaticEmbedder",
    "StoredChunk",
    "SyncRetriever",
    "TEIReranker",
    "ValidationError",
    "VectorDocument",
]

_MODULES = {
    "BulkIngestConfig": "semlex.store.write.copy",
    "ChunkMetadata": "semlex.chunks",
    "CohereReranker": "semlex.reranking.cohere",
    "CrossEncoderReranker": "semlex.reranking.cross_encoder",
    "Bm25Options": "semlex.store.keyword.bm25.engine",
    "GeminiEmbedder": "semlex.embedding.gemini",
    "HnswIndex": "semlex.store.schema.indexes",
    "LLMReranker": "semlex.reranking.llm",
    "OpenAIEmbedder": "semlex.embedding.openai",
    "PostgreSQLRetriever": "semlex.retriever.postgres",
    "Qwen3EmbeddingEncoder": "semlex.embedding.qwen3",
    "Qwen3Reranker": "semlex.reranking.qwen3",
    "ScoreReranker": "semlex.reranking.term_overlap",
    "SemlexError": "semlex.errors",
    "SentenceTransformersEmbedder": "semlex.embedding.sentence_transformers",
    "StaticEmbedder": "semlex.embedding.static",
    "SyncRetriever": "semlex.retriever.synchronous",
    "TEIReranker": "semlex.reranking.tei",
    "ValidationError": "semlex.errors",
    "VectorDocument": "semlex.chunks",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("semlex")
    if name not in __all__:
        raise AttributeError(f"module 'semlex' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "semlex.types")), name)


def __dir__() -> list[str]:
    return __all__
