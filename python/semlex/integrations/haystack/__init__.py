"""Haystack on collections: a document store, and retrievers for pipelines."""

from __future__ import annotations

from semlex.errors import MissingExtraError

try:
    import haystack  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    if error.name != "haystack":
        raise
    raise MissingExtraError("haystack-ai", "haystack", "semlex.integrations.haystack") from None

from semlex.integrations.haystack.document_store import SemlexDocumentStore
from semlex.integrations.haystack.retrievers import (
    SemlexEmbeddingRetriever,
    SemlexHybridRetriever,
    SemlexKeywordRetriever,
)

__all__ = ["SemlexDocumentStore", "SemlexEmbeddingRetriever", "SemlexHybridRetriever", "SemlexKeywordRetriever"]
