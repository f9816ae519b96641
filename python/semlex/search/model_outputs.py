"""What models answer to a search: usable vectors and scores, and errors without a word of a query or a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.errors import ModelError, SearchTimeoutError, SemlexError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from semlex.search.request import Request


def usable_vector(made: ArrayLike) -> NDArray[np.float32]:
    """The vector that a model made of a query."""
    vector = np.asarray(made, dtype=np.float32, order="C")
    if vector.ndim != 1 or _core.validate_rows([("vector", "vector", vector[None], None)]):
        raise ModelError("the model's vector of the query cannot be used: not one row of finite numbers, not all zero")
    return vector


def usable_scores(made: ArrayLike, count: int) -> NDArray[np.float32]:
    """The scores that a reranker gave."""
    scores = np.asarray(made, dtype=np.float32)
    if scores.shape != (count,) or not np.isfinite(scores).all():
        raise ModelError("the reranker's scores cannot be used: not one finite number a text")
    return scores


def embedding_error(reason: Exception, request: Request, *, is_late: bool) -> SemlexError:
    """Why the query has no vector. A model's own time-out is no deadline of the search."""
    if is_late:
        return SearchTimeoutError(
            f"embedding the query took longer than the deadline of {request.deadline:g} s allows: raise deadline=, or "
            "search by words alone (mode='keyword')"
        )
    return reason if isinstance(reason, SemlexError) else ModelError(f"embedding the query failed: {kind_of(reason)}")


def kind_of(error: BaseException) -> str:
    """A model's error without its text, which may quote the query or a document."""
    return type(error).__name__
