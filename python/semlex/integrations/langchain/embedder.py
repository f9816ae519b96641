"""An embedding model of LangChain as one of semlex."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from langchain_core.embeddings import Embeddings

from semlex.embedding.base import BaseEmbedder, EmbedderIdentity, check_vectors
from semlex.errors import ModelError
from semlex.models.model_names import LANGCHAIN
from semlex.validation import check_parameters, check_range, kind_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# What LangChain's classes call the name of their model.
NAMES = ("model", "model_name", "model_id", "deployment")


class LangChainEmbedder(BaseEmbedder):
    """An `Embedder` for `semlex.connect` and the like, of an `Embeddings` object of LangChain.

    Args:
        embeddings: The model; it is called from several threads, as LangChain does.
        name: What it is stored as with a collection (behind ``langchain:``), and compared by when that is opened; None:
            its class, with the name of its model where it has one.
        dimensions: Length of its vectors; None: the model is asked for the vector of a word.

    Raises:
        ConfigurationError: An argument is of another kind.
    """

    calls_at_once = 4  # most of them are behind a server

    def __init__(self, embeddings: Embeddings, *, name: str | None = None, dimensions: int | None = None) -> None:
        check_parameters(kind_errors("embeddings", embeddings, Embeddings), text_parameter("name", name))
        if dimensions is not None:
            check_range("dimensions", dimensions, 1)
        self.embeddings = embeddings
        self._name = _name_of(embeddings) if name is None else LANGCHAIN + name
        self._dimensions = dimensions

    @cached_property
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""
        dimensions = self._dimensions or len(self.embeddings.embed_query("dimensions"))
        return EmbedderIdentity(self._name, "langchain", dimensions, None, "unknown", normalised=False)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds n texts as documents: (n, dimensions).

        Raises:
            ModelError: The vectors cannot be used. What the model raises comes as it is.
        """
        return self._checked(self.embeddings.embed_documents(list(texts)), len(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text as a query: (dimensions,).

        Raises:
            ModelError: As for `embed_documents`.
        """
        vector: NDArray[np.float32] = self._checked([self.embeddings.embed_query(text)], 1)[0]
        return vector

    def _checked(self, vectors: list[list[float]], rows: int) -> NDArray[np.float32]:
        try:
            array = np.asarray(vectors, dtype=np.float32).reshape(rows, -1)
        except (TypeError, ValueError):
            raise ModelError(f"{self._name} returned no list of vectors of one length for {rows} texts") from None
        return check_vectors(array, rows=rows, dimensions=self.dimensions, model=self._name, normalised=False)


def _name_of(embeddings: Embeddings) -> str:
    names = (getattr(embeddings, name, None) for name in NAMES)
    model = next((name for name in names if isinstance(name, str) and name), None)
    return LANGCHAIN + type(embeddings).__name__ + (f":{model}" if model else "")
