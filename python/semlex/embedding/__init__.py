"""Texts in, vectors out: one protocol, one file per kind of model."""

from semlex.embedding.base import Embedder, EmbedderIdentity, check_vectors

__all__ = ["Embedder", "EmbedderIdentity", "check_vectors"]
