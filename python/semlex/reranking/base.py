"""The protocol of a reranker, and a base class that checks its input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from semlex.validation import check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

# What the error of a reranker that is not on this machine advises.
WITHOUT_HUB = "'term-overlap' needs no hub, 'none' reranks nothing"


@runtime_checkable
class Reranker(Protocol):
    """Judges how well texts answer a query. Calls block and may come from several threads.

    It may have an attribute ``calls_at_once``, an int from 1: how many searches may use it at the same time. The
    default is 1, because a local model uses the whole machine for one call.
    """

    @property
    def identity(self) -> str:
        """Return model and revision, or model and server, in one line."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of n texts, in their order: (n,), 0 to 1. It is a probability if the model gives one.

        Raises:
            ValidationError: The query or a text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded or its server reached, or its scores cannot be used.
            WorkAbandonedError: The caller no longer waits for the result.
        """
        ...

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        ...


class CheckedReranker(ABC):
    """Checks query and texts for the rerankers of semlex."""

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of n texts as `Reranker.score` does.

        Raises:
            ConfigurationError: The query is so long that the model cannot read any text with it.
        """
        (checked,) = check_texts([query])
        return self._score(checked, check_texts(texts))

    @abstractmethod
    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """Return scores of checked texts: (n,)."""
