"""A language model on a server: whole and streamed answers, settings that are refused, and every fault between."""

import itertools
import json
import logging
import threading
from contextlib import closing, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document, Enrichment, LLMReranker, chat
from semlex.chat import ChatModel, Completion, OpenAIChatModel, choose_chat_model
from semlex.clock import SYSTEM
from semlex.errors import ConfigurationError, MissingKeyError, ModelError, ModelServerError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models.http_client import Limits
from semlex.types.answers import Usage
from tests.support.chat_servers import EVENT_STREAM, answer_text, chat_server, completion, events, streamed
from tests.support.leaks import shown
from tests.support.line_models import asked_passage, line_about
from tests.support.manual_clock import ManualClock
from tests.support.model_servers import KEY, Reply, cut, echo, raw, status
from tests.support.properties import SAME_SURROUNDINGS, examples
from tests.support.retrievers import sync_opened
from tests.support.waiting import LIMIT, PAUSE, until

PASSAGE = "text-4e5f"
ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": PASSAGE}]
SCHEMA = {"type": "object"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, pauses):
    for name in ("SEMLEX_CHAT_API_KEY", "OPENAI_API_KEY", "SEMLEX_CHAT_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def served(answer="", faults=(), clock=SYSTEM, **options):
    """Open a server that answers with the text or by the function, and a model there."""
    with (
        chat_server(lambda _: answer if isinstance(answer, str) else "", faults) as double,
        closing(OpenAIChatModel("small-model", f"{double.url}/v1", **options)) as model,
    ):
        if callable(answer):
            double.answer = answer
        model._server._clock = clock
        yield double, model


def refused(model, *, stream=True):
    with pytest.raises(ModelServerError) as caught:
        list(model.stream(ASKED)) if stream else model.complete(ASKED)
    return caught.value


@pytest.mark.slow
@settings(SAME_SURROUNDINGS, max_examples=examples(20))
@given(TEXTS, st.sampled_from(["\n", "\r\n"]))
def test_a_stream_is_the_text_of_the_answer_in_one_piece(text, line_end):
    with served(text) as (double, model):
        whole = model.complete(ASKED)
        double.answer = lambda _: streamed(text, line_end=line_end)
        *pieces, last = model.stream(ASKED)
    assert whole == last == Completion(text, Usage(11, 7))
    assert "".join(pieces) == text


def test_the_wire_format_and_servers_without_settings_or_streams():
    with served("yes", api_key=KEY) as (double, model):
        assert isinstance(model, ChatModel)
        list(model.stream(ASKED, SCHEMA))
        model.complete(ASKED, SCHEMA)
    first, second = double.requests
    assert first.path == second.path == "/v1/chat/completions"
    assert (first.headers["authorization"], first.body["messages"]) == (f"Bearer {KEY}", ASKED)
    assert first.body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (first.body["stream"], first.body["stream_options"]) == (True, {"include_usage": True})
    assert "stream" not in second.body
    for refusal in (400, 422):
        with served("yes", [status(refusal)]) as (double, model):
            for _ in range(2):
                assert next(model.stream(ASKED, SCHEMA)) == "yes"
        assert ["temperature" in request.body for request in double.requests] == [True, False, False]
        assert all(request.body["stream"] for request in double.requests)
    with served(lambda _: completion("yes", "length")) as (_, model):
        assert list(model.stream(ASKED)) == ["yes", Completion("yes", Usage(11, 7), is_cut=True)]


def test_a_refusal_is_an_error_with_its_status_and_passing_faults_are_tried_again():
    with served("yes", attempts=2) as (double, model):
        for code, times in ((401, 1), (404, 1), (429, 2), (500, 2)):
            double.requests.clear()
            double.then(*[status(code)] * times)
            assert refused(model).status == code
            assert len(double.requests) == times
    faults = [status(429, Retry_After="0"), status(500), status(503)]
    with served("yes", faults) as (double, model):
        assert next(model.stream(ASKED)) == "yes"
    assert len(double.requests) == 1 + len(faults)


CUT = events("a long answer, of which half is missing")
IN_BETWEEN = b'data: {"error": {"message": "%s"}}\n\n' % PASSAGE.encode()
BROKEN = (CUT[: len(CUT) // 2], b"data: nothing\n\n", IN_BETWEEN, b"data: " + b"[" * 100_000 + b"\n\n")
FAULTS = [Reply(CUT, headers=EVENT_STREAM, manner="cut"), *(Reply(body, headers=EVENT_STREAM) for body in BROKEN)]
FAULTS += map(Reply, (b"<html></html>", b"", b'{"choices": []}'))


def test_streams_and_servers_that_are_hostile(monkeypatch):
    with served() as (double, model):
        for number, fault in enumerate(FAULTS, start=1):
            double.then(lambda *_, fault=fault: fault)
            assert PASSAGE not in str(refused(model)), fault
            assert len(double.requests) == number, fault
    endless = Reply(b": " + b"x" * 10_000_000, headers=EVENT_STREAM)
    with monkeypatch.context() as limited:
        limited.setattr(chat, "Limits", lambda **options: Limits(max_bytes=100_000, **options))
        with served(lambda _: endless) as (_, model):
            assert "more than the limit of 100000 bytes" in str(refused(model))
    fault = Reply(json.dumps(completion("x" * 10_000_000)).encode())
    with served(faults=[lambda *_: fault]) as (_, model):
        assert "more than the limit of 4194304 bytes" in str(refused(model, stream=False))


@pytest.mark.slow
@pytest.mark.parametrize(("options", "drips", "message"), [
    ({"seconds": 60, "pause": 3600}, True, "did not end in time"),
    ({"seconds": 3600, "pause": 60}, False, "stopped in the middle"),
])  # fmt: skip
def test_a_server_that_does_not_end_is_left(options, drips, message):
    body, sent, clock = events("a long answer") + b": more\n" * 100_000, itertools.count(1), ManualClock()
    middle = body.index(b"answer")

    def tick():
        if next(sent) >= middle:
            double.stopped.wait(PAUSE if drips else None)

    reply = Reply(body, headers=EVENT_STREAM, manner="drip", tick=tick)
    with served(lambda _: reply, clock=clock, attempts=1, **options) as (double, model):
        stream = model.stream(ASKED)
        assert next(stream) == "a long "
        with clock.passing(1), pytest.raises(ModelServerError, match=message):
            list(stream)


def test_time_limits_of_the_first_answer_and_abandoned_streams():
    clock = ManualClock()
    with served("a long answer", clock=clock, attempts=1, timeout=60, pause=900, seconds=3600) as (_, model):
        stream = model.stream(ASKED)
        assert next(stream) == "a long "
        clock.advance(600)
        assert next(stream) == "answer"
    clock, flag = ManualClock(), cancellation.Flag()
    silent = served(lambda _: clock.advance(60) or double.stopped.wait(), clock=clock, attempts=1, timeout=60)
    with silent as (double, model):
        assert "did not answer in time" in str(refused(model))
    silent = served(lambda _: flag.set() or double.stopped.wait())
    with silent as (double, model), cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        list(model.stream(ASKED))


def test_a_stream_that_is_closed_gives_its_connection_up_and_keys_go_to_their_host(monkeypatch):
    body = events("a long answer") + b": more\n" * 1_000_000
    before = {*threading.enumerate()}
    with served(lambda _: Reply(body, headers=EVENT_STREAM)) as (_, model):
        stream = model.stream(ASKED)
        next(stream)
        stream.close()
        until(lambda: not any("process_request" in one.name for one in {*threading.enumerate()} - before))
    monkeypatch.setenv("SEMLEX_CHAT_API_KEY", KEY)
    with chat_server(lambda _: "yes") as double:
        for own, sent in (("http://elsewhere:8000/v1#m", None), (f"{double.url}/v1#m", f"Bearer {KEY}")):
            monkeypatch.setenv("SEMLEX_CHAT_MODEL", own)
            with closing(OpenAIChatModel("small-model", f"{double.url}/v1")) as model:
                model.complete(ASKED)
            assert double.requests[-1].headers.get("authorization") == sent


def test_what_was_sent_is_in_no_message(caplog):
    told = []
    faults = (echo(400), echo(401), echo(500), raw(b"["), raw(f"data: {PASSAGE}\n\n".encode()))
    with caplog.at_level(logging.DEBUG, logger="semlex"):
        for wrong, stream in itertools.product(faults, (True, False)):
            with served("", [wrong, wrong], attempts=1, api_key=KEY) as (_, model):  # 400: once more without settings
                told += [*shown(refused(model, stream=stream)), repr(model), model.identity]
    told.append(caplog.text)
    assert not [secret for secret in (KEY, PASSAGE) if any(secret in line for line in told)]


def test_models_by_name_and_parameters(monkeypatch):
    assert choose_chat_model().model is choose_chat_model("none").model is None
    with pytest.raises(MissingKeyError, match="OPENAI_API_KEY"):
        choose_chat_model("openai:gpt")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    names = {"openai:gpt": "gpt@api.openai.com", "ollama:qwen3:4b": "qwen3:4b@localhost:11434"}
    for name, identity in {**names, "http://127.0.0.1:9/v1#m": "m@127.0.0.1:9"}.items():
        choice = choose_chat_model(name)
        assert choice.model.identity == identity
        assert KEY not in choice.reason + repr(choice)
        choice.model.close()
    for name in ("openai:", "gpt-5", "cohere:command", "http://127.0.0.1:9/v1", "auto"):
        with pytest.raises(ConfigurationError):
            choose_chat_model(name)
    for options, message in [
        ({"model": " "}, "in one line, and not blank"), ({"pause": 0}, "pause"), ({"seconds": "3"}, "seconds"),
        ({"attempts": 0}, "attempts must be between 1 and 20"), ({"base_url": "ftp://x"}, "must have the form"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=message):
            OpenAIChatModel(**{"model": "m", "base_url": "http://127.0.0.1:1/v1", **options})
    closed = OpenAIChatModel("m", "http://127.0.0.1:1/v1")
    closed.close()
    closed.close()
    with pytest.raises(ModelError, match="was closed"):
        list(closed.stream(ASKED))


# --- hostile servers: chunk descriptions and the reranker come to an end, say why, and keep what they had -------------

ROTATE = "Rotate a key every ninety days."
ENDLESS = "<think>" + "so " * 30_000
UNUSABLE = ["A line.", '{"lines": ["x"]}', '{"line": 7}', '{"line": "\\u200b \\ud800 \\u0000"}', ENDLESS, "[" * 50_000]
HOSTILE = {"500": status(500), "echo": echo(400), "cut": cut}
HOSTILE |= {said[:40]: lambda *_, said=said: streamed(said) for said in UNUSABLE}


def say(request):
    return json.dumps({"line": line_about(asked_passage(request.body["messages"][1]["content"])[1])})


@pytest.mark.slow
def test_chunk_descriptions(database_url, caplog):
    texts, limits = [ROTATE, "Keys are stored in a vault."], {"timeout": LIMIT, "pause": LIMIT, "seconds": LIMIT}
    with sync_opened(database_url, "none") as retriever:
        for case, fault in HOSTILE.items():
            with served(lambda request: streamed(say(request)), api_key=KEY, attempts=2, **limits) as (double, chat):
                retriever.add_texts(texts, ids=["a", "b"])
                # Whatever the server does, all chunks are there and found, and the report says why they have no line.
                double.then(*[fault] * 8)
                report = retriever.documents.enrich(Enrichment(chat, concurrency=1, on_failure="plain"))
                assert (report.written, report.failed) == (0, 2), case
                assert report.first_failure
                assert {hit.content for hit in retriever.search("rotate vault")} == set(texts)
                # Asked for a line about its own text first, it is an error, and nothing is written.
                double._faults.clear()
                double.then(*[fault] * 4)
                with pytest.raises(ModelError, match="no descriptions are written: ") as caught:
                    retriever.documents.enrich(chat)
                assert retriever.search("zyxwv") == []
                # When the server is well again, the next run asks for what is lacking.
                double._faults.clear()
                assert retriever.documents.enrich(chat).written == 2
                assert len(retriever.search("zyxwv")) == 2
            told = [report.first_failure, str(caught.value), caplog.text]
            assert not [secret for secret in (KEY, ROTATE) if any(secret in text for text in told)], case
            retriever.delete(["a", "b"])


def test_a_reranker_that_fails_leaves_the_order_of_the_search_and_a_warning(database_url):
    for fault in (status(500), lambda *_: Reply(json.dumps(completion("ten points")).encode())):
        with (
            chat_server(lambda _: answer_text([]), [fault] * 9) as double,
            closing(LLMReranker("small", f"{double.url}/v1", api_key=KEY, timeout=LIMIT, attempts=2)) as reranker,
        ):
            with pytest.raises(ModelServerError) as caught:
                reranker.score("rotate", [ROTATE])
            assert not [secret for secret in (KEY, ROTATE) if secret in str(caught.value)]
            double.then(*[fault] * 9)
            with sync_opened(database_url, "none", reranker) as retriever:
                retriever.add_documents([Document(ROTATE, id="a")])
                found = retriever.search("rotate")
            assert [hit.id for hit in found] == ["a"]
            assert any("rerank" in warning for warning in found.warnings)
