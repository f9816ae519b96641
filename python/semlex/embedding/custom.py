"""A base class for users' embedders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from semlex.models.token_counters import WordCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.embedding.base import EmbedderIdentity


class BaseEmbedder(WordCounter, ABC):
    """An `Embedder` that lacks two things: what its vectors depend on, and the vectors of texts.

    All else has a default: queries are embedded as documents are, tokens are Unicode words, there is nothing to
    release. Override what your model does better; what counts tokens in another way has a `counter_name` of its own.

    Attributes:
        fusion_weight: How much its vectors weigh against the words in completed fusion when a search says nothing,
            0 to 1.
        calls_at_once: How many searches may ask it at the same time; more than 1 for a model behind a server.
        documents_cut: How many documents so far were longer than the model reads, for reports.
        runs_on_torch: Whether it uses torch, which cannot be used in a forked child.
    """

    fusion_weight: float = 0.5
    calls_at_once: int = 1
    documents_cut: int = 0
    runs_on_torch: bool = False

    @property
    @abstractmethod
    def identity(self) -> EmbedderIdentity:
        """What the vectors depend on."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embeds n texts as documents: (n, dimensions), row i for text i whatever its neighbours.

        It blocks and may be called from several threads.
        """

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embeds one text as a query: (dimensions,)."""
        vector: NDArray[np.float32] = self.embed_documents([text])[0]
        return vector

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self.identity.dimensions

    def close(self) -> None:
        """Releases the model and its memory; here there is nothing."""
