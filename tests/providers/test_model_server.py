"""Requests to a model server: one, many, those that nobody waits for, what is tried again, and what is never told."""

import json
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError, ModelError, ModelServerError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models import http_client as module
from semlex.models.http_client import ModelServer, asked_wait
from tests.support.leaks import all_log_lines, shown
from tests.support.manual_clock import ManualClock
from tests.support.model_servers import KEY, RETRIED, ModelServerDouble, cut, drip, echo, echoed, raw, status
from tests.support.properties import examples
from tests.support.waiting import until


def test_one_request_and_many_that_fail(server, double):
    body = {"model": "m", "input": ["größe 数据 😀", "", "\n\x00"], "n": 1.5}
    ModelServer(double.url, api_key=KEY).close()
    assert double.requests == []
    assert server.post("/embeddings", body) == {"path": "/v1/embeddings", "body": body}
    for options in ({"api_key": KEY, "key_header": "x-goog-api-key"}, {}):
        with closing(ModelServer(double.url, **options)) as other:
            other.post("/x", {"input": []})
    own, another, none = (request.headers for request in double.requests)
    assert (own["authorization"], own["content-type"]) == (f"Bearer {KEY}", "application/json")
    assert (another["x-goog-api-key"], another.get("authorization")) == (KEY, None)
    assert KEY not in double.requests[1].path
    assert not {"authorization", "x-goog-api-key"} & set(none)
    double.then(*[status(404)] * 4)
    with pytest.raises(ModelServerError, match="answered 404"):
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(1000)])
    assert len(double.requests) < 100


def test_nothing_is_sent_when_nobody_waits_and_several_threads_are_answered(server, double):
    flag = cancellation.Flag()
    flag.set()
    post = partial(server.post, "/x")
    for call in (post, lambda body: server.map(post, [body] * 9)):
        with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
            call({"input": []})
    assert (server._requests, double.requests) == (None, [])  # not even a client was opened
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda number: server.post("/x", {"input": [number]})["body"]["input"], range(8))
        assert [*answers] == [[number] for number in range(8)]


def test_abandoned_answers_and_waits_end():
    for count in [1, 9]:
        flag = cancellation.Flag()

        def answer(request, flag=flag):
            flag.set()
            double.stopped.wait()  # the server answers when everybody has left
            return echoed(request)

        with ModelServerDouble(answer) as double, closing(ModelServer(double.url, timeout=600)) as server:
            with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
                server.map(partial(server.post, "/x"), [{"input": []}] * count)
            double.stopped.set()
    flag, clock = cancellation.Flag(), ManualClock()
    thread = threading.Thread(target=lambda: until(lambda: clock.waits == [30]) and flag.set())
    thread.start()
    with (
        ModelServerDouble(echoed, [status(429, Retry_After="30")] * 2) as double,
        closing(ModelServer(double.url, clock=clock)) as server,
    ):
        with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
            server.post("/x", {"input": []})
        thread.join()
        until(lambda: clock.waits == [])
        assert len(double.requests) == 1
        begun = clock.monotonic()
        with clock.passing(1):
            server.post("/x", {"input": []})
        assert clock.monotonic() - begun >= 30


def test_no_more_requests_at_once_than_allowed():
    meeting = threading.Barrier(3)

    def answer(request):
        meeting.wait(60)  # breaks, and fails the request, unless three are here together
        return echoed(request)

    with ModelServerDouble(answer) as double, closing(ModelServer(double.url, concurrency=3, attempts=1)) as server:
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(12)])
        assert double.most_at_once == 3


def test_a_look_up_that_hangs_is_left_behind(monkeypatch):
    clock, ended = ManualClock(), threading.Event()

    def look_up(*_, **__):
        clock.advance(60)
        ended.wait(60)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with closing(ModelServer("http://models.example/v1", timeout=60, attempts=1, clock=clock)) as server:
        assert "did not answer in time" in str(refused(server))
    assert not [one for one in threading.enumerate() if one.name == "semlex-model-requests"]
    ended.set()


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


def test_addresses_hosts_and_parameters():
    for message, addresses in [
        ("must have the form", ("", "localhost:8080", "ftp://host", "http://", "http:///v1", "//h", "http://a b/")),
        ("must have the form", ("http://h:x/", "http://h:99999/", "http://h\n/", "http://[::1/")),
        ("must not hold a user or password", ("http://user:hunter2@h/", "https://hunter2@h", "http://:hunter2@h")),
        ("must not hold a query", ("http://h/v1?key=hunter2", "http://h/v1#hunter2")),
    ]:  # fmt: skip
        for address in addresses:
            with pytest.raises(ConfigurationError, match=message) as caught:
                ModelServer(address)
            assert "hunter2" not in str(caught.value)
    for address, host, is_local in [
        ("http://localhost:11434/v1/", "localhost:11434", True), ("http://127.8.9.1", "127.8.9.1", True),
        ("http://[::1]:80/v1", "[::1]:80", True), ("https://API.openai.com/v1", "api.openai.com", False),
        ("http://localhost.example/", "localhost.example", False),
        ("http://10.0.0.1:8000", "10.0.0.1:8000", False),
    ]:  # fmt: skip
        server = ModelServer(address)
        assert (server.host, server.is_local) == (host, is_local)
    for option, values in [
        ("api_key", ("", "  ", "hunter2\n", "hunter2ß")),
        ("timeout", (0, float("nan"), 3601)), ("attempts", (0, 21)), ("concurrency", (0, 65)),
    ]:  # fmt: skip
        for value in values:
            with pytest.raises(ConfigurationError, match=option) as caught:
                ModelServer("http://localhost", **{option: value})
            assert "hunter2" not in str(caught.value)


REFUSED = [301, 302, 307, 400, 401, 403, 404, 409, 413, 418, 422, 501]
retryable = st.sampled_from([*map(status, RETRIED), cut])


def refused(server, *texts):
    with pytest.raises(ModelServerError) as caught:
        server.post("/x", {"input": texts or ["a text"]})
    return caught.value


@contextmanager
def served(faults=(), **options):
    """A server with faults and a client without pauses, both closed at the end."""
    with (
        pytest.MonkeyPatch.context() as patch,
        ModelServerDouble(echoed, faults) as double,
        closing(ModelServer(double.url, **options)) as server,
    ):
        patch.setattr(module, "_pause", AsyncMock())
        yield double, server


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(faults=st.lists(retryable, max_size=4))
def test_whatever_passes_by_itself_is_tried_again(faults):
    with served(faults, attempts=5) as (double, server):
        assert server.post("/x", {"input": ["t"]})["body"] == {"input": ["t"]}
        assert len(double.requests) == len(faults) + 1


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(count=st.integers(0, 30), concurrency=st.integers(1, 8), faults=st.lists(retryable, max_size=4))
def test_many_requests_are_those_of_each(count, concurrency, faults):
    bodies = [{"input": [number]} for number in range(count)]
    with served(faults if count else [], concurrency=concurrency) as (_, server):
        assert [answer["body"] for answer in server.map(partial(server.post, "/x"), bodies)] == bodies


def test_the_last_status_is_reported_and_others_are_not_tried_again(server, double, pauses):
    for number, code in enumerate(RETRIED, start=1):
        double.then(*[status(code)] * 5)
        error = refused(server)
        assert f"{server.host}/x answered {code}" in str(error)
        assert (error.status, len(double.requests), len(pauses)) == (code, 5 * number, 4 * number)
    pauses.clear()
    with ModelServerDouble(echoed) as other:
        messages = {code: f"{server.host}/x answered {code}; " for code in REFUSED}
        faults = [(code, {"Location": f"{other.url}/v1/x"}, [messages[code]]) for code in REFUSED]
        faults += [(307, {"Location": f"{other.url}/v1/x"}, ["redirects are not followed"])]
        for wait in ("61", "9" * 400, "Wed, 21 Oct 2099 07:28:00 GMT"):  # a long wait is left to the caller
            faults.append((503, {"Retry_After": wait}, ["asks to wait", "try again later"]))
        for code, headers, words in faults:
            double.requests.clear()
            double.then(status(code, {"error": {"message": "no"}}, **headers))
            error = refused(server)
            assert all(part in str(error) for part in words)
            assert (error.status, len(double.requests), pauses) == (code, 1, [])
        assert other.requests == []


def test_waits_double_and_differ_unless_the_server_sets_them(server, double, pauses):
    for _ in range(5):
        double.then(*[status(500)] * 5)
        refused(server)
    for attempt in range(4):
        longest = 0.5 * 2**attempt
        waits = pauses[attempt::4]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1
    pauses.clear()
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    double.then(*(status(429, Retry_After=value) for value in ("7", "0.25", soon, past)))
    server.post("/x", {"input": []})
    assert [*pauses[:2], pauses[3]] == [7.0, 0.25, 0.0]
    assert 20 < pauses[2] <= 30
    for value in ("", "soon", "-5", "1e3", "٣", "Wed, 99 Foo 2099", "NaN", "inf"):
        assert asked_wait(value) is None, value


def test_a_server_that_is_not_there_or_too_slow(pauses, double):
    with socket.socket() as closed:  # it has a port and does not listen: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with closing(ModelServer(f"http://127.0.0.1:{port}", attempts=3)) as server:
            error = refused(server)
    assert error.status is None
    assert f"127.0.0.1:{port}/x cannot be reached" in str(error)
    assert len(pauses) == 2
    clock = ManualClock()
    slow = partial(drip, tick=lambda: clock.advance(1))
    double.then(slow, slow)
    with closing(ModelServer(double.url, timeout=60, attempts=2, clock=clock)) as server:
        error = refused(server, *["a text that takes its time"] * 10)
    assert "did not answer in time" in str(error)
    assert (error.status, len(double.requests)) == (None, 2)
    stopped, clock = threading.Event(), ManualClock()

    def serve(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not stopped.is_set():
                connection.sendall(b"x")
                clock.advance(0.01)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        threads.submit(serve, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with closing(ModelServer(url, timeout=60, attempts=1, clock=clock)) as server:
            assert "did not answer in time" in str(refused(server))
            stopped.set()


def test_answers_that_are_not_json_or_too_large(server, double, monkeypatch):
    bodies = (b"", b"<html>", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} x', b"1" * 5000)
    for number, body in enumerate(bodies, start=1):
        double.then(raw(body))
        error = refused(server)
        assert "is not JSON" in str(error)
        assert (error.status, len(double.requests)) == (200, number)
        assert (error.__cause__, error.__context__) == (None, None)
    double.requests.clear()
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 10_000)
    double.then(raw(json.dumps("x" * 20_000).encode()))
    assert "more than the limit of 10000 bytes" in str(refused(server))
    assert len(double.requests) == 1
    double.then(raw(json.dumps("x" * 9_000).encode()))
    assert server.post("/x", {"input": []}) == "x" * 9_000


quiet_text = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1)
codes = st.sampled_from([*RETRIED, *REFUSED])
any_fault = codes.map(status) | codes.map(echo) | st.sampled_from([cut, raw(b"{"), status(429, Retry_After="999")])


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(faults=st.lists(any_fault, min_size=3, max_size=3), text=quiet_text)
def test_keys_and_texts_are_never_told(faults, text):
    with all_log_lines() as records, served(faults, api_key=KEY, attempts=3) as (_, server):
        told = [repr(server), str(server)]
        try:
            server.post("/x", {"input": [text]})
        except ModelServerError as error:
            told += shown(error)
    assert records
    assert not [line for line in [*told, *records] if KEY in line or text in line]


def test_errors_quote_documented_names_and_the_variable_of_a_key(server, double):
    unknown = ("text", 1, None, [], {"error": ["x"]}, {"error": {"code": KEY, "type": ["x"]}})
    both = {"code": "model_not_found", "type": "invalid_request_error"}
    for body, quoted in (
        ({"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "m"}}, "insufficient_quota"),
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "m"}}, "INVALID_ARGUMENT"),
        ({"error": "m", "error_type": "Overloaded"}, "Overloaded"),
        ({"object": "error", "type": "BadRequestError", "code": 400}, "BadRequestError"),
        ({"error": both}, "model_not_found, invalid_request_error"),
        *((other, "") for other in unknown),
    ):
        double.then(status(400, body))
        assert f"answered 400{quoted and f' ({quoted})'}; " in str(refused(server))
    for key, variable, part in [
        (KEY, "OPENAI_API_KEY", "check the key in the environment variable OPENAI_API_KEY"),
        (None, "OPENAI_API_KEY", "the server needs a key: set the environment variable OPENAI_API_KEY"),
        (KEY, None, "check the key in api_key"),
    ]:
        with closing(ModelServer(double.url, api_key=key, key_variable=variable)) as client:
            for code in (401, 403):
                double.then(status(code))
                assert part in str(refused(client))


def test_keys_without_encryption_are_logged_once_and_proxies_asked_for_other_machines(double, monkeypatch, caplog):
    monkeypatch.setenv("no_proxy", "")
    with ModelServerDouble(echoed) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        with closing(ModelServer(double.url, api_key=KEY)) as server:
            server.post("/x", {"input": []})
        assert proxy.requests == []
        assert "without encryption" not in caplog.text
        with closing(ModelServer("http://models.example/v1", api_key=KEY)) as server:
            for _ in range(3):
                server.post("/x", {"input": []})
        # The proxy of the environment was used, as for any other address.
        assert {request.path for request in proxy.requests} == {"http://models.example/v1/x"}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the key for models.example travels without encryption; use https"]
    monkeypatch.setenv("http_proxy", "ftp://user:hunter2@proxy.example")
    server = ModelServer("http://models.example/v1")
    with pytest.raises(ConfigurationError, match="proxy settings cannot be used") as caught:
        server.post("/x", {"input": []})
    assert "hunter2" not in str(caught.value)
