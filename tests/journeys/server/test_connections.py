"""Connections that take nothing, or send for ever: they hold no place, and not for long."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from semlex.server.access.tokens import TokenFile
from semlex.server.options import ServeOptions
from tests.journeys.server.test_limits import head, status_of
from tests.support.http_server import in_process, on_a_port, raw

if TYPE_CHECKING:
    from pathlib import Path

    from semlex import Client

MIB = 1024 * 1024
PAGE_FILE = b"GET /page/searching.js HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def opened_and_deaf(address: tuple[str, int]) -> asyncio.StreamWriter:
    """A connection whose other end asks for more than the network holds, and reads none of it."""
    reader, writer = await asyncio.open_connection(*address, limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
    with suppress(ConnectionError):
        writer.write(PAGE_FILE * 4_000)
    del reader
    return writer


async def until(holds: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - of the server
            await asyncio.sleep(0.01)


async def test_who_takes_no_answer_holds_no_place_and_no_connection(filled: Client, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    headers = {"Authorization": f"Bearer {file.add('ann', 'read')}"}
    async with on_a_port(filled, token_file=file.path, concurrency=2, send_seconds=0.5, seconds=60) as served:
        writers = [await opened_and_deaf(served.address) for _ in range(4)]
        deaf = served.connections
        await until(lambda: sum(one.flow.write_paused for one in deaf) == len(writers))
        assert served.state.admitted == 0
        answer = await served.post("/v1/search", {"query": "key"}, headers=headers)
        assert answer.status_code == 200
        await until(lambda: not any(one.flow.write_paused for one in deaf))
        await until(lambda: len(served.connections) == 1)  # that of `served.http`
        for writer in writers:
            writer.transport.abort()


async def test_who_takes_an_answer_slowly_gets_the_whole(filled: Client) -> None:
    async with on_a_port(filled, send_seconds=0.4) as served:
        size = len((await served.http.get("/page/searching.js")).content)
        count = 1_000
        reader, writer = await asyncio.open_connection(*served.address, limit=1)
        writer.write(PAGE_FILE * (count - 1) + PAGE_FILE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        taken = 0
        while piece := await reader.read(256 * 1024):
            taken += len(piece)
            await asyncio.sleep(0.02)
        assert taken > size * count
        writer.close()


async def test_the_rest_of_a_refused_body_has_its_time(filled: Client, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    file.add("ann", "read")
    async with on_a_port(filled, token_file=file.path, head_seconds=0.4) as served:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(head("/v1/search", "Content-Length: 900000"))
        assert status_of(await reader.readuntil(b"\r\n\r\n")) == 401
        ended = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(20):
            while not ended.done():
                with suppress(ConnectionError):
                    writer.write(b" ")
                    await writer.drain()
                await asyncio.sleep(0.05)
        with suppress(ConnectionError):
            await ended
        writer.close()


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_who_sends_all_before_reading_sees_the_refusal(filled: Client, connection: str) -> None:
    body = b"x" * (9 * MIB)

    def ask(address: tuple[str, int], path: str) -> tuple[int, str]:
        one = http.client.HTTPConnection(*address, timeout=20)
        try:
            one.request("POST", path, body, {"Content-Type": "application/json", "Connection": connection})
            answer = one.getresponse()
            return answer.status, json.load(answer)["detail"]
        finally:
            one.close()

    async with on_a_port(filled) as served:
        for path in ["/v1/documents"] * 5 + ["/healthz"] * 5:
            status, detail = await asyncio.to_thread(ask, served.address, path)
            assert (status, "body" in detail) == (413, True)
        await until(lambda: not served.connections)


@pytest.mark.parametrize("too_long", [True, False])
async def test_the_rest_after_the_last_answer_has_its_bounds(
    filled: Client, monkeypatch: pytest.MonkeyPatch, *, too_long: bool
) -> None:
    monkeypatch.setattr("semlex.server.limits.protocol.MAX_REST_BYTES", 200_000 if too_long else MIB * 1024)
    async with on_a_port(filled, head_seconds=30 if too_long else 0.4) as served:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(head("/v1/search", f"Content-Length: {900 * MIB}", "Connection: close"))
        assert status_of(await reader.readuntil(b"\r\n\r\n")) == 413
        rest = await reader.read()  # the server says that it sends no more
        assert json.loads(rest)["status"] == 413
        with suppress(ConnectionError):
            async with asyncio.timeout(10):
                while served.connections:
                    writer.write(b" " * 10_000)
                    await writer.drain()
                    await asyncio.sleep(0.01)
        assert not served.connections
        writer.close()


async def test_a_connection_goes_on_after_a_refused_body_that_ended(filled: Client, tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    token = f"Authorization: Bearer {file.add('ann', 'read')}"
    body = json.dumps({"query": "key"}).encode()
    length = f"Content-Length: {len(body)}"
    async with on_a_port(filled, token_file=file.path, head_seconds=0.4) as served:
        answer = await raw(
            served.address,
            *(head("/v1/search", length), body[:5], body[5:]),
            *(head("/v1/search", length, token), body),
            pause=0.05,
        )
        assert (answer.count(b"HTTP/1.1 401"), answer.count(b"HTTP/1.1 200")) == (1, 1)
        # It is closed although nothing more comes: `raw` reads to the end.


@pytest.mark.parametrize("path", ["/page/documents", "/healthz", "/", "/readyz"])
async def test_what_needs_no_token_takes_no_body(filled: Client, path: str) -> None:
    async with in_process(filled, documents_bytes=8 * MIB) as served:
        for method in ("GET", "POST"):
            answer = await served.http.request(method, path, content=b"x" * 2_000)
            assert answer.status_code == 413
        assert (await served.http.get("/v1/count", params={})).status_code == 200


def test_only_what_stores_documents_has_their_limit() -> None:
    options = ServeOptions(documents_bytes=8 * MIB)
    paths = ("/v1/documents", "/v1/jobs", "/v1/search", "/v1/x/documents", "/page/jobs", "/documents")
    assert [path for path in paths if options.bytes_of(path) == 8 * MIB] == ["/v1/documents", "/v1/jobs"]


async def test_bodies_in_progress_have_a_longest_sum(filled: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semlex.server.options.BYTES_IN_PROGRESS", 1_500)
    async with on_a_port(filled, body_bytes=1_000, documents_bytes=1_000, body_seconds=60) as served:
        reader, writer = await asyncio.open_connection(*served.address)
        writer.write(head("/v1/search", "Content-Length: 1000") + b'{"query"')
        await until(lambda: served.state.metrics.in_flight == 1)
        body = json.dumps({"query": "key"}).encode()
        refused = await served.http.post("/v1/search", content=body.ljust(1_000))
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:semlex:problem:overload")
        assert refused.headers["retry-after"] == "1"
        typed = {"Content-Type": "application/json"}
        assert (await served.http.post("/v1/search", content=body.ljust(500), headers=typed)).status_code == 200
        writer.close()
        del reader
        await until(lambda: served.state.metrics.in_flight == 0)
        for _ in range(3):  # what has ended is no longer counted
            whole = await served.http.post("/v1/search", content=body.ljust(1_000), headers=typed)
            assert whole.status_code == 200


async def test_a_whole_stream_is_no_client_that_left(filled: Client) -> None:
    async with on_a_port(filled) as served:
        for _ in range(5):
            answer = await served.post("/v1/answer", {"question": "how often is a key rotated?", "stream": True})
            assert answer.status_code == 200
            assert "event: answer" in answer.text
        assert (await served.post("/v1/search", {"query": "key"})).status_code == 200
        assert served.state.metrics.refused == {}
