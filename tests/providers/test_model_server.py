from __future__ import annotations

import json
import logging
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex.errors import ConfigurationError, ModelError, ModelServerError, WorkAbandonedError
from semlex.models import cancellation
from semlex.models import http_client as module
from semlex.models.http_client import ModelServer
from tests.support import model_servers
from tests.support.model_servers import ModelServerDouble, altered, cut, drip, echo, raw, status

KEY = "sk-Secret-0123456789"
RETRIED = [408, 429, 500, 502, 503, 504]
REFUSED = [301, 302, 307, 400, 401, 403, 404, 409, 413, 418, 422, 501]


def echoed(request):
    """The right answer of these tests: the body as it came."""
    return {"path": request.path, "body": request.body}


@pytest.fixture
def pauses(monkeypatch):
    """Waits between attempts are noted instead of waited."""
    noted = []
    monkeypatch.setattr(module, "_pause", noted.append)
    return noted


@pytest.fixture
def double():
    with ModelServerDouble(echoed) as running:
        yield running


@pytest.fixture
def server(double, pauses):
    opened = ModelServer(f"{double.url}/v1", api_key=KEY, timeout=10)
    yield opened
    opened.close()


def refused(server, path="/x", body=None):
    with pytest.raises(ModelServerError) as caught:
        server.post(path, body or {"input": ["a text"]})
    return caught.value


# --- one request ------------------------------------------------------------------------------------------------------


def test_one_request(server, double):
    body = {"model": "m", "input": ["größe 数据 😀", "", "\n\x00"], "n": 1.5}
    assert server.post("/embeddings", body) == {"path": "/v1/embeddings", "body": body}
    (request,) = double.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"


def test_a_key_in_another_header(double):
    server = ModelServer(double.url, api_key=KEY, key_header="x-goog-api-key")
    server.post("/x", {"input": []})
    server.close()
    (request,) = double.requests
    assert request.headers["x-goog-api-key"] == KEY
    assert "authorization" not in request.headers
    assert KEY not in request.path


def test_without_a_key_none_is_sent(double):
    server = ModelServer(double.url)
    server.post("/x", {"input": []})
    server.close()
    assert not {"authorization", "x-goog-api-key"} & set(double.requests[0].headers)


def test_nothing_is_sent_before_the_first_request(double):
    ModelServer(double.url, api_key=KEY).close()
    assert double.requests == []


# --- again ------------------------------------------------------------------------------------------------------------

retryable = st.one_of(st.sampled_from(RETRIED).map(status), st.just(cut))


@pytest.mark.slow
@settings(max_examples=30)
@given(faults=st.lists(retryable, max_size=4))
def test_whatever_passes_by_itself_is_tried_again(faults):
    with pytest.MonkeyPatch.context() as patch, ModelServerDouble(echoed, faults) as double:
        patch.setattr(module, "_pause", lambda _: None)
        server = ModelServer(double.url, attempts=5)
        assert server.post("/x", {"input": ["t"]})["body"] == {"input": ["t"]}
        server.close()
        assert len(double.requests) == len(faults) + 1


@pytest.mark.parametrize("code", RETRIED)
def test_in_the_end_the_last_status_is_told(server, double, pauses, code):
    double.then(*[status(code)] * 9)
    error = refused(server)
    assert error.status == code
    assert f"{server.host}/x answered {code}" in str(error)
    assert len(double.requests) == 5
    assert len(pauses) == 4


@pytest.mark.parametrize("code", REFUSED)
def test_other_statuses_are_not_tried_again(server, double, pauses, code):
    double.then(status(code, {"error": {"message": "no"}}, Location="http://127.0.0.1:9/elsewhere"))
    error = refused(server)
    assert error.status == code
    assert f"{server.host}/x answered {code}; " in str(error)
    assert len(double.requests) == 1
    assert pauses == []


def test_waits_double_and_differ(server, double, pauses):
    for _ in range(5):
        double.then(*[status(500)] * 5)
        refused(server)
    for attempt in range(4):
        longest = 0.5 * 2**attempt
        waits = pauses[attempt::4]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1


def test_a_server_may_say_how_long_to_wait(server, double, pauses):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    double.then(*(status(429, Retry_After=value) for value in ("7", "0.25", soon, past)))
    server.post("/x", {"input": []})
    assert pauses[:2] == [7.0, 0.25]
    assert 20 < pauses[2] <= 30
    assert pauses[3] == 0.0


@pytest.mark.parametrize("value", ["61", "9" * 400, "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_long_wait_is_left_to_the_caller(server, double, pauses, value):
    double.then(status(503, Retry_After=value))
    error = refused(server)
    assert error.status == 503
    assert "asks to wait" in str(error)
    assert "try again later" in str(error)
    assert len(double.requests) == 1
    assert pauses == []


@pytest.mark.parametrize("value", ["", "soon", "-5", "1e3", "٣", "Wed, 99 Foo 2099", "NaN", "inf"])
def test_a_wait_that_cannot_be_read_is_passed_over(server, double, pauses, value):
    assert module._asked_wait(value) is None


def test_a_server_that_is_not_there(pauses):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    server = ModelServer(f"http://127.0.0.1:{port}", attempts=3)
    error = refused(server)
    server.close()
    assert error.status is None
    assert f"127.0.0.1:{port}/x cannot be reached" in str(error)
    assert len(pauses) == 2


# --- answers that cannot be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} x', b"1" * 5000])
def test_an_answer_that_is_not_json(server, double, body):
    double.then(raw(body))
    error = refused(server)
    assert error.status == 200
    assert "is not JSON" in str(error)
    assert len(double.requests) == 1
    assert error.__cause__ is None
    assert error.__context__ is None


def test_a_huge_answer_is_not_read_to_its_end(server, double, monkeypatch):
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 10_000)
    double.then(raw(json.dumps("x" * 20_000).encode()))
    assert "more than the 10000 bytes" in str(refused(server))
    assert len(double.requests) == 1
    double.then(raw(json.dumps("x" * 9_000).encode()))
    assert server.post("/x", {"input": []}) == "x" * 9_000


def test_a_time_out_bounds_the_whole_answer(double, pauses):
    double.then(drip, drip)
    server = ModelServer(double.url, timeout=0.3, attempts=2)
    begun = time.monotonic()
    error = refused(server)
    assert time.monotonic() - begun < 5
    assert "did not answer in time" in str(error)
    assert error.status is None
    server.close()


def test_a_time_out_bounds_the_headers_as_well(pauses):
    stopped = threading.Event()

    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not stopped.wait(0.02):
                try:
                    connection.sendall(b"x")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        server = ModelServer(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.3, attempts=1)
        assert "did not answer in time" in str(refused(server))
        stopped.set()
        thread.join()
        server.close()


def test_redirects_are_not_followed(server, double):
    with ModelServerDouble(echoed) as other:
        double.then(status(307, Location=f"{other.url}/v1/x"))
        assert "redirects are not followed" in str(refused(server))
        assert other.requests == []


# --- secrets ----------------------------------------------------------------------------------------------------------

quiet_text = st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1)
any_fault = st.one_of(
    st.sampled_from([*RETRIED, *REFUSED]).map(status),
    st.sampled_from([*RETRIED, *REFUSED]).map(echo),
    st.sampled_from([cut, raw(b"{"), status(429, Retry_After="999")]),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(faults=st.lists(any_fault, min_size=3, max_size=3), text=quiet_text)
def test_keys_and_texts_are_never_told(faults, text):
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with pytest.MonkeyPatch.context() as patch, ModelServerDouble(echoed, faults) as double:
            patch.setattr(module, "_pause", lambda _: None)
            server = ModelServer(double.url, api_key=KEY, attempts=3)
            told = [repr(server), str(server)]
            try:
                server.post("/x", {"input": [text]})
            except ModelServerError as error:
                while error is not None:
                    told += [str(error), repr(error)]
                    error = error.__cause__ or error.__context__
            server.close()
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert records
    assert not [line for line in [*told, *records] if KEY in line or text in line]


@pytest.mark.parametrize(
    ("body", "quoted"),
    [
        ({"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "m"}}, "insufficient_quota"),
        ({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "m"}}, "INVALID_ARGUMENT"),
        ({"error": "m", "error_type": "Overloaded"}, "Overloaded"),
        ({"object": "error", "type": "BadRequestError", "code": 400}, "BadRequestError"),
        (
            {"error": {"code": "model_not_found", "type": "invalid_request_error"}},
            "model_not_found, invalid_request_error",
        ),
    ],
)
def test_names_of_errors_that_servers_document_are_quoted(server, double, body, quoted):
    double.then(status(400, body))
    assert f"answered 400 ({quoted}); " in str(refused(server))


@pytest.mark.parametrize("body", ["text", 1, None, [], {"error": ["x"]}, {"error": {"code": KEY, "type": ["x"]}}])
def test_nothing_else_is_quoted(server, double, body):
    double.then(status(400, body))
    assert "answered 400; " in str(refused(server))


@pytest.mark.parametrize("code", [401, 403])
def test_a_key_that_is_refused_is_told_by_its_variable(double, code):
    double.then(status(code), status(code), status(code))
    for key, variable, part in [
        (KEY, "OPENAI_API_KEY", "check the key in the environment variable OPENAI_API_KEY"),
        (None, "OPENAI_API_KEY", "it wants a key: set the environment variable OPENAI_API_KEY"),
        (KEY, None, "check the key in api_key"),
    ]:
        server = ModelServer(double.url, api_key=key, key_variable=variable)
        assert part in str(refused(server))
        server.close()


def test_a_key_without_encryption_is_logged_once(monkeypatch, caplog):
    with ModelServerDouble(echoed) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        server = ModelServer("http://models.example/v1", api_key=KEY)
        for _ in range(3):
            server.post("/x", {"input": []})
        server.close()
        # The proxy of the environment was used, as for any other address.
        assert {request.path for request in proxy.requests} == {"http://models.example/v1/x"}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the key for models.example travels without encryption; use https"]


def test_this_machine_is_asked_without_a_proxy(double, monkeypatch, caplog):
    with ModelServerDouble(echoed) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        server = ModelServer(double.url, api_key=KEY)
        server.post("/x", {"input": []})
        server.close()
        assert proxy.requests == []
    assert "without encryption" not in caplog.text


def test_proxy_settings_that_cannot_be_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "ftp://user:hunter2@proxy.example")
    monkeypatch.setenv("no_proxy", "")
    server = ModelServer("http://models.example/v1")
    with pytest.raises(ConfigurationError, match="proxy settings cannot be used") as caught:
        server.post("/x", {"input": []})
    assert "hunter2" not in str(caught.value)


# --- many requests ----------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(count=st.integers(0, 30), concurrency=st.integers(1, 8), faults=st.lists(retryable, max_size=4))
def test_many_requests_are_those_of_each(count, concurrency, faults):
    bodies = [{"input": [number]} for number in range(count)]
    with pytest.MonkeyPatch.context() as patch, ModelServerDouble(echoed, faults if count else []) as double:
        patch.setattr(module, "_pause", lambda _: None)
        server = ModelServer(double.url, concurrency=concurrency)
        assert [answer["body"] for answer in server.map(partial(server.post, "/x"), bodies)] == bodies
        server.close()


def test_no_more_than_so_many_at_once():
    meeting = threading.Barrier(3)

    def answer(request):
        meeting.wait(10)  # breaks, and fails the request, unless three are here together
        return echoed(request)

    with ModelServerDouble(answer) as double:
        server = ModelServer(double.url, concurrency=3, attempts=1)
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(12)])
        server.close()
        assert double.most_at_once == 3


def test_the_first_failure_ends_the_others(server, double):
    double.then(*[status(404)] * 4)
    with pytest.raises(ModelServerError, match="answered 404"):
        server.map(partial(server.post, "/x"), [{"input": [number]} for number in range(1000)])
    assert len(double.requests) < 100


def test_several_threads(server):
    answers = [None] * 8

    def ask(number):
        answers[number] = server.post("/x", {"input": [number]})["body"]["input"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[number] for number in range(8)]


# --- nobody waits any more --------------------------------------------------------------------------------------------


def test_nothing_is_sent_when_nobody_waits(server, double):
    flag = threading.Event()
    flag.set()
    with cancellation.abandoned_by(flag):
        with pytest.raises(WorkAbandonedError):
            server.post("/x", {"input": []})
        with pytest.raises(WorkAbandonedError):
            server.map(partial(server.post, "/x"), [{"input": []}] * 9)
    assert len(double.requests) == 0


@pytest.mark.parametrize("count", [1, 9])
def test_an_answer_that_nobody_waits_for_is_left(count):
    asked, flag = threading.Event(), threading.Event()

    def answer(request):
        asked.set()
        double.stopped.wait(60)
        return echoed(request)

    def give_up():
        asked.wait(60)
        flag.set()

    with ModelServerDouble(answer) as double:
        server = ModelServer(double.url, timeout=60)
        threading.Thread(target=give_up).start()
        begun = time.monotonic()
        with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
            server.map(partial(server.post, "/x"), [{"input": []}] * count)
        assert time.monotonic() - begun < 30
        double.stopped.set()
        server.close()


def test_a_wait_ends_when_nobody_waits_for_it():
    flag = threading.Event()
    timer = threading.Timer(0.05, flag.set)
    timer.start()
    with cancellation.abandoned_by(flag), pytest.raises(WorkAbandonedError):
        module._pause(600)
    timer.join()


def test_a_pause_lasts_as_long_as_it_should():
    begun = time.monotonic()
    module._pause(0.25)
    assert time.monotonic() - begun >= 0.25


# --- the object itself ------------------------------------------------------------------------------------------------


def test_closing(server):
    server.post("/x", {"input": []})
    server.close()
    server.close()
    with pytest.raises(ModelError, match="was closed"):
        server.post("/x", {"input": []})


def test_closing_during_a_request(pauses):
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


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost:8080", "ftp://host", "http://", "http:///v1", "//h"),
        *("http://a b/", "http://h:x/", "http://h:99999/", "http://h\n/", "http://[::1/"),
    ],
)
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigurationError, match="must have the form"):
        ModelServer(address)


@pytest.mark.parametrize("address", ["http://user:hunter2@h/", "https://hunter2@h", "http://:hunter2@h"])
def test_addresses_hold_no_passwords(address):
    with pytest.raises(ConfigurationError, match="must not hold a user or password") as caught:
        ModelServer(address)
    assert "hunter2" not in str(caught.value)


def test_addresses_hold_no_queries():
    for address in ("http://h/v1?key=hunter2", "http://h/v1#hunter2"):
        with pytest.raises(ConfigurationError, match="must not hold a query") as caught:
            ModelServer(address)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "host", "is_local"),
    [
        ("http://localhost:11434/v1/", "localhost:11434", True),
        ("http://127.8.9.1", "127.8.9.1", True),
        ("http://[::1]:80/v1", "[::1]:80", True),
        ("https://API.openai.com/v1", "api.openai.com", False),
        ("http://localhost.example/", "localhost.example", False),
        ("http://10.0.0.1:8000", "10.0.0.1:8000", False),
    ],
)
def test_hosts(address, host, is_local):
    server = ModelServer(address)
    assert (server.host, server.is_local) == (host, is_local)


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": ""},
        {"api_key": "  "},
        {"api_key": "hunter2\n"},
        {"api_key": "hunter2ß"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": 3601},
        {"attempts": 0},
        {"attempts": 21},
        {"concurrency": 0},
        {"concurrency": 65},
    ],
)
def test_parameters_out_of_range(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))) as caught:
        ModelServer("http://localhost", **options)
    assert "hunter2" not in str(caught.value)


def test_the_double_answers_wrongly_when_told_to(server, double):
    double.then(altered(lambda content: [content]))
    assert isinstance(server.post("/x", {"input": []}), list)
    assert model_servers.vector("a", 4).shape == (4,)
