"""``semlex serve --processes``: one address, several processes, which are replaced while requests go on."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
from contextlib import contextmanager, suppress

import httpx2
import psutil
import pytest

from semlex.server import processes
from semlex.server.options import ServeOptions
from tests.support.waiting import LIMIT, eventually, turns, until

pytestmark = pytest.mark.slow
CLIENTS = 4


@contextmanager
def serving(shell, number, *options, said):
    """The first process, and the address; `said` gets its further lines."""
    with shell.start("serve", "--port", "0", "--processes", str(number), *options) as process:
        line = process.stderr.readline()
        address = re.search(r"http://[^\s,]+", line)
        assert address is not None, (line, process.stderr.read())
        assert f"with {number} processes" in line
        # Every request writes a line: a full pipe would hold the processes.
        reading = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        reading.start()
        yield process, address[0]
        process.wait()
        reading.join(LIMIT)


def those_of(process):
    """The numbers of the processes that serve."""
    found = set()
    for one in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if one.status() != psutil.STATUS_ZOMBIE:
                found.add(one.pid)
    return found


class Load:
    """Clients that keep their connections and ask one request after another."""

    def __init__(self, address):
        self.address = address
        self.answered = 0
        self.failures = []
        self._done = False

    async def run(self):
        async with httpx2.AsyncClient(base_url=self.address, timeout=LIMIT) as http:
            while not self._done:
                try:
                    answer = await http.post("/v1/search", json={"query": "key"})
                except httpx2.HTTPError as error:
                    self.failures.append(error)
                    continue
                if answer.status_code == 200 and answer.json()["hits"]:
                    self.answered += 1
                else:
                    self.failures.append((answer.status_code, answer.text))

    async def more(self, count):
        enough = self.answered + count
        await eventually(lambda: self.answered >= enough or self.failures)

    def end(self):
        self._done = True


async def test_processes_are_replaced_under_load_without_a_failed_request(program):
    await asyncio.to_thread(program, "index", "docs", "-c", "handbook")
    said = []
    with serving(program, 2, "-c", "handbook", "--model", "none", said=said) as (process, address):
        first = those_of(process)
        assert len(first) == 2
        load = Load(address)
        asking = [asyncio.create_task(load.run()) for _ in range(CLIENTS)]
        await load.more(20)
        process.send_signal(signal.SIGHUP)
        await eventually(lambda: not first & those_of(process) and len(those_of(process)) == 2)
        await load.more(20)
        await eventually(lambda: any("all processes were replaced" in line for line in said))
        load.end()
        await asyncio.gather(*asking)
        assert load.failures == []
        assert load.answered >= 40
        # One that is killed is replaced as well; the other one answers meanwhile.
        before = those_of(process)
        psutil.Process(min(before)).kill()
        await eventually(lambda: len(those_of(process)) == 2 and those_of(process) != before)
        assert httpx2.get(f"{address}/readyz", timeout=LIMIT).json()["status"] == "ready"
        last = those_of(process)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == -signal.SIGTERM
        assert any("stopping" in line for line in said)
        assert not any("Traceback" in line for line in said)
        assert not [number for number in last if psutil.pid_exists(number)]
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{address}/healthz")


def test_processes_end_with_the_first_one(program):
    with serving(program, 2, "--model", "none", said=[]) as (process, _):
        others = [psutil.Process(number) for number in those_of(process)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not [one for one in others if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])


class Substitute:
    """Stands in for a process: it runs until somebody retires it."""

    def __init__(self):
        self.stdin = self
        self.has_ended = asyncio.Event()

    async def wait(self):
        await self.has_ended.wait()
        return 0

    def write(self, _):
        self.has_ended.set()

    async def drain(self):
        pass


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
    assert together._running == [new]
    assert not new.has_ended.is_set()
    keeping.cancel()


async def test_a_signal_ends_the_start(monkeypatch):
    begun = asyncio.Event()
    first = Substitute()
    monkeypatch.setattr(first, "send_signal", lambda _: first.has_ended.set(), raising=False)

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
    assert await running == -signal.SIGTERM
    assert first.has_ended.is_set()


async def test_a_python_that_is_gone_leaves_the_processes_in_place():
    said = []
    together, first = unstarted(said), Substitute()
    together._running, together._command = [first], ["/nowhere/python"]
    with socket.socket() as together._listening:
        await together._replace_all()
    assert together._running == [first]
    assert "No such file" in said[0]
    assert said[1:] == ["the new process did not start; the old ones keep running"]


def test_what_cannot_be_served_is_told_once(program):
    program.environment["DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/nowhere"
    done = program("serve", "--port", "0", "--processes", "2", "--model", "none", code=3)
    assert done.stderr.count("nowhere") == 1
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_refused(program):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = program("serve", "--port", port, "--processes", "2", code=2)
    assert "--port" in done.stderr
