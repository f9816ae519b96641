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
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from semlex.embedding.base import Embedder
    from semlex.embedding.query_cache import QueryEmbeddingCache
    from semlex.open_collection import OpenCollection, OpenModels
    from semlex.search.request import Request
    from semlex.search.state import SearchState

# Share of a deadline that embedding the query may take; the rest is the database's.
EMBEDDING_SHARE = 0.7
# The sum of two vectors of norm 1 that is shorter has no direction but that of rounding.
OPPOSITE = 1e-3


async def embed_query(state: SearchState, opened: OpenCollection) -> None:
    """Embed the query for vector search, unless a vector was given."""
    # If that fails and keyword search can answer, the failure becomes the result of vector search.
    request, models, alone = state.request, opened.models, state.legs == ["vector"]
    if "vector" not in state.legs or state.vector is not None:
        return
    embedder = models.embedder
    if embedder is None or request.text is None:
        raise ModelError("no embedding model is open to embed the query")
    # The identity that the embedder had when it was opened: reading it again may mean waiting for its model.
    identity = "" if models.version is None else models.version.identity_key
    remaining = request.remaining()
    limit = None if remaining is None else remaining * (1.0 if alone else EMBEDDING_SHARE)
    started = time.perf_counter()
    deadline: asyncio.Timeout | None = None
    vectors: dict[str, NDArray[np.float32]] = {}
    failure: Exception | None = None
    mismatch: ModelMismatchError | None = None
    missing = _missing(request.embedded_texts, vectors, opened, identity)
    state.query_cached = not missing
    try:
        async with request.clock.timeout(limit) as deadline:
            mismatch = await opened.mismatch()
            if missing and mismatch is None:
                with embedding_span(models, len(missing)):
                    made = await opened.executor.query(
                        _embedded, opened.query_cache, embedder, identity, missing, model=embedder
                    )
                vectors |= zip(missing, made, strict=True)
    except Exception as reason:  # noqa: BLE001 - whatever a model raises, the other leg may answer
        failure = reason if missing else None
    if mismatch is not None:
        raise mismatch
    seconds, is_late = time.perf_counter() - started, deadline is not None and deadline.expired()
    _take(state, vectors if failure is None else failure, seconds, is_late=is_late)


async def embed_queries(states: Sequence[SearchState], opened: OpenCollection) -> None:
    """Embed the queries of many searches in one batch; reuse cached vectors."""
    # If that fails and keyword search can answer, the failure becomes the result of every search's vector search.
    models = opened.models
    identity = "" if models.version is None else models.version.identity_key
    wanted = [state for state in states if "vector" in state.legs and state.vector is None and state.request.text]
    if not wanted:
        return
    vectors: dict[str, NDArray[np.float32]] = {}
    asked: dict[str, None] = {}
    for state in wanted:
        missing = _missing(state.request.embedded_texts, vectors, opened, identity)
        state.query_cached = not missing
        asked |= dict.fromkeys(missing)
    if models.embedder is None:
        raise ModelError("no embedding model is open to embed the query")
    started = time.perf_counter()
    failure: Exception | None = None
    mismatch: ModelMismatchError | None = None
    try:
        mismatch = await opened.mismatch()
        if asked and mismatch is None:
            with embedding_span(models, len(asked)):
                made = await opened.executor.query(
                    opened.query_cache.embed_many, models.embedder, identity, list(asked), model=models.embedder
                )
            vectors |= zip(asked, made, strict=True)
    except Exception as reason:  # noqa: BLE001 - whatever a model raises, the other leg may answer
        failure = reason
    if mismatch is not None:
        raise mismatch
    seconds = time.perf_counter() - started
    for state in wanted:
        _take(state, vectors if state.query_cached or failure is None else failure, seconds, is_late=False)


def _missing(
    texts: Sequence[str], vectors: dict[str, NDArray[np.float32]], opened: OpenCollection, identity: str
) -> list[str]:
    """Add the cached vectors of texts to `vectors`; return the texts that have no cached vector."""
    found = {text: opened.query_cache.find(identity, text) for text in texts}
    vectors |= {text: vector for text, vector in found.items() if vector is not None}
    return [text for text, vector in found.items() if vector is None]


def _embedded(
    cache: QueryEmbeddingCache, embedder: Embedder, identity: str, texts: Sequence[str]
) -> list[NDArray[np.float32]]:
    """Return vectors of the texts of one search; a text that several searches need at once is embedded once."""
    if len(texts) == 1:
        return [cache.embed(embedder, identity, texts[0])]
    return cache.embed_many(embedder, identity, texts)


def embedding_span(models: OpenModels, texts: int) -> Span:
    """Return the span of a call of an embedding model."""
    version = models.version
    return span(
        Work.EMBEDDINGS,
        "" if version is None else short_name(version.model),
        {DIMENSIONS: None if version is None else version.dimensions, SERVER: _host(models), TEXTS: texts},
        is_call=_host(models) is not None,
    )


def _host(models: OpenModels) -> str | None:
    """Return the host to which texts are sent, if the model is behind a server."""
    host: str | None = getattr(models.embedder, "host", None)
    return host


def _take(
    state: SearchState, made: dict[str, NDArray[np.float32]] | Exception, seconds: float, *, is_late: bool
) -> None:
    """Set the query's vector from the vectors of its texts, or record the failure of vector search."""
    # `seconds` is the time that embedding took.
    reason = made if isinstance(made, Exception) else None
    if not isinstance(made, Exception):
        try:
            state.vector = _mean([usable_query_vector(made[text]) for text in state.request.embedded_texts])
        except ModelError as error:
            reason = error
    if reason is None:
        state.add_time("embed", seconds)
        return
    failure = _embedding_error(reason, state.request, is_late=is_late)
    if state.legs == ["vector"]:
        raise failure from (None if isinstance(reason, (SemlexError, TimeoutError)) else reason)
    state.failed["vector"] = failed_leg(failure, seconds * 1000)


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
