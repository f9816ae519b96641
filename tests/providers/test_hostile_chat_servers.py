"""A chat server that is hostile or broken: whoever asks it comes to an end, says why, and keeps what it had.

For lines about chunks and the reranker `llm`; `tests/journeys/retriever/test_asking.py` has the same for answers, and
`test_chat_model.py` for the model itself.
"""

import json
from contextlib import closing

import pytest

from semlex import Document, Enrichment, LLMReranker, OpenAIChatModel
from semlex.errors import ModelError, ModelServerError
from semlex.models import http_client
from tests.support.chat_servers import answer_text, chat_server, completion, streamed
from tests.support.line_models import asked_passage, line_about
from tests.support.model_servers import KEY, Reply, cut, echo, status
from tests.support.retrievers import sync_opened
from tests.support.waiting import LIMIT

TEXT = "Rotate a key every ninety days."
ENDLESS = "<think>" + "so " * 30_000
FAULTS = {
    "500": status(500),
    "echo": echo(400),
    "prose": lambda *_: streamed("A line."),
    "wrong JSON": lambda *_: streamed('{"lines": ["x"]}'),
    "no text": lambda *_: streamed('{"line": 7}'),
    "blank": lambda *_: streamed('{"line": "\\u200b \\ud800 \\u0000"}'),
    "cut": cut,
    "thoughts without end": lambda *_: streamed(ENDLESS),
    "deep": lambda *_: streamed("[" * 50_000),
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT_SECONDS", 0.001)
    for name in ("SEMLEX_CHAT_API_KEY", "SEMLEX_CHAT_MODEL"):
        monkeypatch.delenv(name, raising=False)


def say(request):
    return json.dumps({"line": line_about(asked_passage(request.body["messages"][1]["content"])[1])})


def model(double):
    limits = {"timeout": LIMIT, "pause": LIMIT, "seconds": LIMIT}
    return OpenAIChatModel("small", f"{double.url}/v1", api_key=KEY, attempts=2, **limits)


@pytest.mark.slow
def test_lines(database_url, caplog):
    with sync_opened(database_url, "none") as retriever:
        for case, fault in FAULTS.items():
            check_lines(retriever, case, fault, caplog)
            retriever.delete(["a", "b"])


def check_lines(retriever, case, fault, caplog):
    texts = [TEXT, "Keys are stored in a vault."]
    with chat_server(say) as double, closing(model(double)) as chat:
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
    assert not [secret for secret in (KEY, TEXT) if any(secret in text for text in told)], case


@pytest.mark.parametrize(
    "fault", [status(500), lambda *_: Reply(json.dumps(completion("ten points")).encode())], ids=["500", "prose"]
)
def test_the_reranker(database_url, fault):
    """The hits stand in the order of the search, and the warning says why."""
    with (
        chat_server(lambda _: answer_text([]), [fault] * 9) as double,
        closing(LLMReranker("small", f"{double.url}/v1", api_key=KEY, timeout=LIMIT, attempts=2)) as reranker,
    ):
        with pytest.raises(ModelServerError) as caught:
            reranker.score("rotate", [TEXT])
        assert KEY not in str(caught.value)
        assert TEXT not in str(caught.value)
        double.then(*[fault] * 9)
        with sync_opened(database_url, "none", reranker) as retriever:
            retriever.add_documents([Document(TEXT, id="a")])
            found = retriever.search("rotate")
        assert [hit.id for hit in found] == ["a"]
        assert any("rerank" in warning for warning in found.warnings)


def test_ten_megabytes_in_one_piece_are_not_read():
    fault = Reply(json.dumps(completion("x" * 10_000_000)).encode())
    with (
        chat_server(lambda _: "", [lambda *_: fault]) as double,
        closing(model(double)) as chat,
        pytest.raises(ModelServerError, match="more than the 4194304 bytes that are read"),
    ):
        chat.complete([{"role": "user", "content": "?"}])
