"""The protocol of a reranker, and a base class that checks its input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from semlex.errors import ModelError
from semlex.validation import check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Alternatives that the error about a missing reranker advises.
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


def probabilities(logits: NDArray[np.floating], source: str, remedy: str = "dtype='float32'") -> NDArray[np.float32]:
    """Return the logistic function of the logits of texts; refuse a logit that is not finite."""
    faulty = np.flatnonzero(~np.isfinite(logits))
    if faulty.size:
        raise ModelError(f"{source}: the score of row {faulty[0]} is not finite; {remedy} may help")
    # exp never sees a large number.
    return (1.0 / (1.0 + np.exp(np.clip(-logits.astype(np.float64), -700.0, 700.0)))).astype(np.float32)


class CheckedReranker(ABC):
    """Base class of semlex's rerankers: it checks query and texts."""

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
