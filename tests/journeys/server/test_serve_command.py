"""``semlex serve`` as a user starts, asks and stops it: one process, or several that are replaced meanwhile."""

import asyncio
import json
import re
import shlex
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from unittest.mock import AsyncMock

import httpx2
import psutil
import pytest

from semlex.server import processes
from semlex.server.options import ServeOptions
from tests.support.waiting import LIMIT, eventually, held, pause, turns, until, until_waiting, waiting

pytestmark = pytest.mark.slow
FILE = ("--token-file", "tokens.json")


@contextmanager
def serving(shell, *options):
    """The process, its address, and the line that shows how to ask it."""
    with shell.start("serve", "--port", "0", *options) as process:
        lines = [process.stderr.readline() for _ in range(2)]
        address = re.search(r'http://[^\s,"]+', lines[0])
        assert address is not None, (lines, process.stderr.read())
        yield process, address[0], lines[1].removeprefix("ask: ").strip()


@pytest.mark.parametrize("options", [(), ("--host", "0.0.0.0", *FILE)])  # noqa: S104
def test_it_is_started_asked_as_it_shows_and_stopped(program, options):
    program("index", "docs")
    secret = program("serve", "token", "add", "ann", *FILE).stdout.strip()
    with serving(program, *options) as (process, address, line):
        assert httpx2.get(f"{address}/readyz").json()["status"] == "ready"
        assert httpx2.get(f"{address}/v1/collections").status_code == (401 if options else 200)
        asked = shlex.split(line.replace("TOKEN", secret))
        assert asked[0] == "curl"
        headers = dict(header.split(": ") for option, header in pairwise(asked) if option == "-H")
        assert httpx2.post(asked[2], content=asked[-1], headers=headers).status_code == 200
        written = {"documents": [{"content": "x"}]}
        assert httpx2.post(f"{address}/v1/documents", json=written, headers=headers).status_code == 403
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert (process.returncode, "stopping" in said, "Traceback" in said) == (130, True, False)


def test_a_second_signal_ends_requests_in_progress_and_every_line_of_a_json_log_is_json(program):
    program("index", "docs", "-c", "handbook")
    with (
        serving(program, "-c", "handbook", "--log-format", "json") as (process, address, _),
        held(program.environment["DATABASE_URL"], "semlex.handbook_chunk") as holder,
        ThreadPoolExecutor() as threads,
    ):
        asking = threads.submit(httpx2.post, f"{address}/v1/search", json={"query": "key"}, timeout=LIMIT)
        until_waiting(holder)
        process.send_signal(signal.SIGTERM)
        said = [next(process.stderr)]
        while "stopping" not in said[-1]:
            said.append(next(process.stderr))
        assert not asking.done()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate()
        assert isinstance(asking.exception(LIMIT), httpx2.TransportError)
        until(lambda: waiting(holder) == 0)
        assert process.returncode == -signal.SIGTERM
        said += rest.splitlines()
        assert not re.search("error|traceback|exception", "".join(said), re.IGNORECASE)
        assert all({"message", "level", "time"} <= json.loads(line).keys() for line in said)


def test_what_cannot_be_listened_on_is_told(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options, said in (
            (("--port", port), ("choose another port with --port", "another address with --host")),
            (("--port", port, "--processes", "2"), ("--port",)),
            # Nobody is asked about a name that cannot be one.
            (("--host", "no..such.name", "--token-file", "t.json"), ("not an address of this machine",)),
            (("--host", "0.0.0.0"), ("semlex serve token add",)),  # noqa: S104
            (("--rights", "root"), ("rights must be one of",)),
            (("--origin", "pages"), ("is not an origin",)),
        ):
            found = program("serve", *options, code=2)
            assert all(text in found.stderr for text in said), found.stderr


def test_tokens_are_made_listed_and_removed(shell):
    def token(*arguments, code=0):
        done = shell("serve", "token", *arguments, *FILE, code=code)
        return done.stderr if code else done.stdout

    assert token("add", "ann", "--rights", "read").startswith("semlex_")
    assert "ann  read  all collections" in token("list")
    token("remove", "ann")
    assert json.loads((shell.folder / "tokens.json").read_text()) == {"tokens": {}}
    assert "unknown token" in token("remove", "ann", code=2)
    token("add", "guest", "--expires", "2999-12-31T00:00Z")
    assert "guest  read  all collections  expires 2999-12-31 00:00+0000" in token("list")
    assert json.loads(token("list", "--json"))["expires"] == "2999-12-31T00:00:00+00:00"
    assert "--expires must be a time with its zone" in token("add", "x", "--expires", "soon", code=2)


@contextmanager
def serving_together(shell, *options, said):
    """The first of two processes, and the address; `said` gets its further lines."""
    with shell.start("serve", "--port", "0", "--processes", "2", *options) as process:
        line = process.stderr.readline()
        address = re.search(r"http://[^\s,]+", line)
        assert address is not None, (line, process.stderr.read())
        assert "with 2 processes" in line
        # Every request writes a line: a full pipe would hold the processes.
        reading = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        reading.start()
        yield process, address[0]
        process.wait()
        reading.join(LIMIT)


def is_alive(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def those_of(process):
    """The processes that serve."""
    return {one for one in psutil.Process(process.pid).children() if is_alive(one)}


class Load:
    """Clients that keep their connections and ask one request after another, with short pauses."""

    def __init__(self, address):
        self.address = address
        self.answered, self.failures, self.is_done = 0, [], False

    async def run(self):
        async with httpx2.AsyncClient(base_url=self.address, timeout=LIMIT) as http:
            while not self.is_done:
                try:
                    answer = (await http.post("/v1/search", json={"query": "key"})).raise_for_status()
                    assert answer.json()["hits"]
                    self.answered += 1
                except (httpx2.HTTPError, AssertionError) as error:
                    self.failures.append(error)
                await pause()  # new processes need the processor to begin

    async def more(self, count):
        enough = self.answered + count
        await eventually(lambda: self.answered >= enough or self.failures)


async def test_processes_are_replaced_under_load_without_a_failed_request(program):
    await asyncio.to_thread(program, "index", "docs", "-c", "handbook")
    said = []
    with serving_together(program, "-c", "handbook", "--model", "none", said=said) as (process, address):
        first = those_of(process)
        assert len(first) == 2
        load = Load(address)
        asking = [asyncio.create_task(load.run()) for _ in range(4)]
        await load.more(20)
        process.send_signal(signal.SIGHUP)
        await eventually(lambda: any("all processes were replaced" in line for line in said))
        assert (first & those_of(process), len(those_of(process))) == (set(), 2)
        await load.more(20)
        load.is_done = True
        await asyncio.gather(*asking)
        assert load.failures == []
        assert load.answered >= 40
        # One that is killed is replaced as well; the other one answers meanwhile.
        before = those_of(process)
        next(iter(before)).kill()
        await eventually(lambda: any("another one takes its place" in line for line in said))
        await eventually(lambda: len(those_of(process)) == 2)
        assert httpx2.get(f"{address}/readyz", timeout=LIMIT).json()["status"] == "ready"
        last = those_of(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == -signal.SIGTERM
        assert any("stopping" in line for line in said)
        assert not any("Traceback" in line for line in said)
        assert not any(one.is_running() for one in last)
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{address}/healthz")


def test_processes_end_with_the_first_one(program):
    with serving_together(program, "--model", "none", said=[]) as (process, _):
        others = those_of(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not any(is_alive(one) for one in others))


class Substitute:
    """Stands in for a process: it runs until somebody retires it."""

    drain = AsyncMock()

    def __init__(self):
        self.stdin, self.has_ended = self, asyncio.Event()

    async def wait(self):
        await self.has_ended.wait()
        return 0

    def write(self, _):
        self.has_ended.set()

    send_signal = write


def unstarted(said):
    with socket.socket() as listening:
        return processes._Processes(ServeOptions(processes=2), said.append, (), listening)


async def test_a_process_that_dies_while_it_is_replaced_gets_one_successor(monkeypatch):
    monkeypatch.setattr(processes, "PAUSE_SECONDS", 0)
    starts = []

    async def started(_):
        starts.append(asyncio.get_running_loop().create_future())
        return await starts[-1]

    monkeypatch.setattr(processes._Processes, "_started", started)
    together = unstarted([])
    first, new, late = Substitute(), Substitute(), Substitute()
    together._running = [first]
    keeping = asyncio.create_task(together._keep(0))
    rolling = asyncio.create_task(together._replace_all())
    await eventually(lambda: len(starts) == 1)
    first.has_ended.set()
    await eventually(lambda: len(starts) == 2)
    starts[0].set_result(new)
    await rolling
    starts[1].set_result(late)
    await eventually(late.has_ended.is_set)
    assert (together._running, new.has_ended.is_set()) == ([new], False)
    keeping.cancel()


async def test_a_signal_ends_the_start(monkeypatch):
    begun, first = asyncio.Event(), Substitute()

    async def started(_):
        if begun.is_set():
            await asyncio.Event().wait()
        begun.set()
        return first

    monkeypatch.setattr(processes._Processes, "_started", started)
    together = unstarted([])
    running = asyncio.create_task(together.run())
    await begun.wait()
    await turns()
    together._stop(signal.SIGTERM)
    assert (await running, first.has_ended.is_set()) == (-signal.SIGTERM, True)


async def test_a_python_that_is_gone_leaves_the_processes_in_place():
    said = []
    together, first = unstarted(said), Substitute()
    together._running, together._command = [first], ["/nowhere/python"]
    with socket.socket() as together._listening:
        await together._replace_all()
    assert together._running == [first]
    assert ("No such file" in said[0], said[1:]) == (True, ["the new process did not start; the old ones keep running"])


def test_what_cannot_be_served_is_told_once(program):
    program.environment["DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/nowhere"
    assert program("serve", "--port", "0", "--processes", "2", "--model", "none", code=3).stderr.count("nowhere") == 1
