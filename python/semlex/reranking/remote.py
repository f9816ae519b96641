"""What rerankers behind a server have in common: keys, texts in batches, and answers whose order proves nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, TypeGuard

import numpy as np

from semlex.errors import ConfigurationError, MissingKeyError, ModelServerError
from semlex.models.http_client import CALLS_AT_ONCE, ModelServer
from semlex.models.model_names import key_for
from semlex.reranking.known import KEY_VARIABLES, environment
from semlex.validation import check_range, check_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

OTHER_KEY_VARIABLE = "SEMLEX_RERANKER_API_KEY"
MOST_FLOAT32 = 3.4e38


class ServerReranker(ABC):
    """A reranker whose model runs behind a server.

    The query and the texts are sent to that server, in batches, several at a time. Nothing is sent before the first
    call of `score`. Blocking, and safe for several threads.

    Args:
        model: Name by which the server knows the model.
        base_url: Address in front of every path.
        api_key: Key of the account; None for the environment's (`KEY_VARIABLES`, `OTHER_KEY_VARIABLE`; the latter goes
            to the host of ``SEMLEX_RERANKER_MODEL`` alone where that is an address).
        batch_size: Most texts of a request, 1 to `most_texts`.
        timeout: Most seconds of one attempt.
        attempts: Most attempts of one request.
        concurrency: Most requests at the same time in one call.

    Raises:
        ConfigurationError: A parameter cannot be used, or the address is that of an account whose key is not set.
    """

    most_texts: ClassVar[int] = 1000
    # Answers that may mean "too many texts": payload too large, and what some servers say instead.
    halved_at: ClassVar[frozenset[int]] = frozenset({413, 422})

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None,
        batch_size: int,
        timeout: float,
        attempts: int,
        concurrency: int,
    ) -> None:
        check_range("batch_size", batch_size, 1, self.most_texts)
        if not model.strip() or not model.isprintable():
            raise ConfigurationError("model must be the name by which the server knows it, in one line, and not blank")
        address = base_url.rstrip("/")
        variables = KEY_VARIABLES.get(address)
        if variables is None:
            key, variable = key_for(OTHER_KEY_VARIABLE, address)
        else:
            variable = next(filter(environment, variables), variables[0])
            key = environment(variable)
            if api_key is None and key is None:
                raise MissingKeyError(f"{address} wants a key: set the environment variable {' or '.join(variables)}")
        self._model = model
        self._batch_size = batch_size
        self._server = ModelServer(
            address,
            api_key=key if api_key is None else api_key,
            key_variable=variable,
            timeout=timeout,
            attempts=attempts,
            concurrency=concurrency,
        )

    @property
    def identity(self) -> str:
        """Model and server, in one line."""
        return f"{self._model}@{self.host}"

    @property
    def host(self) -> str:
        """Where texts are sent."""
        return self._server.host

    @property
    def calls_at_once(self) -> int:
        """How many searches may ask it at the same time."""
        return CALLS_AT_ONCE

    def score(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """Judges texts.

        Args:
            query: The query.
            texts: n candidates.

        Returns:
            (n,) relevance, 0 to 1, in the order of the texts.

        Raises:
            ValidationError: The query or a text is not a str or holds a lone surrogate.
            ModelServerError: The server cannot be reached, refuses, or answers with something else than one usable
                score per text.
            ModelError: The reranker was closed.
            WorkAbandonedError: Nobody waits for the result any more.
        """
        (checked,) = check_texts([query])
        candidates = check_texts(texts)
        size = self._batch_size
        batches = [candidates[start : start + size] for start in range(0, len(candidates), size)]
        scores = self._server.map(lambda batch: self._ask_or_halve(checked, batch), batches)
        return np.concatenate([np.empty(0, dtype=np.float32), *scores])

    def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        self._server.close()

    @abstractmethod
    def _ask(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """One request: the score of every text, in order."""

    def _ask_or_halve(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        """Scores of some texts; what the server refuses as too many is halved, down to a single text."""
        try:
            return self._ask(query, texts)
        except ModelServerError as error:
            if error.status not in self.halved_at or len(texts) == 1:
                raise
        middle = len(texts) // 2
        return np.concatenate([self._ask_or_halve(query, half) for half in (texts[:middle], texts[middle:])])


def read_scores(
    rows: object, *, count: int, position: str, score: str, source: str, most: float | None, remedy: str
) -> NDArray[np.float32]:
    """Reads one score per text, in whatever order the answer lists them.

    Args:
        rows: The answer's list of objects; checked here.
        count: Number of texts that were asked about.
        position: Field that holds the number of a text, counted from 0.
        score: Field that holds its score.
        source: Who answered, for messages.
        most: Scores must be from 0 to this; None where any finite number will do.
        remedy: What helps when a score is outside of that.

    Returns:
        (count,) scores in the order of the texts.

    Raises:
        ModelServerError: The list is none, or a text is missing from it, stands in it twice or has no usable score.
    """
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
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST_FLOAT32 < value < MOST_FLOAT32
