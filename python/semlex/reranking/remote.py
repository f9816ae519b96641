"""What rerankers behind a server have in common: one score a text, from answers whose order proves nothing."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from semlex.errors import ModelServerError
from semlex.models.remote_model import RemoteModel
from semlex.reranking.base import CheckedReranker

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FLOAT32 = 3.4e38


class RemoteReranker(RemoteModel, CheckedReranker):
    """A reranker whose model runs behind a server. The arguments are those of `RemoteModel`."""

    max_texts = 1000
    accounts = ("cohere", "jina", "openai", "openrouter")
    key_variable = "SEMLEX_RERANKER_API_KEY"
    # Payload too large, and what some servers say instead.
    halved_statuses = frozenset({413, 422})

    @property
    def identity(self) -> str:
        """Model and server, in one line."""
        return f"{self._model}@{self.host}"

    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        scores = self._in_batches(lambda batch: self._ask(query, batch), texts)
        return np.concatenate([np.empty(0, dtype=np.float32), *scores])

    @abstractmethod
    def _ask(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """One request: the score of every text, in order."""


def read_scores(
    rows: object, *, count: int, position: str, score: str, source: str, most: float | None, remedy: str
) -> NDArray[np.float32]:
    """Reads one score per text, in whatever order the answer lists them."""
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else [None]:
        place, value = (row.get(position), row.get(score)) if isinstance(row, dict) else (None, None)
        if not _is_number(value) or not _is_number(place) or place not in range(count):
            raise ModelServerError(
                f"{source} answered {count} texts with something else than a list of objects with {position!r} "
                f"(0 to {count - 1}) and {score!r} (a finite number); check the address and the model"
            )
        if int(place) in scores:
            raise ModelServerError(f"{source} answered {count} texts with two scores for row {place}; check the server")
        if most is not None and not 0.0 <= value <= most:
            raise ModelServerError(
                f"{source} gave row {place} of {count} the score {value:.6g}; expected 0 to {most:g}; {remedy}"
            )
        scores[int(place)] = float(value)
    if len(scores) < count:
        missing = next(row for row in range(count) if row not in scores)
        raise ModelServerError(
            f"{source} answered {count} texts with {len(scores)} scores (the first that is missing is row {missing}); "
            "check the server"
        )
    return np.array([scores[row] for row in range(count)], dtype=np.float32)


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number that float32 can hold (JSON knows larger ones, and Python reads NaN in it)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_FLOAT32 < value < MAX_FLOAT32
