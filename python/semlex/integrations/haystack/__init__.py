"""Haystack: a collection as a document store, and retrievers for pipelines."""

from __future__ import annotations

from semlex.errors import needing

with needing("haystack", "haystack-ai", "haystack", __name__):
    import haystack  # noqa: F401 - whether it is there

from semlex.integrations.haystack.document_store import SemlexDocumentStore
from semlex.integrations.haystack.retrievers import (
    SemlexEmbeddingRetriever,
    SemlexHybridRetriever,
    SemlexKeywordRetriever,
)

__all__ = ["SemlexDocumentStore", "SemlexEmbeddingRetriever", "SemlexHybridRetriever", "SemlexKeywordRetriever"]
