"""A reranker as a document compressor of LangChain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents.compressor import BaseDocumentCompressor
from pydantic import Field, field_validator

from semlex.errors import ConfigurationError
from semlex.reranking.registry import choose_reranker
from semlex.search.rerank import usable_scores
from semlex.validation import check_parameters, model_errors, wrong_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import Document

    from semlex.reranking.base import Reranker


class SemlexReranker(BaseDocumentCompressor):
    """A `BaseDocumentCompressor` that orders documents by a reranker of semlex; of equals the first stays first.

    Attributes:
        reranker: A `Reranker`, or the name of one, such as ``term-overlap`` or ``Qwen/Qwen3-Reranker-0.6B``.
        top_n: How many documents are kept; None: all.
        score_key: Under which key the metadata of what is returned gets the score; None: it gets nothing.
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
            raise ConfigurationError("there is no reranker of the name 'none'")
        return chosen

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The documents by how well they answer a query, best first; those that were given stay as they are.

        Raises:
            ModelError: The reranker fails.
        """
        del callbacks  # nothing is called that they could follow
        if not documents:
            return []
        scores = usable_scores(self.reranker.score(query, [one.page_content for one in documents]), len(documents))
        order = sorted(range(len(documents)), key=lambda row: -scores[row])[: self.top_n]
        return [self._scored(documents[row], float(scores[row])) for row in order]

    def _scored(self, document: Document, score: float) -> Document:
        added = {} if self.score_key is None else {self.score_key: score}
        return document.model_copy(update={"metadata": document.metadata | added})
