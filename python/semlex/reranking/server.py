"""How rerankers talk to servers: keys, texts in batches, and answers whose order proves nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from semlex.errors import ConfigurationError, ModelServerError
from semlex.models.server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

COHERE_URL = "https://api.cohere.com/v2"
JINA_URL = "https://api.jina.ai/v1"
OPENAI_URL = "https://api.openai.com/v1"
OPENROUTER_URL = "https://openrouter.ai/api/v1"
# Environment variables of the key that goes to an address and nowhere else.
KEY_VARIABLES = {
    COHERE_URL: ("COHERE_API_KEY", "CO_API_KEY"),
    JINA_URL: ("JINA_API_KEY",),
    OPENAI_URL: ("OPENAI_API_KEY",),
    OPENROUTER_URL: ("OPENROUTER_API_KEY",),
}
OTHER_KEY_VARIABLE = "SEMLEX_RERANKER_API_KEY"
# Payload too large, and what some servers answer instead when a request holds too many texts.
TOO_LARGE_STATUSES = frozenset({413, 422})
MOST_FLOAT32 = 3.4e38


def open_server(base_url: str, api_key: str | None, *, timeout: float, attempts: int, concurrency: int) -> ModelServer:
    """A server with the key of its account; nothing is sent yet.

    Args:
        base_url: Address in front of every path.
        api_key: The key; None for the environment's (`KEY_VARIABLES`, `OTHER_KEY_VARIABLE`).
        timeout: Most seconds of one attempt.
        attempts: Most attempts of one request.
        concurrency: Most requests at the same time in one call.

    Returns:
        The server.

    Raises:
        ConfigurationError: A parameter cannot be used, or the address is that of an account whose key is not set.
    """
    address = base_url.rstrip("/")
    variables = KEY_VARIABLES.get(address, (OTHER_KEY_VARIABLE,))
    variable = next(filter(environment, variables), None)
    if api_key is None and variable is None and address in KEY_VARIABLES:
        raise ConfigurationError(f"{address} wants a key: set the environment variable {' or '.join(variables)}")
    return ModelServer(
        address,
        api_key=environment(variable) if api_key is None and variable is not None else api_key,
        key_variable=variable or variables[0],
        timeout=timeout,
        attempts=attempts,
        concurrency=concurrency,
    )


def environment(variable: str) -> str | None:
    """An environment variable; a blank one counts as not set."""
    return os.environ.get(variable, "").strip() or None


def score_in_batches(
    server: ModelServer,
    path: str,
    texts: Sequence[str],
    *,
    batch_size: int,
    body: Callable[[Sequence[str]], Mapping[str, object]],
    read: Callable[[Any, int], NDArray[np.float32]],
) -> NDArray[np.float32]:
    """Asks a server for scores, several batches at a time.

    A batch that the server refuses as too large is halved, down to a single text.

    Args:
        server: The server.
        path: Path behind its base URL.
        texts: n texts.
        batch_size: Most texts of a request.
        body: Makes a request of some texts.
        read: Makes scores of an answer and of the number of texts that were asked about.

    Returns:
        (n,) scores in the order of the texts.

    Raises:
        ModelServerError: The server refuses even a single text, or its answer cannot be used.
    """

    def ask(batch: Sequence[str]) -> NDArray[np.float32]:
        try:
            return read(server.post(path, body(batch)), len(batch))
        except ModelServerError as error:
            if error.status not in TOO_LARGE_STATUSES or len(batch) == 1:
                raise
        middle = len(batch) // 2
        return np.concatenate([ask(batch[:middle]), ask(batch[middle:])])

    batches = [texts[start : start + batch_size] for start in range(0, len(texts), batch_size)]
    return np.concatenate([np.empty(0, dtype=np.float32), *server.map(ask, batches)])


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


def check_model_name(model: str) -> str:
    """Refuses a model's name that cannot stand in a request and in one line of a report.

    Args:
        model: The name.

    Returns:
        The same name.

    Raises:
        ConfigurationError: It is blank, or holds a line break or another control character.
    """
    if not model.strip() or not model.isprintable():
        raise ConfigurationError("model must be the name by which the server knows it, in one line, and not blank")
    return model


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number that float32 can hold (JSON knows larger ones, and Python reads NaN in it)."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST_FLOAT32 < value < MOST_FLOAT32
