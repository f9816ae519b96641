"""Assistants at the server's own ``/mcp``: its tokens, rights and collections, its limits, and its settings."""

import asyncio
import logging
import re
import shlex
import signal
from contextlib import asynccontextmanager, nullcontext

import pytest
from mcp.client import Client as Assistant
from mcp.client.streamable_http import streamable_http_client

from semlex import Client
from semlex.retriever.handle import write_curve
from semlex.server.connections import LOOK_SECONDS
from semlex.server.mcp.access import OFFERS
from semlex.server.mcp.tools import HIT
from semlex.testing import HashEmbedder
from tests.journeys.server.conftest import HIDDEN, with_two
from tests.support.assistants import STATELESS, Posted, first_frame
from tests.support.curves import curve
from tests.support.http_server import COLLECTION, app_of, bearer, on_a_port, settings_for, without_tls
from tests.support.manual_clock import ManualClock
from tests.support.waiting import LIMIT, eventually, held, waiting

MODES = ("legacy", STATELESS)


@pytest.fixture
async def tenants(two_url):
    async with Client(two_url, "none") as client:
        yield client


@asynccontextmanager
async def assistant(url, token=None, mode="legacy"):
    async with (
        without_tls(headers={} if token is None else bearer(token), timeout=LIMIT) as http,
        Assistant(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as opened,
    ):
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_token_reaches_its_rights_and_collections(tenants, tokens, mode):
    reader, admin = tokens.add("reader", "read", (COLLECTION,)), tokens.add("admin", "admin")
    async with on_a_port(tenants, token_file=tokens.path) as served:
        async with assistant(served.url, reader, mode) as opened:
            names = {tool.name for tool in (await opened.list_tools()).tools}
            assert names == {offer.name for offer in OFFERS if offer.reads_only}
            calls = (
                ("search", {"query": "key"}), ("list_collections", {}), ("job_status", {}), ("optimize_search", {}),
                ("search", {"query": "key", "collection": "nowhere"}),
            )  # fmt: skip
            told = [await opened.call_tool(*call) for call in calls]
            assert [one.is_error for one in told] == [False, False, False, True, True]
            (hit,) = told[0].structured_content["hits"]
            assert hit["id"] == f"{COLLECTION}-id"
            told.append(await opened.read_resource(hit["uri"]))
            assert "rotated" in told[-1].contents[0].text
            for uri in (f"chunk://{HIDDEN}/{HIDDEN}-id", f"chunk://nowhere/{HIDDEN}-id"):
                with pytest.raises(Exception, match=r"collection '.*' does not exist") as refused:
                    await opened.read_resource(uri)
                assert "rotated" not in str(refused.value)
            assert HIDDEN not in "".join(map(str, told))
            hidden = await opened.call_tool("search", {"query": "key", "collection": HIDDEN})
            texts = [one.content[0].text.replace(name, "…") for one, name in ((hidden, HIDDEN), (told[4], "nowhere"))]
            assert (hidden.is_error, texts[0]) == (True, texts[1])  # whether there is one out of reach is not said
        async with assistant(served.url, admin, mode) as opened:
            assert {tool.name for tool in (await opened.list_tools()).tools} == {offer.name for offer in OFFERS}
            assert not (await opened.call_tool("search", {"query": "key", "collection": HIDDEN})).is_error
            assert not (await opened.call_tool("optimize_search", {"collection": HIDDEN})).is_error
        assert served.state.admitted == served.state.open_client.users == 0


@pytest.mark.slow
async def test_a_tool_that_names_no_collection_means_that_of_the_settings(database_url, tokens, tmp_path):
    everything, hidden = tokens.add("all", "write"), tokens.add("hidden", "read", (HIDDEN,))
    both = tokens.add("both", "read", (HIDDEN, "another"))
    (tmp_path / "docs").mkdir()
    options = {"token_file": tokens.path, "allow": (str(tmp_path / "docs"),), "rate": 0}
    async with Client(with_two(database_url), "none") as tenants, on_a_port(tenants, **options) as served:
        for token, meant in ((everything, COLLECTION), (hidden, HIDDEN), (both, HIDDEN)):
            async with assistant(served.url, token) as opened:
                (hit,) = (await opened.call_tool("search", {"query": "key"})).structured_content["hits"]
                assert hit["id"] == f"{meant}-id"
        served.state.open_client.settings = settings_for(collection="fresh")
        async with assistant(served.url, everything) as opened:
            found = await opened.call_tool("search", {"query": "key"})
            assert (found.is_error, "name a collection; collections: " in found.content[0].text) == (True, True)
            assert (await opened.call_tool("index_folder", {"folder": "."})).structured_content["collection"] == "fresh"


async def test_the_calibration_of_the_settings_holds_for_assistants(database_url, tmp_path):
    model = HashEmbedder(8)
    write_curve(tmp_path / "curve.json", curve(identity_key=model.identity.key))
    async with Client(database_url, model) as client, on_a_port(client, rate=0) as served:
        calls = [{"query": "key", "collection": name} for name in (COLLECTION, HIDDEN)]
        for call in calls:
            await client.collection(call["collection"]).add_texts(["The key is rotated."])
        served.state.open_client.settings = settings_for(calibration=tmp_path / "curve.json")
        async with assistant(served.url) as opened:
            found = [(await opened.call_tool("search", call)).structured_content["hits"][0] for call in calls]
        (hit,) = (await served.post("/v1/search", calls[0])).json()["hits"]
        assert {name: found[0][name] for name in HIT} == {name: hit[name] for name in HIT}  # one object everywhere
        assert found[0]["confidence"] == hit["confidence"] is not None
        assert found[1]["confidence"] is None


async def test_refusals_name_a_remedy_of_this_server_and_its_hosts_and_origins_are_checked(tenants, tokens):
    writer, page = tokens.add("writer", "write"), "https://pages.example.org"
    for token, options, wanted in (
        (writer, {"token_file": tokens.path}, "semlex serve token add NAME --rights admin"),
        (None, {"rights": "write", "origins": (page,)}, "can start it with --rights admin"),
    ):
        async with on_a_port(tenants, **options) as served, assistant(served.url, token) as opened:
            found = await opened.call_tool("optimize_search", {})
            text = found.content[0].text
            assert (found.is_error, "--allow-writes" in text, wanted in text) == (True, False, True)
            if token is not None:
                continue
            asked = Posted(served.http, "/mcp", STATELESS)
            await asked.begin()
            frame = b'{"jsonrpc": "2.0", "method": "notifications/none"}'
            more = {"MCP-Protocol-Version": STATELESS}
            wrong = (({"Origin": "https://evil.example"}, 403), ({"Host": "evil.example"}, 421))
            for headers, status in (({}, 202), ({"Origin": page}, 202), *wrong):
                assert (await asked.post(frame, **more, **headers)).status_code == status
            preflight = {"Origin": page, "Access-Control-Request-Method": "POST"}
            preflight["Access-Control-Request-Headers"] = "mcp-session-id,mcp-protocol-version,mcp-method,mcp-name"
            assert (await served.http.options("/mcp", headers=preflight)).status_code == 200


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
async def test_without_a_valid_token_nobody_is_answered(tenants, tokens, revision):
    reader, other = tokens.add("reader", "read"), tokens.add("other", "read")
    async with on_a_port(tenants, token_file=tokens.path) as served:
        begun = Posted(served.http, "/mcp", revision, reader)
        await begun.begin()
        assert (await begun.ask(1, "tools/list"))["result"]["tools"]
        asked = Posted(served.http, "/mcp", revision)
        asked.headers = {name: value for name, value in begun.headers.items() if name != "Authorization"}
        for given in (None, "Bearer wrong", f"Basic {reader}", "Bearer", f"Bearer {reader}x"):
            refused = await asked.post(b"{}", **({} if given is None else {"Authorization": given}))
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="semlex"')
        for method in ("GET", "DELETE"):
            assert (await served.http.request(method, "/mcp")).status_code == 401
        if revision != STATELESS:  # a session is for whoever has begun it
            asked.headers |= bearer(other)
            assert (await asked.send(2, "tools/list")).status_code == 404
        tokens.remove("reader")
        assert (await begun.post(b"{}")).status_code == 401
        assert served.state.metrics.requests["POST", "/mcp", 200] >= 1


async def test_without_sessions_any_process_answers(tenants):
    call = (1, "tools/call", {"name": "search", "arguments": {"query": "key"}})
    async with on_a_port(tenants, stateless=True) as served:
        posted = Posted(served.http, "/mcp", "2025-11-25")
        assert "mcp-session-id" not in (await posted.post(first_frame(posted.revision))).headers
        (hit,) = (await posted.ask(*call))["result"]["structuredContent"]["hits"]
        assert hit["id"] == f"{COLLECTION}-id"
        stream = await served.http.get("/mcp", headers=posted.headers)
        assert (stream.status_code, stream.headers["allow"]) == (405, "POST")
    async with on_a_port(tenants) as served:
        assert (await Posted(served.http, "/mcp", "2025-11-25").send(*call)).status_code == 400


@pytest.mark.parametrize("mode", MODES)
async def test_streams_have_no_time_and_take_no_place(tenants, two_url, mode):
    """Of the places for requests calls take one each, for as long as they like; and a body still has its bound."""
    clock = ManualClock()
    async with on_a_port(tenants, clock=clock, concurrency=2) as served:
        async with assistant(served.url, mode=mode) as one, assistant(served.url, mode=mode) as other:
            with held(two_url, f"semlex.{HIDDEN}_chunk") as holder:
                asking = asyncio.ensure_future(one.call_tool("search", {"query": "key", "collection": HIDDEN}))
                await eventually(lambda: waiting(holder))
                clock.advance(served.state.options.answer_seconds + 1)
                assert not (await other.call_tool("search", {"query": "key"})).is_error
                assert not asking.done()
            assert not (await asking).is_error
        too_long = b"x" * (served.state.options.body_bytes + 1)
        assert (await served.http.post("/mcp", content=too_long)).status_code == 413
        assert served.state.admitted == served.state.open_client.users == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_stop_ends_streams_in_order(tenants, two_url, mode, caplog):
    """The stream on which nothing is said ends at once and whole; a call in progress is answered."""
    clock = ManualClock()  # no time passes: whatever was given up when it is over would go on for ever
    async with without_tls(timeout=LIMIT) as http, on_a_port(tenants, clock=clock) as served:
        posted = Posted(http, f"{served.url}/mcp", "2025-11-25" if mode == "legacy" else mode)
        await posted.begin()
        listening = http.stream("GET", f"{served.url}/mcp", headers=posted.headers)
        async with listening if mode == "legacy" else nullcontext() as stream:
            with held(two_url, f"semlex.{COLLECTION}_chunk") as holder:
                call = {"name": "search", "arguments": {"query": "key"}}
                asking = asyncio.ensure_future(posted.ask(1, "tools/call", call))
                await eventually(lambda: waiting(holder))
                stopping = asyncio.ensure_future(served.server.shutdown())
                await clock.eventually_waited(LOOK_SECONDS)
                if stream is not None:
                    await stream.aread()
                assert not asking.done()
            (hit,) = (await asking)["result"]["structuredContent"]["hits"]
            assert hit["id"] == f"{COLLECTION}-id"
            await stopping
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


async def test_changed_settings_reach_assistants(two_url, empty_database_url):
    async with on_a_port(url=two_url) as served, assistant(served.url) as opened:
        call = {"query": "key", "collection": HIDDEN}
        assert not (await opened.call_tool("search", call)).is_error
        old = served.state.open_client
        assert await served.changed(empty_database_url)
        assert served.state.open_client is not old
        after = await opened.call_tool("search", call)
        assert (after.is_error, "no collections exist yet" in after.content[0].text, old.users) == (True, True, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "content"), [("mcp", '{"tokens": {}}'), ("serve", None)])
async def test_a_process_with_a_token_file(shell, tokens, command, content):
    """It begins without tokens and says so, sees changes of the file, and a stop ends streams whole."""
    for name in (COLLECTION, HIDDEN):
        shell("index", "docs", "-c", name, "--model", "none")
    if content is not None:
        tokens.path.write_text(content)
    words = ["mcp", "--http"] if command == "mcp" else ["serve", "--model", "none"]
    with shell.start(*words, "--port", "0", "--token-file", "tokens.json") as process:
        told, line = process.stderr.readline(), process.stderr.readline()
        assert "the token file tokens.json " + ("does not exist" if content is None else "has no token") in told
        found = re.search(r"http://127.0.0.1:\d+", line)
        assert found, line
        assert "to callers with a token" in line
        async with without_tls(timeout=LIMIT) as http:
            stranger = await http.post(f"{found[0]}/mcp", json={})
            assert (stranger.status_code, stranger.headers["www-authenticate"][:6]) == (401, "Bearer")
            listener = shell(*shlex.split(told.partition("to make one: semlex ")[2])).stdout.strip()
            reader = tokens.add("reader", "read", (COLLECTION,))
            async with assistant(found[0], reader) as opened:
                listed = (await opened.call_tool("list_collections", {})).structured_content["collections"]
                assert [one["name"] for one in listed] == [COLLECTION]
                if command == "mcp":  # it looks at each question
                    tokens.remove("reader")
                    with pytest.raises(Exception, match="error response"):
                        await opened.call_tool("list_collections", {})
            posted = Posted(http, f"{found[0]}/mcp", "2025-11-25", listener)
            await posted.begin()
            async with http.stream("GET", f"{found[0]}/mcp", headers=posted.headers) as stream:
                process.send_signal(signal.SIGTERM)
                await stream.aread()  # what is waited for would be cut off in the end
        assert process.wait() == (143 if command == "mcp" else -signal.SIGTERM)
        assert not re.search("ERROR|Traceback", process.stderr.read())


def test_other_machines_need_tokens(shell, tokens):
    refused = shell("mcp", "--http", "--host", "0.0.0.0", code=2).stderr  # noqa: S104
    assert all(text in refused for text in ("--token-file", "127.0.0.1"))
    own = {"--token-file": str(tokens.path), "--port": "80", "--host": "::1", "--allow-host": "a.example"}
    for option, value in own.items():
        assert "are for --http" in shell("mcp", option, value, code=2).stderr


def test_where_lines_of_the_log_go_is_left_alone(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])
        app_of()
        assert not logging.root.handlers
