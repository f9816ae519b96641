"""Every name that stands in a span: the one table of them.

Those of databases are stable conventions of OpenTelemetry; those of models (``gen_ai.…``) are still in development and
may change, here and nowhere else. What begins with ``semlex.`` is semlex's own.
"""

from __future__ import annotations

from enum import Enum

TRACER = "semlex"
# Name of the environment variable that lets questions and what was found into spans, as for other libraries of models.
CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CONTENT_VALUES = frozenset({"true", "1", "span_only", "span_and_event"})


class Work(Enum):
    """Kinds of spans, by the first word of their names; the second says of what.

    The value is the name, the attribute that holds it, and the attribute that holds the second word.
    """

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
