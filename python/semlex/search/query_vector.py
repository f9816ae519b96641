"""Get the query's vector, from memory or from the embedding model."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from semlex import _core
from semlex.errors import ModelError, ModelMismatchError, SearchTimeoutError, SemlexError
from semlex.models.model_names import short_name
from semlex.store.query.leg import failed_leg
from semlex.telemetry import DIMENSIONS, SERVER, TEXTS, Span, Work, span

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.search.request import Request
    from semlex.search.state import SearchState

# Share of a deadline that embedding the query may take; the rest is the database's.
EMBEDDING_SHARE = 0.7
# The sum of two vectors of norm 1 that is shorter has no direction but that of rounding.
OPPOSITE = 1e-3


async def embed_query(state: SearchState, opened: OpenCollection) -> None:
    """Embed the query for vector search within its share of the deadline, unless a vector was given."""
    remaining = state.request.remaining()
    share = 1.0 if state.legs == ["vector"] else EMBEDDING_SHARE
    await embed_queries([state], opened, None if remaining is None else remaining * share)


async def embed_queries(states: Sequence[SearchState], opened: OpenCollection, limit: float | None = None) -> None:
    """Embed the queries of searches in one batch, within `limit` seconds; reuse cached vectors."""
    # If that fails and keyword search can answer, the failure becomes the result of every search's vector search.
    models, cache = opened.models, opened.query_cache
    wanted = [state for state in states if "vector" in state.legs and state.vector is None and state.request.text]
    if not wanted:
        return
    if models.embedder is None:
        raise ModelError("no embedding model is open to embed the query: name one (embedding_model=, --model)")
    # The identity that the embedder had when it was opened: reading it again may mean waiting for its model.
    identity = "" if models.version is None else models.version.identity_key
    started = time.perf_counter()
    vectors: dict[str, NDArray[np.float32]] = {}
    missing: dict[str, None] = {}
    for state in wanted:
        found = {text: cache.find(identity, text) for text in state.request.embedded_texts}
        vectors |= {text: vector for text, vector in found.items() if vector is not None}
        unknown = [text for text, vector in found.items() if vector is None]
        missing |= dict.fromkeys(unknown)
        state.query_cached = not unknown
    deadline: asyncio.Timeout | None = None
    failure: Exception | None = None
    mismatch: ModelMismatchError | None = None
    try:
        async with wanted[0].request.clock.timeout(limit) as deadline:
            mismatch = await opened.mismatch()
            if missing and mismatch is None:
                with embedding_span(models, len(missing)):
                    made = await opened.executor.query(
                        cache.embed_many, models.embedder, identity, list(missing), model=models.embedder
                    )
                vectors |= zip(missing, made, strict=True)
    except Exception as reason:  # noqa: BLE001 - whatever a model raises, the other leg may answer
        failure = reason
    if mismatch is not None:
        raise mismatch
    seconds, is_late = time.perf_counter() - started, deadline is not None and deadline.expired()
    for state in wanted:
        _take(state, vectors, None if state.query_cached else failure, seconds, is_late=is_late)


def embedding_span(models: OpenModels, texts: int) -> Span:
    """Return the span of a call of an embedding model."""
    version = models.version
    host = getattr(models.embedder, "host", None)  # to which texts are sent, if the model is on a server
    return span(
        Work.EMBEDDINGS,
        "" if version is None else short_name(version.model),
        {DIMENSIONS: None if version is None else version.dimensions, SERVER: host, TEXTS: texts},
        is_call=host is not None,
    )


def _take(
    state: SearchState,
    vectors: Mapping[str, NDArray[np.float32]],
    failure: Exception | None,
    seconds: float,
    *,
    is_late: bool,
) -> None:
    """Set the query's vector from the vectors of its texts, or record the failure of vector search."""
    # `seconds` is the time that embedding took.
    if failure is None:
        try:
            state.vector = _mean([usable_query_vector(vectors[text]) for text in state.request.embedded_texts])
        except ModelError as error:
            failure = error
        else:
            state.add_time("embed", seconds)
            return
    shown = _embedding_error(failure, state.request, is_late=is_late)
    if state.legs == ["vector"]:
        raise shown from (None if isinstance(failure, (SemlexError, TimeoutError)) else failure)
    state.failed["vector"] = failed_leg(shown, seconds * 1000)


def _mean(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the mean direction of a question's and its terms' vectors, with the length of the question's vector."""
    # Words of terms count once, as the question's do: counting them 1.5 to 3 times answered one or two of 60 questions
    # more or less. Terms alone were worse.
    question, *others = vectors
    if not others:
        return question
    lengths = [float(np.linalg.norm(vector.astype(np.float64))) for vector in vectors]
    total = np.sum([vector / length for vector, length in zip(vectors, lengths, strict=True)], axis=0)
    length = float(np.linalg.norm(total))
    # Opposite vectors have no mean direction.
    return (total * (lengths[0] / length)).astype(np.float32) if length > OPPOSITE else question


def usable_query_vector(made: ArrayLike) -> NDArray[np.float32]:
    """Return the vector that a model made of a query, after checking it."""
    vector = np.asarray(made, dtype=np.float32, order="C")
    if vector.ndim != 1 or _core.validate_rows([("vector", "vector", vector[None], None)]):
        raise ModelError(
            "the model's vector of the query cannot be used: it must be one row of finite numbers, not all of them zero"
        )
    return vector


def _embedding_error(reason: Exception, request: Request, *, is_late: bool) -> SemlexError:
    """Return the error for a query that could not be embedded; `is_late` means that the search's deadline passed."""
    if is_late:
        return SearchTimeoutError(
            f"embedding the query took longer than the deadline of {request.options['deadline']:g} s allows: raise "
            "deadline=, or search by words alone (mode='keyword')"
        )
    # The kind alone: a model's message may quote the query.
    failed = ModelError(f"embedding the query failed: {type(reason).__name__}")
    return reason if isinstance(reason, SemlexError) else failed
