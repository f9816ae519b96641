"""A reranker as a document compressor of LangChain."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.embeddings import Embeddings
from pydantic import Field, field_validator

from semlex.embedding.base import BaseEmbedder, EmbedderIdentity, check_vectors
from semlex.errors import ConfigurationError, ModelError
from semlex.models.model_names import LANGCHAIN
from semlex.reranking.registry import choose_reranker
from semlex.search.rerank import usable_scores
from semlex.validation import check_parameters, check_range, kind_errors, model_errors, text_parameter, wrong_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import Document
    from numpy.typing import NDArray

    from semlex.reranking.base import Reranker


# What LangChain's classes call the name of their model.
NAMES = ("model", "model_name", "model_id", "deployment")


class LangChainEmbedder(BaseEmbedder):
    """An embedding model of LangChain for `semlex.connect` and the like.

    Args:
        embeddings: The model; it is called from several threads, as LangChain does.
        name: Name that is stored with a collection (after ``langchain:``) and compared when it is opened. Default: the
            class, with the name of its model if it has one.
        dimensions: Length of its vectors. Default: the model embeds a word to find out.
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
        """Return the identity, which says what the vectors depend on."""
        dimensions = self._dimensions or len(self.embeddings.embed_query("dimensions"))
        return EmbedderIdentity(self._name, "langchain", dimensions, None, "unknown", normalised=False)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed n texts as documents: (n, dimensions)."""
        return self._checked(self.embeddings.embed_documents(list(texts)), len(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed one text as a query: (dimensions,)."""
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


class SemlexReranker(BaseDocumentCompressor):
    """A document compressor of LangChain that orders documents by a reranker of semlex.

    Attributes:
        reranker: A `Reranker`, or the name of one, such as ``term-overlap`` or ``Qwen/Qwen3-Reranker-0.6B``.
        top_n: How many documents are kept. Default: all.
        score_key: Key of the metadata for the score. Default: none.
    """

    reranker: Any
    top_n: int | None = Field(default=None, ge=1)
    score_key: str | None = None

    @field_validator("reranker")
    @classmethod
    def _check_reranker(cls, given: object) -> Reranker:
        check_parameters(
            wrong_type("reranker", "str or a reranker", given) if given is None else [],
            model_errors("reranker", given, "score"),
        )
        chosen = choose_reranker(given).model  # type: ignore[arg-type]
        if chosen is None:
            raise ConfigurationError("'none' does not name a reranker")
        return chosen

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Order copies of the documents by how well they answer a query, best first."""
        del callbacks  # nothing is called that they could follow
        if not documents:
            return []
        scores = usable_scores(self.reranker.score(query, [one.page_content for one in documents]), len(documents))
        order = sorted(range(len(documents)), key=lambda row: -scores[row])[: self.top_n]
        return [self._scored(documents[row], float(scores[row])) for row in order]

    def _scored(self, document: Document, score: float) -> Document:
        added = {} if self.score_key is None else {self.score_key: score}
        return document.model_copy(update={"metadata": document.metadata | added})
