"""Streamable HTTP: who may ask, under which names, within which limits; and with the protocol's own client."""

import re
import signal
from contextlib import nullcontext
from itertools import product

import httpx2
import pytest
from mcp.client import Client as Assistant
from starlette.applications import Starlette

from semlex.errors import ConfigurationError
from semlex.server.addresses import is_loopback
from semlex.server.mcp.access import OFFERS, Access
from semlex.server.mcp.http import MAX_BODY_BYTES, listening_socket, mcp_app
from semlex.server.open_client import OpenClient
from semlex.server.tokens import Caller
from tests.support.assistants import HANDSHAKES, STATELESS, Posted, first_frame, served
from tests.support.http_server import bearer, without_tls
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slow  # most of them

SEARCH = {"query": "every ninety days", "collection": "handbook"}
TOKENS = {"reader-token": Caller("reader", "read", frozenset({"handbook"})), "writer-token": Caller("writer", "write")}


@pytest.mark.parametrize("mode", ["legacy", STATELESS])
async def test_progress_is_told_while_files_are_read(client, docs, mode):
    told = []

    async def tell(progress, total, message):
        assert total is None
        told.append((progress, message))

    access = Access.of(writes=True, folders=[str(docs)])
    async with served(mcp_app(client, access)) as address, Assistant(address, mode=mode) as assistant:
        call = {"folder": ".", "collection": "fresh"}
        for options, counts in (({"progress_callback": tell}, (2, 0)), ({}, (0, 2))):
            found = (await assistant.call_tool("index_folder", call, **options)).structured_content
            assert (found["added"], found["unchanged"]) == counts
        job = (await assistant.call_tool("index_folder", {**call, "background": True})).structured_content["job_id"]
        (status,) = (await assistant.call_tool("job_status", {"job_id": job})).structured_content["jobs"]
        assert (status["state"], status["kind"], status["collection"]) == ("queued", "index", "fresh")
    assert told
    assert [number for number, _ in told] == sorted({number for number, _ in told})
    assert all(re.fullmatch(r"[a-z ]+: [\d,]+( of [\d,]+)? \w+", message or "") for _, message in told)


async def test_a_caller_ends_its_own_oldest_idle_session(asking, monkeypatch):
    monkeypatch.setattr("semlex.server.mcp.http.MAX_SESSIONS_OF_A_CALLER", 2)
    app = mcp_app(asking, Access(), find_caller=TOKENS.get)
    async with served(app) as address, without_tls(timeout=LIMIT) as http:

        async def is_open(one):
            return (await one.send(1, "tools/list")).status_code == 200

        tokens = ("writer-token", "writer-token", *["reader-token"] * 5)
        other, another, new, *own = (Posted(http, address, HANDSHAKES[-1], token) for token in tokens)
        for one in (other, *own[:3]):
            await one.begin()
        assert [await is_open(one) for one in (other, *own[:3])] == [True, False, True, True]
        assert await is_open(own[1])  # so that the other one is idle for longer
        await own[3].begin()
        assert [await is_open(one) for one in (own[1], own[2], own[3], other)] == [True, False, True, True]
        # Those with a stream are in use.
        async with (
            http.stream("GET", address, headers=own[1].headers) as first,
            http.stream("GET", address, headers=own[3].headers) as second,
        ):
            assert (first.status_code, second.status_code) == (200, 200)
            refused = await new.post(first_frame(new.revision))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert await is_open(own[1])
            await another.begin()
        assert (await http.delete(address, headers=own[1].headers)).status_code == 200
        await new.begin()
        assert await is_open(own[3])


async def test_only_known_hosts_and_origins_may_ask(asking):
    async with served(mcp_app(asking, Access())) as address, without_tls() as http:
        port = httpx2.URL(address).port
        own = f"http://127.0.0.1:{port}"
        for revision, (headers, status) in product(("2025-11-25", STATELESS), (
            ({}, 200), ({"Host": f"localhost:{port}"}, 200), ({"Host": f"[::1]:{port}"}, 200), ({"Origin": own}, 200),
            ({"Host": "evil.example"}, 421), ({"Host": f"127.0.0.1.evil.example:{port}", "Origin": own}, 421),
            ({"Host": ""}, 421), ({"Origin": "null"}, 403), ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "http://localhost:9"}, 403), ({"Origin": own.replace("http", "https")}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),  # a form of another port, by a browser that names no origin
        )):  # fmt: skip
            answer = await Posted(http, address, revision).post(first_frame(revision), **headers)
            assert answer.status_code == status, headers
            if status != 200:
                assert answer.json()["request_id"]
                assert ("--allow-host" if status == 421 else "own host and port") in answer.json()["detail"]


async def test_tokens_say_who_asks_and_what_they_may(asking):
    app = mcp_app(asking, Access.of(writes=True), find_caller=TOKENS.get)
    async with served(app) as address, without_tls() as http:

        async def begun(revision, token):
            posted = Posted(http, address, revision, token)
            await posted.begin()
            return posted, {tool["name"] for tool in (await posted.ask(1, "tools/list"))["result"]["tools"]}

        for revision in ("2025-11-25", STATELESS):
            for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic reader-token"},
                           {"Authorization": "Bearer"}, {"X-Token": "reader-token"}):  # fmt: skip
                search = {"name": "search", "arguments": SEARCH}
                answer = await Posted(http, address, revision).send(1, "tools/call", search, **header)
                assert (answer.status_code, "ninety" in answer.text) == (401, False)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert "semlex serve token add" in answer.json()["detail"]
            reader, names = await begun(revision, "reader-token")
            assert names == {offer.name for offer in OFFERS if offer.reads_only}
            for arguments, is_refused in ((SEARCH, False), ({**SEARCH, "collection": "other"}, True)):
                found = await reader.ask(2, "tools/call", {"name": "search", "arguments": arguments})
                assert found["result"].get("isError", False) == is_refused
            writer, names = await begun(revision, "writer-token")
            assert ("index_folder" in names, "reindex_collection" in names) == (True, False)
            if revision != STATELESS:
                writer.headers |= bearer("reader-token")  # a stolen session
                assert (await writer.send(3, "tools/list")).status_code in (403, 404)


async def test_bodies_are_bounded_and_noise_is_refused(asking):
    async with served(mcp_app(asking, Access())) as address, without_tls() as http:
        for revision in ("2025-11-25", STATELESS):
            posted = Posted(http, address, revision)
            await posted.begin()
            more = {"MCP-Protocol-Version": STATELESS} if revision == STATELESS else {}
            large = b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * MAX_BODY_BYTES + b'"}'
            assert (await posted.post(large, **more)).status_code == 413
            for noise in (b"", b"garbage", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc": "2.0"}'):
                answer = await posted.post(noise, **more)
                assert 400 <= answer.status_code < 500, (revision, noise[:20], answer.status_code)
            assert (await posted.send(1, "tools/list", **{"Content-Type": "text/plain"})).status_code in (400, 415)
            assert (await posted.ask(2, "tools/list"))["result"]["tools"]


async def test_another_application_takes_the_routes(asking):
    """As the HTTP server does: it finds out who asks, and the client may be replaced."""
    caller = TOKENS["reader-token"]
    app = mcp_app(lambda: nullcontext(OpenClient(asking)), Access.of(writes=True), caller_of=lambda _: caller)
    outer = Starlette(routes=app.routes, lifespan=lambda _: app.router.lifespan_context(app))
    async with served(outer) as address, Assistant(address) as assistant:
        assert not (await assistant.call_tool("search", SEARCH)).is_error
        assert (await assistant.call_tool("search", {**SEARCH, "collection": "other"})).is_error
        assert (await assistant.call_tool("optimize_search", {"collection": "handbook"})).is_error


def test_without_tokens_only_this_machine_is_served():
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.example.org", ""):  # noqa: S104
        assert not is_loopback(host)
        with pytest.raises(ConfigurationError, match="token file"):
            listening_socket(host, 0, has_tokens=False)
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        assert is_loopback(host)
    taken = listening_socket("127.0.0.1", 0, has_tokens=False)
    with taken, pytest.raises(ConfigurationError, match="--port"):
        listening_socket("127.0.0.1", taken.getsockname()[1], has_tokens=False)


async def test_the_command_serves_until_a_signal(handbook):
    with handbook.start("mcp", "--http", "--port", "0", "-c", "handbook") as process:
        line = process.stderr.readline()
        address = re.search(r"http://127.0.0.1:\d+/mcp", line)
        assert address, line
        async with Assistant(address[0]) as assistant:
            found = await assistant.call_tool("search", {"query": "every ninety days"})
            assert found.structured_content["hits"][0]["path"].endswith("keys.md:5")
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate()
        assert (process.returncode, said, "Traceback" in errors) == (130, "", False)
