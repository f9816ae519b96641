"""Record spans of OpenTelemetry, if the program has set it up; the names of all attributes are here.

OpenTelemetry is not a dependency: a program that wants spans imports ``opentelemetry.trace`` and sets a provider. A
span has no error messages, because a driver or a model may quote a text in them. Attributes of databases follow stable
conventions of OpenTelemetry; those of models (``gen_ai.…``) are still in development; ``semlex.…`` are our own.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType


TRACER = "semlex"
# Name of the environment variable that lets questions and what was found into spans, as for other libraries of models.
CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_VALUES = frozenset({"true", "1", "span_only", "span_and_event"})


class Work(Enum):
    """The kinds of spans: (word, attribute that holds this word, attribute that holds the name of the object)."""

    RETRIEVAL = ("retrieval", "gen_ai.operation.name", "gen_ai.data_source.id")
    EMBEDDINGS = ("embeddings", "gen_ai.operation.name", "gen_ai.request.model")
    RERANK = ("rerank", "gen_ai.operation.name", "gen_ai.request.model")
    CHAT = ("chat", "gen_ai.operation.name", "gen_ai.request.model")
    DATABASE = ("postgresql", "db.system.name", "db.operation.name")
    REQUEST = ("http", "url.scheme", "http.request.method")


# Of every span.
ERROR_TYPE = "error.type"
# Of a retrieval.
TOP_K = "gen_ai.retrieval.top_k"
QUERY_TEXT = "gen_ai.retrieval.query.text"  # by choice
DOCUMENTS = "gen_ai.retrieval.documents"  # by choice: ids and scores
MODE = "semlex.mode"
HITS = "semlex.hits"
SEARCHES = "semlex.searches"
FAILED_LEGS = "semlex.failed_legs"
# Of a model.
DIMENSIONS = "gen_ai.embeddings.dimension.count"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
SERVER = "server.address"
TEXTS = "semlex.texts"
# Of the database.
NAMESPACE = "db.namespace"
SQLSTATE = "db.response.status_code"
RETRY = "retry"  # an event
# Of a request to the HTTP server.
ROUTE = "http.route"
STATUS = "http.response.status_code"
REQUEST_ID = "semlex.request_id"

# Kind -> a span's name, what it covers, and its attributes beside those of its kind.
SPANS: dict[Work, tuple[str, str, tuple[str, ...]]] = {
    Work.RETRIEVAL: (
        "retrieval COLLECTION",
        "a whole search, or several in one call",
        (TOP_K, SEARCHES, MODE, HITS, FAILED_LEGS, QUERY_TEXT, DOCUMENTS),
    ),
    Work.EMBEDDINGS: (
        "embeddings MODEL",
        "embedding a query, unless its vector was cached",
        (DIMENSIONS, TEXTS, SERVER),
    ),
    Work.DATABASE: (
        "DOING postgresql",
        "a transaction with its retries, each of which is an event `retry` with its SQLSTATE",
        (NAMESPACE, SQLSTATE, FAILED_LEGS),
    ),
    Work.RERANK: ("rerank MODEL", "a call of the reranker", (TEXTS, SERVER)),
    Work.CHAT: (
        "chat MODEL",
        "a request to a language model, until its response ends",
        (SERVER, INPUT_TOKENS, OUTPUT_TOKENS),
    ),
    Work.REQUEST: (
        "METHOD ROUTE",
        "a request to the HTTP server, below the span that its `traceparent` names; an error from status 500 on",
        (ROUTE, STATUS, REQUEST_ID),
    ),
}


class Span:
    """A span that records nothing; `_RecordedSpan` records. As a context manager it becomes the current span."""

    is_recorded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes; those that are None are left out."""

    def rename(self, name: str) -> None:
        """Give the span another name."""

    def fail(self, kind: str) -> None:
        """Mark the span as failed with this kind of error, also if no error is raised."""

    def tell(self, event: str, attributes: Mapping[str, Any]) -> None:
        """Add an event to the span."""

    def start(self) -> Self:
        """Begin the span without making it the current one."""
        return self

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the span the current one inside the block."""
        yield

    def end(self, error: BaseException | None = None) -> None:
        """End the span; a second call does nothing."""


_OFF = Span()


class _RecordedSpan(Span):
    is_recorded = True

    def __init__(self, trace: Any, provider: Any, name: str, given: dict[str, Any]) -> None:
        self._trace, self._tracer, self._name, self._given = trace, _tracer(provider), name, given
        self._span: Any = None
        self._use: Any = None

    def __enter__(self) -> Self:
        self.start()
        self._use = self._used()
        self._use.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._use.__exit__(None, None, None)
        self.end(error)

    def note(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes(_given(attributes))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        self._span.set_attribute(ERROR_TYPE, kind)
        self._span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))

    def tell(self, event: str, attributes: Mapping[str, Any]) -> None:
        self._span.add_event(event, _given(attributes))

    def start(self) -> Self:
        self._span = self._tracer.start_span(self._name, **self._given)
        return self

    @contextmanager
    def current(self) -> Iterator[None]:
        with self._used():
            yield

    def end(self, error: BaseException | None = None) -> None:
        # A generator whose reader has enough is closed, and did not fail.
        if error is not None and not isinstance(error, GeneratorExit):
            self.fail(type(error).__name__)
        if self._span.is_recording():
            self._span.end()

    def _used(self) -> Any:
        return self._trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )


def span(
    work: Work, of: str, attributes: Mapping[str, Any] | None = None, *, is_call: bool = False, parent: Any = None
) -> Span:
    """Return a span, recorded if the program has set OpenTelemetry up."""
    found = _provider()
    if found is None:
        return _OFF
    trace, provider = found
    first, name_of_work, name_of_second = work.value
    kind = trace.SpanKind.CLIENT if is_call else trace.SpanKind.INTERNAL
    title = f"{of} {first}" if work is Work.DATABASE else f"{first} {of}"
    if work is Work.REQUEST:
        title, kind = of, trace.SpanKind.SERVER
    named = {name_of_work: first, name_of_second: of, **_given(attributes or {})}
    return _RecordedSpan(trace, provider, title, {"kind": kind, "attributes": named, "context": parent})


def note(attributes: Mapping[str, Any]) -> None:
    """Add attributes to the current span, which must be one of semlex's."""
    found = _provider()
    if found is not None:
        found[0].get_current_span().set_attributes(_given(attributes))


def is_on() -> bool:
    """Return whether the program has set OpenTelemetry up."""
    return _provider() is not None


def takes_content() -> bool:
    """Return whether the program wants questions, and the ids of hits, in spans."""
    return os.environ.get(CONTENT_VARIABLE, "").lower() in CONTENT_VALUES


def _provider() -> tuple[Any, Any] | None:
    """Return the module of OpenTelemetry and its provider of tracers, if the program has set one."""
    trace = sys.modules.get("opentelemetry.trace")
    ask = getattr(trace, "get_tracer_provider", None)  # None while another thread imports it
    if ask is None:
        return None
    provider = ask()
    return None if isinstance(provider, trace.ProxyTracerProvider) else (trace, provider)  # type: ignore[union-attr]


_known: tuple[Any, Any] = (None, None)


def _tracer(provider: Any) -> Any:
    global _known  # noqa: PLW0603 - a provider makes its tracer once
    if _known[0] is not provider:
        _known = (provider, provider.get_tracer(TRACER))
    return _known[1]


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
