"""Requests to a model server: one, many at once, those that nobody waits for, and the addresses that are refused."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from semlex.errors import ConfigurationError, ModelError, ModelServerError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models.http_client import ModelServer
from tests.support.manual_clock import ManualClock
from tests.support.model_servers import KEY, ModelServerDouble, echoed, status
from tests.support.waiting import until


# --- one request ------------------------------------------------------------------------------------------------------
def test_one_request(server, double):
    body = {"model": "m", "input": ["größe 数据 😀", "", "\n\x00"], "n": 1.5}
    ModelServer(double.url, api_key=KEY).close()
    assert double.requests == []
    assert server.post("/embeddings", body) == {"path": "/v1/embeddings", "body": body}
    for options in ({"api_key": KEY, "key_header": "x-goog-api-key"}, {}):
        with closing(ModelServer(double.url, **options)) as other:
            other.post("/x", {"input": []})
    own, another, none = (request.headers for request in double.requests)
    assert (own["authorization"], own["content-type"]) == (f"Bearer {KEY}", "application/json")
    assert another["x-goog-api-key"] == KEY
    assert "authorization" not in another
    assert KEY not in double.requests[1].path
    assert not {"authorization", "x-goog-api-key"} & set(none)


def test_the_first_failure_ends_the_others(server, double):
    double.then(*[status(404)] * 4)
    with pytest.raises(ModelServerError, match="answered 404"):
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(1000)])
    assert len(double.requests) < 100


def test_nothing_is_sent_when_nobody_waits(server, double):
    flag = cancellation.Flag()
    flag.set()
    with cancellation.abandoned_by(flag):
        with pytest.raises(WorkAbandonedError):
            server.post("/x", {"input": []})
        with pytest.raises(WorkAbandonedError):
            server.map(partial(server.post, "/x"), [{"input": []}] * 9)
    assert server._requests is None  # not even a client was opened
    assert len(double.requests) == 0


# --- many requests ----------------------------------------------------------------------------------------------------
def test_no_more_than_so_many_at_once():
    meeting = threading.Barrier(3)

    def answer(request):
        meeting.wait(60)  # breaks, and fails the request, unless three are here together
        return echoed(request)

    with ModelServerDouble(answer) as double, closing(ModelServer(double.url, concurrency=3, attempts=1)) as server:
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(12)])
        assert double.most_at_once == 3


@pytest.mark.slow
def test_several_threads(server):
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda number: server.post("/x", {"input": [number]})["body"]["input"], range(8))
        assert [*answers] == [[number] for number in range(8)]


# --- nobody waits any more --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 9])
def test_an_answer_that_nobody_waits_for_is_left(count):
    flag = cancellation.Flag()

    def answer(request):
        flag.set()
        double.stopped.wait()  # the server answers when everybody has left
        return echoed(request)

    with ModelServerDouble(answer) as double:
        server = ModelServer(double.url, timeout=600)
        with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
            server.map(partial(server.post, "/x"), [{"input": []}] * count)
        double.stopped.set()
        server.close()


def test_waits_last_as_long_as_the_server_and_the_caller_want():
    flag, clock = cancellation.Flag(), ManualClock()
    thread = threading.Thread(target=lambda: until(lambda: clock.waits == [30]) and flag.set())
    thread.start()
    with (
        ModelServerDouble(echoed, [status(429, Retry_After="30")]) as double,
        closing(ModelServer(double.url, clock=clock)) as server,
    ):
        with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
            server.post("/x", {"input": []})
        thread.join()
        until(lambda: clock.waits == [])
    assert len(double.requests) == 1
    clock = ManualClock()
    begun = clock.monotonic()
    with (
        ModelServerDouble(echoed, [status(429, Retry_After="30")]) as double,
        closing(ModelServer(double.url, clock=clock)) as server,
        clock.passing(1),
    ):
        server.post("/x", {"input": []})
        assert clock.monotonic() - begun >= 30


def test_a_look_up_that_hangs_is_left_behind(monkeypatch):
    clock, ended = ManualClock(), threading.Event()

    def look_up(*_, **__):
        clock.advance(60)
        ended.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server = ModelServer("http://models.example/v1", timeout=60, attempts=1, clock=clock)
    with pytest.raises(ModelServerError, match="did not answer in time"):
        server.post("/x", {"input": []})
    server.close()
    assert not [one for one in threading.enumerate() if one.name == "semlex-model-requests"]
    ended.set()


# --- the object itself ------------------------------------------------------------------------------------------------
def test_closing(server, pauses):
    server.post("/x", {"input": []})
    server.close()
    server.close()
    with pytest.raises(ModelError, match="was closed"):
        server.post("/x", {"input": []})
    asked = threading.Event()

    def answer(request):
        asked.set()
        double.stopped.wait(60)
        return echoed(request)

    with ModelServerDouble(answer) as double:
        server = ModelServer(double.url, timeout=60)

        def close():
            asked.wait(60)
            server.close()
            double.stopped.set()

        threading.Thread(target=close).start()
        with pytest.raises(ModelError, match="was closed"):
            server.post("/x", {"input": []})


@pytest.mark.parametrize(("message", "addresses"), [
    ("must have the form", ("", "localhost:8080", "ftp://host", "http://", "http:///v1", "//h", "http://a b/")),
    ("must have the form", ("http://h:x/", "http://h:99999/", "http://h\n/", "http://[::1/")),
    ("must not hold a user or password", ("http://user:hunter2@h/", "https://hunter2@h", "http://:hunter2@h")),
    ("must not hold a query", ("http://h/v1?key=hunter2", "http://h/v1#hunter2")),
])  # fmt: skip
def test_addresses_that_are_none_and_what_they_must_not_hold(message, addresses):
    for address in addresses:
        with pytest.raises(ConfigurationError, match=message) as caught:
            ModelServer(address)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("address", "host", "is_local"), [
    ("http://localhost:11434/v1/", "localhost:11434", True),
    ("http://127.8.9.1", "127.8.9.1", True),
    ("http://[::1]:80/v1", "[::1]:80", True),
    ("https://API.openai.com/v1", "api.openai.com", False),
    ("http://localhost.example/", "localhost.example", False),
    ("http://10.0.0.1:8000", "10.0.0.1:8000", False),
])  # fmt: skip
def test_hosts(address, host, is_local):
    server = ModelServer(address)
    assert (server.host, server.is_local) == (host, is_local)


@pytest.mark.parametrize(("option", "values"), [
    ("api_key", ("", "  ", "hunter2\n", "hunter2ß")),
    ("timeout", (0, float("nan"), 3601)), ("attempts", (0, 21)), ("concurrency", (0, 65)),
])  # fmt: skip
def test_parameters_out_of_range(option, values):
    for value in values:
        with pytest.raises(ConfigurationError, match=option) as caught:
            ModelServer("http://localhost", **{option: value})
        assert "hunter2" not in str(caught.value)
