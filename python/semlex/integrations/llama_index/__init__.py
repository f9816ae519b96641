"""LlamaIndex: a collection as a vector store for its indexes, and as a retriever."""

from __future__ import annotations

from semlex.errors import needing

with needing("llama_index.core", "llama-index-core", "llama-index", __name__):
    import llama_index.core  # noqa: F401 - whether it is there

from semlex.integrations.llama_index.retriever import SemlexRetriever
from semlex.integrations.llama_index.vector_store import SemlexVectorStore

__all__ = ["SemlexRetriever", "SemlexVectorStore"]
