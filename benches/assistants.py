"""Assistants.

What a search takes longer as an MCP tool over streamable HTTP than as a call of the library: the median over pairs.
Keyword search of 1,000 documents, ten results.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benches.bare_http import BareConnection
from benches.servers import temporary_server, vacuum

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benches.bare_http import Answer
    from benches.measuring import Bench

DOCUMENTS, QUESTIONS, TOP = 1_000, 50, 10
BAR_MILLISECONDS = 5.0
STATELESS = "2026-07-28"


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    draw = random.Random(18)
    words = [f"word{number}" for number in range(2_000)]
    texts = [" ".join(draw.choices(words, k=80)) for _ in range(DOCUMENTS)]
    questions = [" ".join(draw.choices(words, k=6)) for _ in range(QUESTIONS)]
    print(f"  {DOCUMENTS:,} documents, {QUESTIONS} questions, the best {TOP}, words alone; one session")
    with temporary_server() as url:
        asyncio.run(_measure(bench, url, texts, questions, 200 if quick else 1_000))


async def _measure(bench: Bench, url: str, texts: list[str], questions: list[str], runs: int) -> None:
    from semlex import Client

    async with Client(url, "none") as client:
        collection = client.collection("faces")
        await collection.add_texts(texts)
        await asyncio.to_thread(vacuum, url)
        command = [sys.executable, "-m", "semlex", "mcp", "--http", "--port", "0", "--database", url, "-c", "faces"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: ASYNC220 - once
            assert server.stderr is not None
            address = re.search(r"http://\S+/mcp", server.stderr.readline())
            assert address is not None
            try:
                for name in ("2025-11-25", STATELESS):
                    session = Session(await BareConnection.open(address[0]))
                    if name != STATELESS:
                        await session.begin(name)
                    added, alone = await _added(
                        lambda question: collection.search(question, TOP),
                        session.search,
                        [questions[number % QUESTIONS] for number in range(runs)],
                    )
                    bench.at_most(f"streamable HTTP, {name}, added", added, unit="ms", bar=BAR_MILLISECONDS)
                    print(f"    beside {alone:.2f} ms of the call itself", flush=True)
            finally:
                server.terminate()


class Session:
    """Calls of one tool, as frames: without the time that a library of clients takes.

    Args:
        connection: To the server.
    """

    def __init__(self, connection: BareConnection) -> None:
        self._connection, self._number = connection, 0
        self._headers = {"Accept": "application/json, text/event-stream"}
        self._headers |= {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "tools/call", "Mcp-Name": "search"}
        self._meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        }

    async def begin(self, revision: str) -> None:
        """The handshake of a revision that has one."""
        for name in ("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"):
            del self._headers[name]
        self._meta = {}
        given = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        answer = await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": given})
        self._headers |= {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": revision}
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def search(self, question: str) -> list[Any]:
        """The hits of a search."""
        self._number += 1
        params: dict[str, Any] = {"name": "search", "arguments": {"query": question, "top_k": TOP}}
        if self._meta:
            params["_meta"] = self._meta
        frame = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        answer = (await self._post(frame)).body
        lines = [answer] if answer.startswith(b"{") else answer.splitlines()
        body = next(line.removeprefix(b"data: ") for line in lines if line.startswith((b"{", b"data: {")))
        hits: list[Any] = json.loads(body)["result"]["structuredContent"]["hits"]
        return hits

    async def _post(self, frame: dict[str, Any]) -> Answer:
        answer = await self._connection.post("/mcp", json.dumps(frame).encode(), self._headers)
        assert answer.status in (200, 202), answer.body
        return answer


async def _added(
    library: Callable[[str], Awaitable[Any]], tool: Callable[[str], Awaitable[Any]], questions: list[str]
) -> tuple[float, float]:
    """What a call of the tool takes longer: the median over pairs; and the median of the library's calls; in ms."""
    assert len(await library(questions[0])) == TOP
    assert len(await tool(questions[0])) == TOP
    added, alone = [], []
    for number, question in enumerate(questions):
        times = {}
        # Whoever goes second finds warmer caches: the order alternates.
        for call in (library, tool) if number % 2 else (tool, library):
            started = time.perf_counter()
            await call(question)
            times[call] = time.perf_counter() - started
        added.append(times[tool] - times[library])
        alone.append(times[library])
    return 1000 * statistics.median(added), 1000 * statistics.median(alone)
