"""What every reranker is."""

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

    A reranker may have an attribute ``calls_at_once``, an int from 1: how many searches may ask it at the same time; 1
    without it, because a local model uses the whole machine for one call.
    """

    @property
    def identity(self) -> str:
        """Model and revision, or model and server, in one line."""
        ...

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Judges texts.

        Args:
            query: The query.
            texts: n candidates.

        Returns:
            (n,) relevance, 0 to 1, in the order of the texts: a probability where the model gives one.

        Raises:
            ValidationError: The query or a text is not a str or holds a lone surrogate.
            ModelError: The model cannot be loaded or its server reached, or its scores cannot be used.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        ...

    def close(self) -> None:
        """Releases the model and its memory; a second call does nothing."""
        ...


class CheckedReranker(ABC):
    """What the rerankers here have in common: query and texts are checked."""

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Judges texts.

        Args:
            query: The query.
            texts: n candidates.

        Returns:
            (n,) relevance, 0 to 1, in the order of the texts.

        Raises:
            ValidationError: The query or a text is not a str or holds a lone surrogate.
            ConfigurationError: The query leaves no room for a text in what the model reads.
            ModelError: The model cannot be loaded, was closed, or its scores cannot be used. Of a server:
                `ModelServerError`.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        (checked,) = check_texts([query])
        return self._score(checked, check_texts(texts))

    @abstractmethod
    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """Scores of checked texts: (n,)."""
