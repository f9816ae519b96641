"""Assistants for tests: frames as they are written by hand, over pipes and over HTTP, and a server that answers."""

import asyncio
import json
from contextlib import asynccontextmanager

from semlex.server.mcp.http import PATH, listening_socket, web_server
from tests.support.shell import Started
from tests.support.waiting import eventually

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
CLIENT = {"name": "by-hand", "version": "1"}
# What each request of the stateless revision brings along.
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
NAMED = {"tools/call": "name", "resources/read": "uri"}


def initialize(revision):
    return {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT}


def request(number, method, params=None, *, revision):
    """A frame; of the stateless revision with its envelope."""
    given = dict(params or {})
    if revision == STATELESS:
        given["_meta"] = {**given.get("_meta", {}), **META}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": given}


def first_frame(revision):
    """The handshake, or what the stateless revision has in its place."""
    if revision == STATELESS:
        return request(0, "server/discover", revision=revision)
    return request(0, "initialize", initialize(revision), revision=revision)


class Piped:
    """``semlex mcp`` as a process, spoken to in frames."""

    def __init__(self, environment, folder, *arguments):
        self.process = Started(("mcp", *arguments), environment, folder, text=False)
        self.revision = None

    def write(self, frame):
        self.process.stdin.write((frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n")
        self.process.stdin.flush()

    def read(self):
        """The next frame; every byte of stdout belongs to one."""
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode()
        frame = json.loads(line)
        assert frame["jsonrpc"] == "2.0"
        return frame

    def answer(self, number):
        """The answer to a request; notifications before it are passed by."""
        while (frame := self.read()).get("id") != number:
            assert "id" not in frame, frame
        return frame

    def begin(self, revision):
        self.revision = revision
        self.write(first_frame(revision))
        answer = self.answer(0)
        if revision != STATELESS:
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def send(self, number, method, params=None):
        self.write(request(number, method, params, revision=self.revision))

    def ask(self, number, method, params=None):
        self.send(number, method, params)
        return self.answer(number)

    def end(self, *, closing=True):
        """Waits for the end: exit code, what was still on stdout, stderr."""
        if closing:
            self.process.stdin.close()
        code = self.process.wait()
        return code, self.process.stdout.read(), self.process.stderr.read().decode()

    def kill(self):
        self.process.close()


@asynccontextmanager
async def served(app):
    listening = listening_socket("127.0.0.1", 0, has_tokens=False)
    server = web_server(app)
    serving = asyncio.create_task(server.serve([listening]))
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{PATH}"
    finally:
        server.should_exit = True
        await serving
        listening.close()


class Posted:
    def __init__(self, http, address, revision, token=None):
        self._http, self._address, self.revision = http, address, revision
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self.headers |= {} if token is None else {"Authorization": f"Bearer {token}"}

    async def begin(self):
        answer = await self.post(first_frame(self.revision))
        if self.revision == STATELESS:
            return self.frame(answer, 0)
        self.headers |= {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": self.revision}
        done = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert done.status_code == 202
        return self.frame(answer, 0)

    async def send(self, number, method, params=None, **headers):
        return await self.post(request(number, method, params, revision=self.revision), **headers)

    async def ask(self, number, method, params=None):
        return self.frame(await self.send(number, method, params), number)

    async def post(self, frame, **headers):
        routing = {}
        if self.revision == STATELESS and isinstance(frame, dict):
            routing = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": frame["method"]}
            if frame["method"] in NAMED:
                routing["Mcp-Name"] = frame["params"][NAMED[frame["method"]]]
        content = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        return await self._http.post(self._address, content=content, headers=self.headers | routing | headers)

    @staticmethod
    def frame(response, number):
        if response.headers["content-type"].startswith("application/json"):
            return response.json()
        lines = (line.removeprefix("data:").strip() for line in response.text.splitlines() if line.startswith("data:"))
        return next(frame for frame in map(json.loads, filter(None, lines)) if frame.get("id") == number)
