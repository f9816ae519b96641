"""HTTP server.

A collection over HTTP beside calls of the library, on one machine. "Added" is what a search takes longer, "processor"
the server's processor time for a request. Then several processes behind one address are asked, by a load on the same
cores; and twice as many clients as the server takes ask at once, for `SEMLEX_BENCH_SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx2
import psutil

from benches.bare_http import BareConnection
from benches.measuring import paired
from benches.servers import temporary_server, vacuum
from benches.under_load import under_load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from benches.measuring import Bench

DOCUMENTS, QUESTIONS, TOP = 1_000, 50, 10
COLLECTION = "bench"
# The second is what the server takes at a time by default.
AT_ONCE, CAPACITY = 32, 16
SECONDS, QUICK_SECONDS, READY_SECONDS = 10.0, 3.0, 60.0
TURN_SECONDS, TURNS, QUICK_TURNS = 2.0, 15, 3
ADDED_BAR, PROCESSOR_BAR, REFUSAL_BAR = 5.0, 1.4, 100.0
PROCESSES = (1, 2, 4)
# What a process holds more at the end of the load than after its first tenth.
MEMORY_BAR = 16.0
MIB = 1024 * 1024


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    del state
    draw = random.Random(18)
    words = [f"word{number}" for number in range(2_000)]
    texts = [" ".join(draw.choices(words, k=80)) for _ in range(DOCUMENTS)]
    questions = [" ".join(draw.choices(words, k=6)) for _ in range(QUESTIONS)]
    seconds = QUICK_SECONDS if quick else SECONDS
    print(f"  {DOCUMENTS:,} documents, {QUESTIONS} questions, the best {TOP}, vectors of the questions kept")
    with temporary_server() as url:
        fill(url, texts)
        with served(url, AT_ONCE) as (address, process):
            added(bench, url, address, questions, 200 if quick else 1_000)
            processor(bench, url, address, process, questions, QUICK_TURNS if quick else TURNS)
        several(bench, url, questions, seconds)
        with served(url, CAPACITY) as (address, process):
            overload(bench, address, process, questions, float(os.environ.get("SEMLEX_BENCH_SECONDS", seconds)))


def fill(url: str, texts: list[str]) -> None:
    """Makes the collection."""
    from semlex import SyncRetriever
    from semlex.testing import HashEmbedder

    with SyncRetriever(url, HashEmbedder(256), use_reranking=False, collection=COLLECTION) as collection:
        collection.add_texts(texts, metadata=[{"n": number} for number in range(len(texts))])
    vacuum(url)


@contextmanager
def served(url: str, concurrency: int) -> Iterator[tuple[str, psutil.Process]]:
    """A server in a process of its own: its address, and the process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(url, concurrency, theirs))
    process.start()
    assert process.pid is not None
    try:
        assert ours.poll(READY_SECONDS), "the server did not start"
        yield ours.recv(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


def _serve(url: str, concurrency: int, ready: Connection) -> None:
    from semlex import Client
    from semlex.server.addresses import bound_socket
    from semlex.server.app import Server, config_of, create_app
    from semlex.server.options import ServeOptions
    from semlex.settings.sources import Settings, WatchedSettings
    from semlex.testing import HashEmbedder

    async def run_it() -> None:
        async with Client(url, HashEmbedder(256), use_reranking=False) as client:
            options = ServeOptions(port=0, concurrency=concurrency)
            source = WatchedSettings()
            source.settings = Settings(collection=COLLECTION)
            app = create_app(options, source, client)
            await app.state.server.start()
            listening = bound_socket(options.host, 0)
            ready.send(f"http://127.0.0.1:{listening.getsockname()[1]}")
            await Server(config_of(app, options), app, options.stop_seconds, lambda _line: None).serve([listening])

    asyncio.run(run_it())


def added(bench: Bench, url: str, address: str, questions: list[str], runs: int) -> None:
    """What a search takes longer over HTTP than as a call: the median over pairs."""
    from semlex import SyncRetriever
    from semlex.testing import HashEmbedder

    options: dict[str, Any] = {"collection": COLLECTION, "use_reranking": False}
    with SyncRetriever(url, HashEmbedder(256), **options) as retriever, httpx2.Client(base_url=address) as http:

        def library(question: str) -> object:
            return retriever.search(question, TOP)

        def face(question: str) -> object:
            answer = http.post("/v1/search", json={"query": question, "top_k": TOP})
            assert answer.status_code == 200
            return answer.json()

        for question in questions:
            library(question), face(question)
        turns = [iter(questions[number % len(questions)] for number in range(runs + 1)) for _ in range(2)]
        ours, alone = paired(lambda: face(next(turns[0])), lambda: library(next(turns[1])), runs)
    pairs = sorted(1000 * (one - other) for one, other in zip(ours, alone, strict=True))
    bench.at_most("HTTP, added", pairs[len(pairs) // 2], unit="ms", bar=ADDED_BAR)
    print(f"    beside {1000 * sorted(alone)[len(alone) // 2]:.2f} ms of the call itself", flush=True)


def processor(bench: Bench, url: str, address: str, process: psutil.Process, questions: list[str], rounds: int) -> None:
    """The server's own processor time a request beside the library's a search, with 32 at once.

    In short turns: what a processor does in a second changes from minute to minute, most of all on a shared machine.
    """
    asyncio.run(_server_cost(address, process, questions))
    ours, alone = [], [asyncio.run(_library_cost(url, questions))]
    for _ in range(rounds):
        ours.append(asyncio.run(_server_cost(address, process, questions)))
        alone.append(asyncio.run(_library_cost(url, questions)))
    ratios = [cost / ((alone[number] + alone[number + 1]) / 2) for number, cost in enumerate(ours)]
    bench.at_most(f"HTTP, processor, {AT_ONCE} at once", median(ratios), unit="times the library's", bar=PROCESSOR_BAR)
    print(f"    {1000 * median(ours):.2f} ms a request, {1000 * median(alone):.2f} ms a call", flush=True)


async def _library_cost(url: str, questions: list[str]) -> float:
    from semlex import Client
    from semlex.testing import HashEmbedder

    async with Client(url, HashEmbedder(256), use_reranking=False) as client:
        collection = client.collection(COLLECTION)

        async def search(number: int) -> int:
            return len(await collection.search(questions[number], TOP))

        load = await under_load(search, len(questions), AT_ONCE, TURN_SECONDS)
    assert not load.failures
    return load.processor_seconds / len(load.times)


async def _server_cost(address: str, process: psutil.Process, questions: list[str]) -> float:
    before = _processor_seconds(process)
    done = await _searches(address, questions, TURN_SECONDS)
    return (_processor_seconds(process) - before) / done


def several(bench: Bench, url: str, questions: list[str], seconds: float) -> None:
    """Searches of words in a second by several processes behind one address, which share the machine with the load."""
    for number in PROCESSES:
        options = ("--port", "0", "--processes", str(number), "-c", COLLECTION, "--model", "none")
        command = [sys.executable, "-P", "-m", "semlex", "serve", *options, "--concurrency", str(AT_ONCE)]
        environment = os.environ | {"DATABASE_URL": url}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            found = re.search(r"http://[^\s,]+", process.stderr.readline())
            assert found is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            asyncio.run(_searches(found[0], questions, seconds / 5))
            rate = asyncio.run(_searches(found[0], questions, seconds)) / seconds
            process.terminate()
        bench.at_least(f"searches of words, processes: {number}", rate, unit="searches/s", bar=None)


async def _searches(address: str, questions: list[str], seconds: float) -> int:
    """Asked by a client that costs little itself, as programs that make load are: it takes the same processor."""
    bodies = [json.dumps({"query": question, "top_k": TOP}).encode() for question in questions]
    until, done = time.monotonic() + seconds, 0

    async def ask(number: int) -> None:
        nonlocal done
        connection = await BareConnection.open(address)
        while time.monotonic() < until:
            number = (number + 1) % len(bodies)
            answer = await connection.post("/v1/search", bodies[number], {})
            assert answer.status == 200
            assert b'"hits":[{' in answer.body
            done += 1
        connection.close()

    await asyncio.gather(*(ask(number) for number in range(AT_ONCE)))
    return done


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def overload(bench: Bench, address: str, process: psutil.Process, questions: list[str], seconds: float) -> None:
    """Twice as many clients as the server takes at a time: every answer is right or a refusal that comes at once."""
    figures = asyncio.run(_overload(address, process, questions, seconds))
    bench.at_most("twice the capacity, wrong answers", figures["wrong"], unit="answers", bar=0.0)
    bench.at_most("a refusal, 99th percentile", figures["refusal"], unit="ms", bar=REFUSAL_BAR)
    bench.at_most(f"memory, grown in {seconds:g} s", figures["memory"], unit="MiB", bar=MEMORY_BAR)
    print(f"    {figures['right']:,.0f} answers, {figures['refused']:,.0f} refusals", flush=True)


async def _overload(address: str, process: psutil.Process, questions: list[str], seconds: float) -> dict[str, float]:
    clients = 2 * CAPACITY
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)
    counts = {"right": 0, "refused": 0, "wrong": 0}
    refusals: list[float] = []
    async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=60) as http:

        async def found(question: str) -> tuple[int, list[str]]:
            answer = await http.post("/v1/search", json={"query": question, "top_k": TOP})
            status = answer.status_code
            return status, [hit["id"] for hit in json.loads(answer.content)["hits"]] if status == 200 else []

        right = {question: (await found(question))[1] for question in questions}
        started = time.monotonic()
        early: list[float] = []

        async def ask(number: int) -> None:
            while (now := time.monotonic()) < started + seconds:
                number = (number + 1) % len(questions)
                status, ids = await found(questions[number])
                if status == 503:
                    counts["refused"] += 1
                    refusals.append(time.monotonic() - now)
                    await asyncio.sleep(0.05)  # a client that comes again, sooner than it was told
                else:
                    counts["right" if ids == right[questions[number]] else "wrong"] += 1
                if not early and now > started + seconds / 10:
                    early.append(process.memory_info().rss)

        await asyncio.gather(*(ask(number) for number in range(clients)))
        grown = process.memory_info().rss - early[0]
    refusals.sort()
    at = refusals[int(len(refusals) * 0.99)] if refusals else 0.0
    return {**counts, "refusal": 1000 * at, "memory": grown / MIB}
