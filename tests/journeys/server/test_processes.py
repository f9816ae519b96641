"""``semlex serve --processes``: one address, several processes, which are replaced while requests go on."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import psutil
import pytest

from tests.support.shell import Shell, Started
from tests.support.waiting import LIMIT, eventually, until

pytestmark = pytest.mark.slow
CLIENTS = 4


@contextmanager
def serving(shell: Shell, processes: int, *options: str, said: list[str]) -> Iterator[tuple[Started, str]]:
    """The first process, and the address; `said` gets its further lines."""
    with shell.start("serve", "--port", "0", "--processes", str(processes), *options) as process:
        line = process.stderr.readline()
        address = re.search(r"http://[^\s,]+", line)
        assert address is not None, (line, process.stderr.read())
        assert f"with {processes} processes" in line
        # Every request writes a line: a full pipe would hold the processes.
        reading = threading.Thread(target=lambda: said.extend(process.stderr), daemon=True)
        reading.start()
        yield process, address[0]
        process.wait()
        reading.join(LIMIT)


def those_of(process: Started) -> set[int]:
    """The numbers of the processes that serve."""
    return {one.pid for one in psutil.Process(process.pid).children() if one.status() != psutil.STATUS_ZOMBIE}


class Load:
    """Clients that keep their connections and ask one request after another."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = 0
        self.failures: list[object] = []
        self._done = False

    async def run(self) -> None:
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

    async def more(self, count: int) -> None:
        enough = self.answered + count
        await eventually(lambda: self.answered >= enough or self.failures)

    def end(self) -> None:
        self._done = True


async def test_processes_are_replaced_under_load_without_a_failed_request(program: Shell) -> None:
    await asyncio.to_thread(program, "index", "docs", "-c", "handbook")
    said: list[str] = []
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


def test_processes_end_with_the_first_one(program: Shell) -> None:
    with serving(program, 2, "--model", "none", said=[]) as (process, _):
        others = [psutil.Process(number) for number in those_of(process)]
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not [one for one in others if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])


def test_what_cannot_be_served_is_told_once(program: Shell) -> None:
    program.environment["DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/nowhere"
    done = program("serve", "--port", "0", "--processes", "2", "--model", "none", code=3)
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_refused(program: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = program("serve", "--port", port, "--processes", "2", code=2)
    assert "--port" in done.stderr
