"""``semlex mcp --print-config``: what is printed starts the server elsewhere."""

import asyncio
import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from mcp.client import Client as Assistant
from mcp.client.stdio import StdioServerParameters, stdio_client

from semlex.cli.commands import mcp
from semlex.cli.commands.mcp import CLIENTS
from semlex.errors import ConnectionFailedError
from semlex.server.mcp import server as mcp_server
from semlex.server.mcp.access import Access
from tests.support.assistants import STATELESS
from tests.support.http_server import settings_for


def parsed(name, text):
    """Command and arguments, as the assistant of that name reads them."""
    if name == "codex":
        found = tomllib.loads(text)["mcp_servers"]["semlex"]
    elif name == "claude-code":
        words = shlex.split(text)
        assert words[:5] == ["claude", "mcp", "add", "semlex", "--"]
        return words[5], words[6:]
    else:
        (servers,) = json.loads(text).values()
        found = servers["semlex"]
    return found["command"], found["args"]


def test_the_options_are_repeated_with_absolute_paths(shell):
    given = ["-c", "handbook", "-c", "it's", "--allow-writes", "--allow", "docs", "--role", "a b", "--model", "none"]
    for name in CLIENTS:
        done = shell("mcp", *given, "--print-config", name)
        command, arguments = parsed(name, done.stdout)
        assert (command, arguments[:3]) == (sys.executable, ["-m", "semlex", "mcp"])
        options = arguments[3:]
        assert options[options.index("--allow") + 1] == str(shell.folder / "docs")
        assert [options[at + 1] for at, word in enumerate(options) if word == "--collection"] == ["handbook", "it's"]
        assert options[options.index("--role") + 1] == "a b"
        assert "--allow-writes" in options
        assert "--http" not in options
        # The assistant starts it without this environment; an address may hold a password, and is not printed.
        assert "database_url comes from DATABASE_URL" in done.stderr
        assert shell.environment["DATABASE_URL"] not in done.stdout + done.stderr
    (shell.folder / "m").mkdir()
    models = ("--model", "./m", "--reranker", "cross-encoder:./m", "--chat-model", "ollama:x")
    done = shell("mcp", *models, "--tokenizer", "t.json", "--no-header", "--json", "--print-config", "cursor")
    path = str(shell.folder / "m")
    expected = {"--model": path, "--reranker": f"cross-encoder:{path}", "--chat-model": "ollama:x"}
    expected["--tokenizer"] = str(shell.folder / "t.json")
    options = parsed("cursor", done.stdout)[1][3:]
    assert dict(zip(options[::2], options[1::2], strict=True)) == expected
    _, arguments = parsed("cursor", shell("mcp", "--model", "Qwen/m", "--print-config", "cursor").stdout)
    assert arguments[-1] == "Qwen/m"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto", STATELESS])
async def test_what_is_printed_serves_the_protocols_own_client(shell, mode):
    shell("index", "docs", "-c", "handbook", "--model", "none")
    url = shell.environment["DATABASE_URL"]
    done = shell("mcp", "-c", "handbook", "--database", url, "--print-config", "cursor")
    command, arguments = parsed("cursor", done.stdout)
    server = StdioServerParameters(command=command, args=arguments, env=shell.environment, cwd=shell.folder.parent)
    async with Assistant(stdio_client(server), mode=mode) as assistant:
        found = await assistant.call_tool("search", {"query": "every ninety days"})
        assert found.structured_content["hits"][0]["path"] == f"{shell.folder}/docs/keys.md:5"


def test_mistakes_are_refused_and_searches_begin_as_the_settings_say(shell, monkeypatch):
    assert "claude-desktop" in shell("mcp", "--print-config", "nobody", code=2).stderr
    assert "address" in shell("mcp", "--http", "--print-config", "zed", code=2).stderr
    assert "--allow-writes" in shell("mcp", "--allow", "docs", code=2).stderr
    made = []

    async def note(settings, role, *_):
        made.append((mcp._client(settings, role), settings))

    monkeypatch.setattr(mcp, "_over_pipes", note)
    shell.environment |= {"SEMLEX_TOP_K": "7", "SEMLEX_FUSION": "rrf", "SEMLEX_MIN_SIMILARITY": "0.5"}
    shell.environment |= {"SEMLEX_CALIBRATION": "/curve.json"}
    shell("mcp", "-c", "handbook")
    ((client, settings),) = made
    begin = client._search_defaults
    assert (begin["top_k"], begin["fusion"], begin["min_similarity"]) == (7, "rrf", 0.5)
    assert [settings.calibration_of(name) for name in ("handbook", "other")] == [Path("/curve.json"), None]


async def test_opening_that_is_cancelled_may_fail(monkeypatch):
    """The driver turns a cancellation into an error of its own now and then."""
    ended = []

    class Opening:
        async def initialize(self):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionFailedError("cancelled on the way") from None

        async def close(self):
            ended.append("closed")

    monkeypatch.setattr(mcp, "_client", lambda *_: Opening())
    monkeypatch.setattr(mcp_server, "serve_standard_streams", lambda _: asyncio.sleep(0))
    await mcp._over_pipes(settings_for(), None, Access(), [])
    assert ended == ["closed"]
