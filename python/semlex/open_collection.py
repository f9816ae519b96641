"""What both journeys work on: an open collection's models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.errors import ModelError
    from semlex.reranking.base import Reranker
    from semlex.store.schema.collection import EmbeddingVersion


@dataclass(frozen=True, slots=True)
class OpenModels:
    """What was chosen.

    Attributes:
        embedder: The model that embeds, or None.
        embedding_choice: One line: which and why.
        counter_name: Its way of counting tokens, or None.
        version: What its vectors are, or None.
        missing: Why the collection's own model cannot be used here, or None. Words can be searched then; vectors
            cannot be made.
        reranker: The model that reranks, or None; None before it is chosen, too.
        reranking_choice: One line: which and why; None before it is chosen.
        owned: Those of the two that were made here.
    """

    embedder: Embedder | None = None
    embedding_choice: str = ""
    counter_name: str | None = None
    version: EmbeddingVersion | None = None
    missing: ModelError | None = None
    reranker: Reranker | None = None
    reranking_choice: str | None = None
    owned: tuple[Embedder | Reranker, ...] = ()

    def refuse_without_model(self) -> None:
        """Raises what stands in the way of the collection's own model, if anything does."""
        if self.missing is not None:
            raise self.missing.with_traceback(None)

    def close(self) -> None:
        """Closes the models that were made here; those that the user passed stay open."""
        for model in self.owned:
            model.close()
