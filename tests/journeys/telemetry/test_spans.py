"""Spans: which there are, what they hold and what not, and that they nest across threads and tasks."""

import asyncio
import inspect
import json
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

import semlex.telemetry
from semlex import Client, Document, SyncClient
from semlex.chat import OpenAIChatModel
from semlex.errors import SemlexError, StoreError
from semlex.reranking.term_overlap import TermOverlapReranker
from semlex.store.postgres.database import Database
from semlex.telemetry import CONTENT_VARIABLE, Span, Work, span
from semlex.testing import HashEmbedder
from tests.support.chat_servers import answer_text, chat_server
from tests.support.http_server import in_process
from tests.support.model_servers import status
from tests.support.spans import recorded

TEXTS = ["A key is rotated every 90 days.", "Keys lie in the vault.", "A banana is a fruit."]
QUESTION = "secretquestion rotated key"


class TracedEmbedder(HashEmbedder):
    """A model with a span of its own, as instrumented clients of model servers have."""

    def embed_query(self, text):
        with trace.get_tracer_provider().get_tracer("model").start_as_current_span("inside the model"):
            return super().embed_query(text)


@pytest.fixture
def spans():
    with recorded() as kept:
        yield kept


@pytest.fixture
async def client(database_url):
    reranker = TermOverlapReranker()
    async with Client(database_url, TracedEmbedder(), reranker_model=reranker, use_reranking=True) as opened:
        documents = [Document(text, id=f"d{n}") for n, text in enumerate(TEXTS)]
        await opened.collection("handbook").add_documents(documents)
        yield opened


@pytest.fixture
async def collection(client):
    """Where a search has opened all that searches need."""
    opened = client.collection("handbook")
    await opened.search("warm", 1)
    return opened


async def test_a_search_is_one_tree_of_spans(client, spans):
    spans.forget()
    with spans.tracer.start_as_current_span("request"):
        await client.collection("handbook").search(QUESTION, 2)
    paths = {tuple(spans.path(one)) for one in spans.all()}
    top = ("request", "retrieval handbook")
    embeddings = (*top, "embeddings semlex.testing/hash")
    assert {
        ("request",), top, embeddings, (*embeddings, "inside the model"), (*top, "search postgresql"),
        (*top, "rerank term-overlap/1"),
    } <= paths  # fmt: skip
    [retrieval] = spans.named("retrieval")
    assert dict(retrieval.attributes or {}) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "handbook",
        "gen_ai.retrieval.top_k": 2,
        "semlex.searches": 1,
        "semlex.mode": "hybrid",
        "semlex.hits": 2,
    }
    [embedding] = spans.named("embeddings")
    assert embedding.attributes["gen_ai.embeddings.dimension.count"] == 64
    [reading] = spans.named("search postgresql")
    assert {"db.system.name": "postgresql", "db.operation.name": "search"}.items() <= reading.attributes.items()
    assert reading.attributes["db.namespace"]
    assert reading.kind is SpanKind.CLIENT
    assert all(one.status.status_code is StatusCode.UNSET for one in spans.all())


async def test_searches_at_the_same_time_do_not_mix(collection, spans):
    async def request(number):
        with spans.tracer.start_as_current_span(f"request {number}"):
            await collection.search(f"key {number}", 1)

    spans.forget()
    await asyncio.gather(*(request(number) for number in range(8)))
    for kind in ("retrieval", "embeddings", "search postgresql", "rerank", "inside the model"):
        assert sorted(spans.path(one)[0] for one in spans.named(kind)) == [f"request {n}" for n in range(8)], kind
    assert len({one.context.trace_id for one in spans.all()}) == 8


def test_spans_of_a_program_without_an_event_loop_nest_too(database_url, spans):
    with SyncClient(database_url, embedding_model=TracedEmbedder(), use_reranking=False) as client:
        client.collection("handbook").add_documents([Document(TEXTS[0], id="d")])
        spans.forget()
        with spans.tracer.start_as_current_span("request"):
            client.collection("handbook").search(QUESTION, 1)
    assert {spans.path(one)[0] for one in spans.all()} == {"request"}
    assert spans.path(spans.named("inside")[0])[1:3] == ["retrieval handbook", "embeddings semlex.testing/hash"]


async def test_texts_stand_in_no_span_and_the_question_by_choice(collection, spans, monkeypatch):
    for value in ("", "false", "no_content", "event_only"):
        monkeypatch.setenv(CONTENT_VARIABLE, value)
        await collection.search(QUESTION, 2)
        assert "secretquestion" not in spans.text()
        assert "gen_ai.retrieval.documents" not in spans.text()
    monkeypatch.setenv(CONTENT_VARIABLE, "true")
    spans.forget()
    found = await collection.search(QUESTION, 2)
    [retrieval] = spans.named("retrieval")
    assert retrieval.attributes["gen_ai.retrieval.query.text"] == QUESTION
    listed = retrieval.attributes["gen_ai.retrieval.documents"]
    assert [one["id"] for one in json.loads(listed)] == [hit.id for hit in found]
    assert not any(text in spans.text() for text in TEXTS)


async def test_a_database_error_is_recorded_by_its_sqlstate_alone_and_a_retry_as_an_event(database_url, spans):
    tries = []

    async def fail(connection):
        await connection.execute("SELECT 'secretvalue'::int")

    async def once_more(connection):
        tries.append(connection)
        if len(tries) == 1:
            await connection.execute("DO $$BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END$$")

    async with Database(database_url) as database:
        with pytest.raises(StoreError):
            await database.read("look at it", fail)
        await database.read("try it", once_more)
    [one], [tried] = spans.named("look at it"), spans.named("try it")
    assert (one.attributes["db.response.status_code"], one.attributes["error.type"]) == ("22P02", "StoreError")
    assert (one.status.status_code, one.status.description) == (StatusCode.ERROR, None)
    assert one.events == ()
    assert "secretvalue" not in spans.text()
    retry = ("retry", "40001")
    assert [(event.name, event.attributes["db.response.status_code"]) for event in tried.events] == [retry]
    assert tried.status.status_code is StatusCode.UNSET


async def test_a_leg_that_fails_is_told(collection, spans, monkeypatch):
    def broken(_self, text):
        raise ValueError(text)

    monkeypatch.setattr(TracedEmbedder, "embed_query", broken)
    spans.forget()
    await collection.search(QUESTION, 1)
    [retrieval], [embedding] = spans.named("retrieval"), spans.named("embeddings")
    assert retrieval.attributes["semlex.failed_legs"] == ("vector",)
    assert embedding.attributes["error.type"] == "ValueError"
    assert "secretquestion" not in spans.text()


@pytest.mark.parametrize("way", ["complete", "stream", "closed", "refused"])
async def test_a_chat_is_one_span_as_long_as_it_is_read(spans, way):
    say = answer_text([("secretanswer", [(1, "q")])])
    with chat_server(lambda _request: say, [status(500)] * 9 if way == "refused" else []) as server:
        model = OpenAIChatModel("tiny", server.url, attempts=1)
        try:
            with spans.tracer.start_as_current_span("request"):
                if way == "complete":
                    model.complete([{"role": "user", "content": "secretquestion"}])
                elif way == "refused":
                    with pytest.raises(SemlexError):
                        list(model.stream([{"role": "user", "content": "secretquestion"}]))
                else:
                    pieces = model.stream([{"role": "user", "content": "secretquestion"}])
                    next(pieces)
                    # Whoever reads has the span that he had.
                    assert trace.get_current_span().name == "request"
                    assert spans.named("chat") == []
                    _ = pieces.close() if way == "closed" else list(pieces)
        finally:
            model.close()
    [chat] = spans.named("chat")
    assert spans.path(chat) == ["request", "chat tiny"]
    assert chat.kind is SpanKind.CLIENT
    counted = (chat.attributes.get("gen_ai.usage.input_tokens"), chat.attributes.get("gen_ai.usage.output_tokens"))
    assert counted == ((11, 7) if way in ("complete", "stream") else (None, None))
    assert chat.attributes.get("error.type") == ("ModelServerError" if way == "refused" else None)
    assert "secret" not in spans.text()


async def test_without_a_provider_a_search_does_few_calls_more(collection):
    """Counted, not timed: how often a function of the package that makes spans is entered."""
    calls = 0

    def count(frame, event, _argument):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == semlex.telemetry.__file__

    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    sys.setprofile(count)
    try:
        await collection.search(QUESTION, 2)
    finally:
        sys.setprofile(None)
    assert 0 < calls <= 20


async def test_nothing_is_imported_and_all_works_where_it_is_not_installed(client, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    asked = []

    class Missing:
        def find_spec(self, name, *_):
            asked.extend([name] if name.startswith("opentelemetry") else [])

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    # The model of this fixture has spans of its own; the words do without.
    assert await client.collection("handbook").search(QUESTION, 2, mode="keyword")
    assert asked == []
    assert span(Work.CHAT, "tiny").is_recorded is False


def test_a_span_that_is_not_recorded_can_do_what_a_recorded_one_can():
    recorded_kind = semlex.telemetry._RecordedSpan
    names = [name for name, _ in inspect.getmembers(recorded_kind, callable) if not name.startswith("_")]
    for name in names:
        assert inspect.signature(getattr(Span, name)) == inspect.signature(getattr(recorded_kind, name))


async def test_a_request_is_a_span_below_that_of_its_sender(client, spans):
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    async with in_process(client) as served:
        spans.forget()
        sender = {"traceparent": f"00-{trace_id}-{span_id}-01"}
        await served.http.post("/v1/search", json={"query": QUESTION}, headers=sender)
        await served.http.get("/v1/documents/secretpath?x=secretvalue")
        await served.http.get("/v1/chunks?filters=secretfilter")
    [search] = spans.named("POST /v1/search")
    assert (search.context.trace_id, search.parent.span_id) == (int(trace_id, 16), int(span_id, 16))
    assert search.kind is SpanKind.SERVER
    assert {name: value for name, value in search.attributes.items() if name != "semlex.request_id"} == {
        "url.scheme": "http",
        "http.request.method": "POST",
        "http.route": "/v1/search",
        "http.response.status_code": 200,
    }
    [retrieval] = spans.named("retrieval")
    assert spans.path(retrieval)[0] == "POST /v1/search"
    names = {one.name for one in spans.all() if one.kind is SpanKind.SERVER}
    assert names == {"POST /v1/search", "GET", "GET /v1/chunks"}
    assert "secret" not in spans.text()
