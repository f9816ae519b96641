"""LlamaIndex on collections: a vector store for its indexes, and a retriever."""

from __future__ import annotations

from semlex.errors import MissingExtraError

try:
    import llama_index.core  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    if error.name not in {"llama_index", "llama_index.core"}:
        raise
    raise MissingExtraError("llama-index-core", "llama-index", "semlex.integrations.llama_index") from None

from semlex.integrations.llama_index.retriever import SemlexRetriever
from semlex.integrations.llama_index.vector_store import SemlexVectorStore

__all__ = ["SemlexRetriever", "SemlexVectorStore"]
