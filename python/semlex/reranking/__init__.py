"""A query and candidates in, one relevance per candidate out."""

from semlex.reranking.base import Reranker

__all__ = ["Reranker"]
