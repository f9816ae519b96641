"""What is too long, too slow, too much or too deep is refused, and what nobody waits for is ended."""

import asyncio
import errno
import gzip
import json
import logging
import os
import signal
import threading
from contextlib import suppress
from unittest.mock import AsyncMock, Mock

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import Document
from semlex.errors import ConfigurationError, MissingKeyError
from semlex.ingest.files.discovery import FileProblem, find_files
from semlex.ingest.files.selection import Selection
from semlex.jobs.kinds import AllowedFolders
from semlex.server import request_context
from semlex.server.connections import LOOK_SECONDS
from semlex.server.limits import MAX_WAIT_SECONDS, Rates
from semlex.server.mcp.access import Access
from tests.support.http_server import COLLECTION, answer_of, bearer, in_process, on_a_port, raw
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually, held, waiting

pytestmark = pytest.mark.slow  # most of them

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
CHUNK = f"semlex.{COLLECTION}_chunk"
PRIVATE = "a text that nobody else may see"


def head(path="/v1/search", *more):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, "", ""]).encode()


SEARCH = head("/v1/search", "Content-Length: 15") + b'{"query":"key"}'
SECOND = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
NO_REQUESTS = {
    "two lengths": head("/v1/search", "Content-Length: 9", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + SECOND,
    "no length": head("/v1/search", "Content-Length: -5"),
    "two hosts": head("/v1/search", "Host: localhost", "Content-Length: 0"),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
}
HOSTILE = {
    "deep": b"[" * 500_000, "deep object": b'{"a":' * 100_000,
    "deep filter": b'{"query":"key","filters":' + b'{"$not":' * 900 + b'{"a":1}' + b"}" * 900 + b"}",
    "many filters": json.dumps({"query": "key", "filters": {"a": {"$in": list(range(50_000))}}}).encode(),
    "long number": b'{"query":"key","top_k":' + b"9" * 100_000 + b"}",
    "no number": b'{"query":"key","min_similarity":NaN}', "infinite": b'{"query":"key","min_similarity":1e999}',
    "half of a pair": b'{"query":"\\ud800"}', "nul": b'{"query":"\\u0000"}', "no utf-8": b'{"query":"\xff\xfe"}',
    "no json": b"query=key", "nothing": b"", "a text": b'"key"', "blank": b'{"query":"   "}',
    "unknown": b'{"query":"key","sql":"DROP TABLE chunk"}', "another kind": b'{"query":"key","top_k":"5"}',
}  # fmt: skip


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_slow_heads_and_bodies_are_ended(filled):
    clock = ManualClock()
    async with on_a_port(filled, clock=clock, head_seconds=60, body_seconds=600) as served:
        assert await clock.expire(60, raw(served.address)) == b""
        # Bytes that come now and then extend no limit.
        async with served.connection() as (reader, writer):
            for sent in range(1, 60):
                writer.write(b"G")
                await eventually(lambda: [len(one.conn.trailing_data[0]) for one in served.connections] == [sent])  # noqa: B023 - now
                clock.advance(1)
            assert not reader.at_eof()
            clock.advance(1)
            assert await reader.read() == b""
        assert status_of(await clock.expire(600, raw(served.address, SEARCH[:-7]))) == 408
        assert served.state.metrics.refused["request-timeout"] == 1
        # Neither does a request that was answered on the same connection extend a limit.
        async with served.connection(SEARCH) as (reader, writer):
            assert (await answer_of(reader))[0] == 200
            writer.write(b"POST /v1")
            assert await clock.expire(60, reader.read()) == b""


async def test_a_body_has_a_longest_length_and_is_not_unpacked(filled):
    async def pieces(body):
        for begin in range(0, len(body), 65536):
            yield body[begin : begin + 65536]

    async with on_a_port(filled) as served:
        for size, status in ((MIB, 200), (MIB + 1, 413)):
            body = json.dumps({"query": "key"}).encode().ljust(size)
            for content in (body, pieces(body)):
                assert (await served.http.post("/v1/search", content=content, headers=JSON)).status_code == status
        assert status_of(await raw(served.address, head("/v1/search", f"Content-Length: {10**18}"))) == 413
        packed = {"content": gzip.compress(b" " * (64 * MIB)), "headers": {"Content-Encoding": "gzip"}}
        assert (await served.http.post("/v1/search", **packed)).status_code == 415
        too_large = served.state.metrics.refused["request-entity-too-large"]
        async with served.connection(head("/v1/search", "Transfer-Encoding: chunked")) as (reader, writer):
            sent = 0  # without an end
            reading = asyncio.ensure_future(reader.read())
            with suppress(ConnectionError):
                while not reading.done() and sent < 64 * MIB:
                    writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                    await writer.drain()
                    sent += 0x10000
                    await asyncio.sleep(0)
            assert sent < 64 * MIB
            with suppress(ConnectionError):  # closed while we were still sending
                assert status_of(await reading) in (413, 0)
        assert served.state.metrics.refused["request-entity-too-large"] == too_large + 1


async def test_what_is_no_request_gets_a_problem_body(filled, caplog):
    caplog.set_level("INFO", "semlex.server")
    async with on_a_port(filled, header_count=20) as served:
        for name, sent in NO_REQUESTS.items():
            answer = await raw(served.address, sent)
            lines, _, body = answer.partition(b"\r\n\r\n")
            assert (status_of(answer), b"HTTP/1.1 200" in answer) == (400, False), name
            problem = json.loads(body)
            for line in ("content-type: application/problem+json", f"x-request-id: {problem['request_id']}"):
                assert line.encode() in lines.lower()
            assert "HTTP/1.1" in problem["detail"]
            assert problem["request_id"] in caplog.text
            assert (await served.http.get("/healthz")).status_code == 200
        lines = [f"x-{number}: 1" for number in range(100_000)]
        caplog.set_level("WARNING", "semlex.server")
        for more in (lines, ["x-long: " + "a" * 100_000]):
            caplog.clear()
            status = status_of(await raw(served.address, head("/v1/search", "Connection: close", *more)))
            # 0: closed while we were still sending. That it was refused is in the log then.
            assert status == 431 or (status in (400, 0) and caplog.messages == ["Invalid HTTP request received."])
        few = head("/healthz", "Connection: close", *lines[:18]).replace(b"POST", b"GET")
        assert status_of(await raw(served.address, few)) == 431
        assert (await served.http.get("/healthz")).status_code == 200


async def test_wrong_bodies_are_refused_and_say_what_helps(filled):
    async with in_process(filled, rights="write") as served:
        for name, body in HOSTILE.items():
            answer = await served.http.post("/v1/search", content=body, headers=JSON)
            assert answer.status_code in ((200, 422) if name == "many filters" else (400, 409, 422)), name
            if answer.status_code == 400:
                assert "application/json" in answer.json()["detail"], name
            if answer.status_code != 200:
                assert answer.headers["content-type"] == "application/problem+json", name
                assert len(answer.content) < 20_000, name
        for media_type in ("application/x-www-form-urlencoded", "text/plain", "application/xml", None):
            headers = {} if media_type is None else {"Content-Type": media_type}
            for path in ("/v1/search", "/v1/answer", "/v1/documents", "/v1/embeddings"):
                answer = await served.http.post(path, content=b'{"query": "a"}', headers=headers)
                assert answer.status_code == 400, (path, media_type)
                assert "Content-Type: application/json" in answer.json()["detail"]
        typed = {"Content-Type": "application/merge-patch+json"}
        assert (await served.http.post("/v1/search", content=b'{"query": "key"}', headers=typed)).status_code == 200
        assert (await served.http.post("/v1/search", content=b"[]", headers=JSON)).status_code == 422
        nowhere = await served.http.get("/v1/nowhere")
        assert (nowhere.status_code, "/openapi.json" in nowhere.json()["detail"]) == (404, True)
        other = await served.http.put("/v1/search", content=b"")
        assert (other.status_code, "Allow" in other.json()["detail"], other.headers["allow"]) == (405, True, "POST")


async def test_more_connections_than_are_wanted_are_closed(filled):
    async with on_a_port(filled, clock=ManualClock(), connections=20) as served:
        pairs = [await asyncio.open_connection(*served.address) for _ in range(60)]
        reading = {asyncio.ensure_future(reader.read()): writer for reader, writer in pairs}
        await eventually(lambda: sum(task.done() for task in reading) == 40)
        stay = [task for task in reading if not task.done()]
        assert len(stay) == 20
        refused = await asyncio.gather(*(reading.keys() - stay), return_exceptions=True)
        assert all(one == b"" or isinstance(one, ConnectionError) for one in refused)
        # The others are served.
        for task in stay:
            reading[task].write(head("/healthz", "Connection: close").replace(b"POST", b"GET"))
        assert {status_of(answer) for answer in await asyncio.gather(*stay)} == {200}
        for writer in reading.values():
            writer.close()
        assert (await served.post("/v1/search", {"query": "key"})).status_code == 200


async def test_a_request_has_its_time_and_who_leaves_is_not_worked_for(filled, filled_url):
    clock = ManualClock()
    async with on_a_port(filled, clock=clock, seconds=60) as served:
        with held(filled_url, CHUNK) as holder:
            async with served.connection(SEARCH):
                await eventually(lambda: waiting(holder) == 1)
            await eventually(lambda: waiting(holder) == 0)  # while the lock is held: the statement was cancelled
            await eventually(lambda: served.state.metrics.refused["client-gone"])
            assert (served.state.metrics.in_flight, served.state.open_client.users) == (0, 0)
            asking = asyncio.ensure_future(served.post("/v1/search", {"query": "key"}))
            await eventually(lambda: waiting(holder) == 1)
            clock.advance(60)
            assert (await asking).status_code == 504
            await eventually(lambda: waiting(holder) == 0)


async def test_what_finds_no_place_in_a_second_is_refused(filled, filled_url):
    clock = ManualClock()
    async with on_a_port(filled, clock=clock, concurrency=3) as served:

        def ask(count):
            return [asyncio.ensure_future(served.post("/v1/search", {"query": f"key {n}"})) for n in range(count)]

        with held(filled_url, CHUNK) as holder:
            asking = ask(3)
            await eventually(lambda: waiting(holder) == 3)
            in_vain = ask(20)
            await eventually(lambda: clock.waits.count(MAX_WAIT_SECONDS) == 20 + 1)  # and the look at the settings
            clock.advance(MAX_WAIT_SECONDS)
            refused = await asyncio.gather(*in_vain)
            assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}
            assert refused[0].json()["type"] == "urn:semlex:problem:overload"
            for path in ("/healthz", "/metrics"):
                assert (await served.http.get(path)).status_code == 200
            patient = ask(2)
            await eventually(lambda: clock.waits.count(MAX_WAIT_SECONDS) == 2 + 1)
        assert [answer.status_code for answer in await asyncio.gather(*asking, *patient)] == [200] * 5
        assert (served.state.metrics.refused["overload"], served.state.admitted) == (20, 0)


async def test_answers_have_a_longest_length(changing, monkeypatch):
    limits, threads, too_long = "semlex.server.limits", set(), (413, "urn:semlex:problem:answer-too-long")
    text = "A key. " * 100
    documents = [Document(text, id=f"d{number}", metadata={"note": text}) for number in range(5)]
    await changing.collection(COLLECTION).add_documents(documents)

    def writing(value):
        threads.add(threading.current_thread())
        return written(value)

    written = request_context.as_json
    monkeypatch.setattr(request_context, "as_json", writing)
    async with in_process(changing) as served:

        async def ask(method, path, given, fields):
            if method == "POST":
                return await served.post(path, given if fields is None else given | {"fields": fields})
            return await served.http.get(path, params=given if fields is None else given | {"fields": ",".join(fields)})

        for method, path, given in (
            ("POST", "/v1/search", {"query": "key", "top_k": 5}),
            ("POST", "/v1/search", {"query": "key", "top_k": 5, "group_by": "document"}),
            ("POST", "/v1/candidates", {"query": "key", "depth": 5}),
            ("POST", "/v1/search/many", {"queries": ["key", "fruit"], "top_k": 5}),
            ("GET", "/v1/chunks", {"limit": 5}),
        ):
            monkeypatch.setattr(f"{limits}.MAX_ANSWER_BYTES", 32 * MIB)
            whole, threads = await ask(method, path, given, None), set()
            monkeypatch.setattr(request_context, "LONG_BYTES", 5 * 2 * len(text))
            assert (await ask(method, path, given, None)).status_code == 200
            assert threads
            assert threading.main_thread() not in threads
            monkeypatch.setattr(request_context, "LONG_BYTES", MIB)
            monkeypatch.setattr(f"{limits}.MAX_ANSWER_BYTES", len(whole.content) - 200)
            refused = await ask(method, path, given, None)
            assert (refused.status_code, refused.json()["type"]) == too_long, path
            assert "fields" in refused.json()["detail"]
            short = await ask(method, path, given, ["id", "line"])
            assert (short.status_code, "A key" in whole.text, "A key" in short.text) == (200, True, False)
            with monkeypatch.context() as patch:
                patch.setattr(f"{limits}.MAX_FOUND_BYTES", 5 * 2 * len(text) - 100)
                for rows in (32, 1):  # more are measured by the database
                    patch.setattr("semlex.store.query.chunks.MEASURED_ROWS", rows)
                    unread = await ask(method, path, given, ["id", "line"])
                    assert (unread.status_code, unread.json()["type"]) == too_long, (path, rows)
            with monkeypatch.context() as patch:
                patch.setattr(f"{limits}.MAX_FOUND_AT_ONCE_BYTES", 5 * 2 * len(text) - 100)
                assert (await ask(method, path, given, ["id", "line"])).status_code == 200
                patch.setattr(f"{limits}.FOUND_LITTLE_BYTES", len(text))
                later = await ask(method, path, given, ["id", "line"])
                assert (later.status_code, later.json()["type"]) == (503, "urn:semlex:problem:overload"), path
                assert later.headers["Retry-After"] == "1"
            wrong = await ask(method, path, given, ["id", "no_such"])
            assert (wrong.status_code, "fields" in wrong.json()["errors"][0]["field"]) == (422, True)
        monkeypatch.setattr(request_context, "LONG_BYTES", len(text))
        for path, status in (("/v1/document?document=d0", 200), ("/v1/document?document=none", 404)):
            threads = set()
            assert (await served.http.get(path)).status_code == status
            assert threading.main_thread() not in threads
        monkeypatch.setattr(f"{limits}.MAX_ANSWER_BYTES", len(text))
        assert (await served.http.get("/v1/document?document=d0")).status_code == 413


async def test_requests_in_progress_end_before_the_server(filled, filled_url):
    async with on_a_port(filled) as served:
        with held(filled_url, CHUNK) as holder:
            asking = asyncio.ensure_future(served.post("/v1/search", {"query": "key"}))
            await eventually(lambda: waiting(holder) == 1)
            served.state.is_stopping = True
            refused = await served.post("/v1/search", {"query": "key"})
            assert (refused.status_code, refused.json()["type"]) == (503, "urn:semlex:problem:stopping")
        assert (await asking).status_code == 200


@pytest.mark.parametrize("is_urged", [True, False])
async def test_a_request_in_progress_ends_with_a_second_signal_or_its_time(filled, filled_url, *, is_urged):
    clock = ManualClock()
    async with on_a_port(filled, clock=clock, stop_seconds=60, seconds=3600) as served:
        with held(filled_url, CHUNK) as holder:
            asking = asyncio.ensure_future(served.post("/v1/search", {"query": "key"}))
            await eventually(lambda: waiting(holder) == 1)
            served.server.handle_exit(signal.SIGTERM, None)
            stopping = asyncio.ensure_future(served.server.shutdown())
            await clock.eventually_waited(LOOK_SECONDS)
            clock.advance(59)
            await clock.eventually_waited(LOOK_SECONDS)
            assert not asking.done()
            if is_urged:
                served.server.handle_exit(signal.SIGTERM, None)
            clock.advance(LOOK_SECONDS if is_urged else 1)
            with pytest.raises(httpx2.TransportError):
                await asking
            await stopping
            await eventually(lambda: waiting(holder) == 0)


@given(st.integers(1, 100), st.lists(st.floats(0, 100), max_size=300))
def test_no_caller_has_more_requests_in_a_minute_than_it_may(per_minute, pauses):
    rates, now, taken = Rates(per_minute), 0.0, []
    for pause in pauses:
        now += pause
        if not rates.wait("ann", now):
            taken.append(now)
    for begin in taken:
        # A full bucket, and what flows in meanwhile.
        assert sum(begin <= one < begin + 60 for one in taken) <= 2 * per_minute
    assert Rates(per_minute).wait("ann", 0) == 0
    assert all(Rates(0).wait("ann", 0) == 0 for _ in range(3))


async def test_rates_count_per_caller_and_before_the_body_is_read(filled):
    clock = ManualClock()
    async with on_a_port(filled, clock=clock, rate=2) as served:
        for statuses in ([200, 200, 429, 429], [200, 429]):
            found = [(await served.http.get("/v1/collections")) for _ in statuses]
            assert [answer.status_code for answer in found] == statuses
            assert found[-1].headers["retry-after"] == "30"
            assert (await served.http.get("/healthz")).status_code == 200
            clock.advance(30)
        clock.advance(30)
        without_body = head("/v1/search", "Connection: close", "Content-Length: 15")
        async with served.connection(without_body), served.connection(without_body):
            await eventually(lambda: served.state.metrics.in_flight == 2)
            assert status_of(await raw(served.address, without_body)) == 429


async def test_requests_have_an_id_and_unknown_collections_are_not_remembered(served, caplog):
    caplog.set_level(logging.INFO, logger="semlex.server")
    for name in ("mine-1", "a b", "x" * 65, "../..", "<script>"):
        answer = await served.post("/v1/search", {"query": PRIVATE}, headers={"X-Request-ID": name})
        assert (answer.headers["x-request-id"] == name) == (name in caplog.text) == (name == "mine-1")
    assert "request mine-1: POST /v1/search 200" in caplog.text
    for number in range(50):
        answer = await served.post("/v1/search", {"query": "key", "collection": f"nowhere_{number}"})
        assert (answer.status_code, "nowhere" in answer.text) == (404, False)
    assert len(served.state.open_client.client._collections) <= 2


async def test_secrets_stand_in_no_body_and_no_log(filled, caplog):
    """A text in every field of every kind of wrong request; the token, right or wrong."""
    caplog.set_level(logging.DEBUG)
    wrong = [
        ("top_k", 0), ("filters", f"{PRIVATE} ="), ("filters", {"a": {"$no": PRIVATE}}), ("mode", PRIVATE),
        ("vector", [PRIVATE]), ("collection", PRIVATE), ("boost", {PRIVATE: 1}), ("query", [PRIVATE]),
        ("query", PRIVATE + "\0"),
    ]  # fmt: skip
    async with in_process(filled, rights="admin") as served:
        searches = [*({"query": PRIVATE, name: value} for name, value in wrong), PRIVATE]
        answers = [await served.post("/v1/search", body, headers=bearer(PRIVATE)) for body in searches]
        assert {answer.status_code for answer in answers} <= {400, 404, 409, 422}
        for document in ({"content": PRIVATE, "id": "x" * 513}, {"content": PRIVATE + "\0"}):
            answers.append(await served.post("/v1/documents", {"documents": [document]}))
            assert answers[-1].status_code == 422
    assert PRIVATE not in caplog.text + "".join(answer.text for answer in answers)


async def test_paths_that_no_file_can_have_are_refused(filled, tmp_path):
    async with in_process(filled, rights="write", allow=[tmp_path]) as served:
        for name in ("a\0b", "\0", "a\ud800b", "a\udc80b"):
            path = f"{tmp_path}/{name}"
            for place, body in (
                ("/v1/index", {"paths": [path]}),
                ("/v1/jobs", {"kind": "index", "arguments": {"paths": [path]}}),
                ("/v1/jobs", {"kind": "sync", "arguments": {"paths": [str(tmp_path), path]}}),
            ):
                content = json.dumps({**body, "collection": COLLECTION})  # halves of pairs are escaped
                answer = await served.http.post(place, content=content, headers=JSON)
                assert answer.status_code in (403, 422), (name, place, answer.text)
            with pytest.raises(ConfigurationError):
                await AllowedFolders([tmp_path]).check([path])
        assert (await served.http.get("/v1/jobs")).json()["jobs"] == []


async def test_a_link_that_becomes_a_file_while_it_is_read_is_refused(filled, tmp_path, monkeypatch):
    (tmp_path / "race.md").symlink_to(tmp_path / "target.md")
    async with in_process(filled, rights="write", allow=[tmp_path]) as served:
        access = Access.of(writes=True, folders=[tmp_path])
        monkeypatch.setattr(os, "readlink", Mock(side_effect=OSError(errno.EINVAL, "Invalid argument")))
        assert (await served.post("/v1/index", {"paths": [str(tmp_path / "race.md")]})).status_code == 403
        with pytest.raises(ConfigurationError, match="not in the folders"):
            access.folder("race.md")
        (problem,) = find_files(tmp_path, Selection(None, (), ["md"], recursive=True))
        assert isinstance(problem, FileProblem)


async def test_refused_requests_are_logged_and_counted_with_route_and_address(filled, tokens, caplog):
    caplog.set_level("INFO", "semlex.server")
    token = bearer(tokens.add("ann", "read"))
    refused = [
        (401, "/v1/search", "/v1/search", {}),
        (421, "/v1/jobs/x/cancel", "/v1/jobs/{job_id}/cancel", {"headers": {"Host": "elsewhere.example.org"}}),
        (413, "/v1/search", "/v1/search", {"headers": token, "content": b" " * 101}),
        (404, "/v1/nowhere", "none", {"headers": token}),
        (429, "/mcp", "/mcp", {"headers": token}),
    ]
    async with in_process(filled, token_file=tokens.path, rate=2, body_bytes=100) as served:
        for status, path, _, options in refused:
            assert (await served.http.post(path, **options)).status_code == status
        served.state.is_stopping = True
        assert (await served.http.get("/v1/documents", headers=token)).status_code == 503
    counted = {(route, status) for _, route, status in served.state.metrics.requests}
    assert counted == {(route, status) for status, _, route, _ in refused} | {("/v1/documents", 503)}
    lines = [vars(record) for record in caplog.records if "route" in vars(record)]
    assert {(line["route"], line["status"]) for line in lines} == counted
    assert {line["address"] for line in lines} == {"127.0.0.1"}
    assert all("127.0.0.1)" in line["message"] for line in lines)


async def test_callers_learn_only_the_kind_of_an_internal_error_and_the_log_has_the_remedy(served, monkeypatch, caplog):
    key = "SOME_PROVIDER_KEY"
    for error, status, text in ((RuntimeError(PRIVATE), 500, PRIVATE), (MissingKeyError(f"set {key}"), 503, key)):
        monkeypatch.setattr("semlex.retriever.collection.Collection.search", AsyncMock(side_effect=error))
        answer = await served.post("/v1/search", {"query": "key"})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert text not in answer.text
    assert key in caplog.text
