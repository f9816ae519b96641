"""A peer at work in a process of its own, with its server if it has one: what it answers, and what that costs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

ROOT = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
# Nothing is reported to a library's makers, and LanceDB does not warn at each search of what a later version will do.
ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "ANONYMIZED_TELEMETRY": "False", "LANCEDB_LOG": "error"}
# What the documentation of pgvector advises: an index that is built in memory, and filtered searches that go on.
SETTINGS = {"maintenance_work_mem": "1GB", "hnsw.iterative_scan": "relaxed_order"}


@dataclass(frozen=True, slots=True)
class Server:
    """A Postgres of its own.

    Attributes:
        url: Its address.
        folder: Its data.
    """

    url: str
    folder: Path

    def processes(self) -> list[int]:
        """The postmaster and its children."""
        postmaster = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def processor(self) -> float:
        """Processor seconds so far, those of children that have ended included."""
        postmaster = self.processes()[0]
        fields = Path(f"/proc/{postmaster}/stat").read_text().rpartition(")")[2].split()
        ended = sum(map(int, fields[13:15])) / TICK
        return ended + sum(map(_processor, self.processes()))

    def memory(self) -> float:
        """MiB of memory; of what processes share, to each its part."""
        return sum(map(_memory, self.processes()))


def _processor(process: int) -> float:
    """Seconds of a process of one thread, more exactly than in ticks."""
    with contextlib.suppress(OSError):  # it has ended: the postmaster counts it then
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    return 0.0


def _memory(process: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def disk(folder: Path) -> float:
    """MiB that a folder takes on the disk."""
    blocks = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a server removes files at any time
            blocks += path.lstat().st_blocks
    return blocks * 512 / MIB


@contextlib.contextmanager
def server(folder: Path, *, tuned: bool) -> Iterator[Server]:
    """A server with its data in a folder, until the end of the block.

    Args:
        folder: Of its data.
        tuned: Whether it gets `SETTINGS`, for peers that leave them to their users.
    """
    with EmbeddedServer(folder / "server") as running:
        if tuned:
            with psycopg.connect(running.url, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
                for name, value in SETTINGS.items():
                    setting = psycopg.sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                        psycopg.sql.Identifier(connection.info.dbname), psycopg.sql.SQL(name), value
                    )
                    connection.execute(setting)
        yield Server(running.url, folder / "server")


class PeerProcess:
    """A peer's process.

    Args:
        python: Interpreter of its environment.
        kind: Module of the peer.
        place: Address of its server, or folder.
        name: Of its collection.
        server: Its server.
    """

    def __init__(self, python: Path, kind: str, place: str, name: str, server: Server | None) -> None:
        self.kind, self.server = kind, server
        self._process = subprocess.Popen(
            [str(python), "-m", "benches.baselines.peers.worker", kind, place, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | ENVIRONMENT,
        )

    def ask(self, do: str, **asked: Any) -> Any:
        """What the peer answers."""
        return self.measured(do, **asked)[0]

    def measured(self, do: str, **asked: Any) -> tuple[Any, float]:
        """What the peer answers, and the processor seconds of its server meanwhile."""
        before = self.server.processor() if self.server else 0.0
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **asked}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.kind} ended with code {self._process.wait()} while it should {do}")
        return json.loads(line), self.server.processor() - before if self.server else 0.0

    def memory(self) -> tuple[float, float]:
        """MiB of the process, and of its server."""
        return _memory(self._process.pid), self.server.memory() if self.server else 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
