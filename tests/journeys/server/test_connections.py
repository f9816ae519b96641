"""Connections that take nothing, or send for ever: they hold no place, and not for long."""

import asyncio
import http.client
import json
import socket
from contextlib import closing, suppress
from itertools import product
from unittest.mock import ANY

import pytest

from semlex.server import connections
from semlex.server.options import ServeOptions
from semlex.server.state import LOOK_SECONDS
from tests.journeys.server.test_limits import head, status_of
from tests.support.http_server import answer_of, bearer, in_process, on_a_port
from tests.support.manual_clock import ManualClock
from tests.support.waiting import LIMIT, eventually, turns

MIB = 1024 * 1024
PAGE_FILE = b"GET /page/searching.js HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def narrow(address):
    """A connection whose other end holds little of what is sent to it."""
    one = socket.socket()
    one.setblocking(False)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    await asyncio.get_running_loop().sock_connect(one, address)
    return await asyncio.open_connection(sock=one, limit=1)


@pytest.mark.slow
async def test_who_takes_no_answer_holds_no_place_and_no_connection(filled, tokens):
    clock, headers = ManualClock(), bearer(tokens.add("ann", "read"))
    limits = {"concurrency": 2, "send_seconds": 60, "seconds": 3600}
    async with on_a_port(filled, clock=clock, token_file=tokens.path, **limits) as served:
        writers = [(await narrow(served.address))[1] for _ in range(4)]
        for writer in writers:  # they ask for more than the network holds, and read none of it
            writer.transport.pause_reading()
            with suppress(ConnectionError):
                writer.write(PAGE_FILE * 1_000)
        await eventually(lambda: sum(one.flow.write_paused for one in served.connections) == len(writers))
        assert served.state.admitted == 0
        assert (await served.post("/v1/search", {"query": "key"}, headers=headers)).status_code == 200
        await clock.passes_until(lambda: len(served.connections) == 1, 60)  # that of `served.http`
        for writer in writers:
            writer.transport.abort()


@pytest.mark.slow
async def test_who_takes_an_answer_slowly_gets_the_whole(filled):
    clock, count = ManualClock(), 300
    async with on_a_port(filled, clock=clock, send_seconds=60, seconds=3600) as served:
        size = len((await served.http.get("/page/searching.js")).content)
        reader, writer = await narrow(served.address)
        writer.write(PAGE_FILE * (count - 1) + PAGE_FILE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        taken, waits, begun = 0, 0, clock.monotonic()
        while piece := await reader.read(256 * 1024):
            taken += len(piece)
            await turns()
            waits += 60 in clock.waits
            clock.advance(2)
        assert taken > size * count
        assert waits  # the server has waited for us
        assert clock.monotonic() - begun > 60
        writer.close()


@pytest.mark.slow
async def test_a_connection_goes_on_after_a_refused_body_that_ended_in_its_time(filled, tokens):
    clock, token = ManualClock(), f"Authorization: Bearer {tokens.add('ann', 'read')}"
    body, length = b'{"query":"key"}', "Content-Length: 15"
    async with (
        on_a_port(filled, clock=clock, token_file=tokens.path, head_seconds=60) as served,
        served.connection(head("/v1/search", length) + body[:5]) as (reader, writer),
    ):
        assert (await answer_of(reader))[0] == 401
        await clock.eventually_waited(60)
        clock.advance(50)
        writer.write(body[5:])
        await clock.eventually_waited(60)  # what follows has a time of its own
        writer.write(head("/v1/search", length, token) + body)
        assert (await answer_of(reader))[0] == 200
        assert clock.waits == [LOOK_SECONDS]  # for changed settings; nothing is awaited of the client
        writer.write(head("/v1/search", "Content-Length: 900000"))
        assert (await answer_of(reader))[0] == 401
        await clock.eventually_waited(60)
        for sent in range(1, 60):  # bytes that come now and then extend no limit
            writer.write(b" ")
            await eventually(lambda: [one._rest_bytes for one in served.connections] == [sent])  # noqa: B023 - now
            clock.advance(1)
        assert not reader.at_eof()
        clock.advance(1)
        with suppress(ConnectionError):
            assert await reader.read() == b""


@pytest.mark.slow
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_who_sends_all_before_reading_sees_the_refusal(filled, connection):
    body = b"x" * (9 * MIB)

    def ask(address, path):
        with closing(http.client.HTTPConnection(*address, timeout=LIMIT)) as one:
            one.request("POST", path, body, {"Content-Type": "application/json", "Connection": connection})
            answer = one.getresponse()
            return answer.status, json.load(answer)["detail"]

    async with on_a_port(filled) as served:
        for path in ["/v1/documents"] * 5 + ["/healthz"] * 5:
            status, detail = await asyncio.to_thread(ask, served.address, path)
            assert (status, "body" in detail) == (413, True)
        await eventually(lambda: not served.connections)


@pytest.mark.parametrize("too_long", [True, False])
async def test_the_rest_after_the_last_answer_has_its_bounds(filled, monkeypatch, *, too_long):
    monkeypatch.setattr("semlex.server.connections.MAX_REST_BYTES", 200_000 if too_long else MIB * 1024)
    clock = ManualClock()
    begin = head("/v1/search", f"Content-Length: {900 * MIB}", "Connection: close")
    async with on_a_port(filled, clock=clock, head_seconds=60) as served:
        async with served.connection(begin) as (reader, writer):
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 413
            assert json.loads(await reader.read())["status"] == 413  # the server says that it sends no more
            with suppress(ConnectionError):
                while served.connections:
                    writer.write(b" " * 10_000)
                    await writer.drain()
                    await turns()
                    clock.advance(0 if too_long else 1)
        assert not served.connections


@pytest.mark.slow
async def test_open_routes_take_no_body_and_only_routes_that_store_documents_take_a_long_one(filled):
    async with in_process(filled, documents_bytes=8 * MIB) as served:
        for method, path in product(("GET", "POST"), ("/page/documents", "/healthz", "/", "/readyz")):
            assert (await served.http.request(method, path, content=b"x" * 2_000)).status_code == 413, (method, path)
        assert (await served.http.get("/v1/count")).status_code == 200
    options = ServeOptions(documents_bytes=8 * MIB)
    paths = ("/v1/documents", "/v1/jobs", "/v1/search", "/v1/x/documents", "/page/jobs", "/documents")
    assert [path for path in paths if options.bytes_of(path) == 8 * MIB] == ["/v1/documents", "/v1/jobs"]


@pytest.mark.slow
async def test_bodies_in_progress_have_a_longest_sum_and_each_caller_a_share(filled, monkeypatch, tokens):
    monkeypatch.setattr("semlex.server.options.BYTES_IN_PROGRESS", 2_000)
    ann, bob, eve = (bearer(tokens.add(name, "read")) for name in ("ann", "bob", "eve"))
    limits = {"body_bytes": 1_000, "documents_bytes": 1_000, "body_seconds": 60, "rate": 0}
    async with on_a_port(filled, token_file=tokens.path, **limits) as served:

        async def ask(token, size):
            headers = {"Content-Type": "application/json", **token}
            return await served.http.post("/v1/search", content=b'{"query": "key"}'.ljust(size), headers=headers)

        def announced(token):
            lines = (f"Authorization: {token['Authorization']}", "Content-Length: 1000")
            return served.connection(head("/v1/search", *lines))

        async with announced(eve):
            await eventually(lambda: served.state.metrics.in_flight == 1)
            refused = await ask(eve, 100)
            assert (refused.status_code, refused.json()["type"]) == (503, "urn:semlex:problem:overload")
            assert (refused.headers["retry-after"], refused.json()["detail"].split()[0]) == ("1", "your")
            assert (await ask(ann, 1_000)).status_code == 200
            async with announced(bob):
                await eventually(lambda: served.state.metrics.in_flight == 2)
                refused = await ask(ann, 100)
                assert (refused.status_code, refused.json()["detail"].split()[0]) == (503, "the")
                # What has no body needs no room.
                assert (await served.http.get("/v1/collections", headers=eve)).status_code == 200
        await eventually(lambda: served.state.metrics.in_flight == 0)
        for token in (ann, bob, eve):  # what has ended is no longer counted
            assert (await ask(token, 1_000)).status_code == 200


@pytest.mark.parametrize("ends", [True, False])
async def test_a_server_that_retires_serves_open_connections_until_they_end_or_its_time_is_over(filled, ends):
    clock, get = ManualClock(), b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with (
        on_a_port(filled, clock=clock, stop_seconds=60) as served,
        served.connection(get) as (reader, writer),
        served.connection() as (_, other),
    ):
        assert (await answer_of(reader))[0] == 200
        await eventually(lambda: len(served.connections) == 2)
        served.server.retire()
        await clock.eventually_waited(connections.LOOK_SECONDS)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*served.address)
        writer.write(get)
        assert (await answer_of(reader), await reader.read()) == ((200, ANY), b"")  # its last answer
        clock.advance(connections.LOOK_SECONDS)
        await clock.eventually_waited(connections.LOOK_SECONDS)
        assert not served.server.should_exit
        if ends:
            other.close()
            await eventually(lambda: not served.connections)
        clock.advance(connections.LOOK_SECONDS if ends else 60)
        await eventually(lambda: served.server.should_exit)
