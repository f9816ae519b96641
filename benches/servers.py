"""Embedded servers for benchmarks; each stops at the end of its block."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import LiteralString


@contextlib.contextmanager
def temporary_server() -> Iterator[str]:
    """The address of a server that is thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="semlex-bench-", dir="/tmp")).resolve()
    folder.chmod(0o711)  # as root the server runs under another account
    try:
        with EmbeddedServer(folder / "server") as server:
            yield server.url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def vacuum(url: str, command: LiteralString = "VACUUM ANALYZE") -> None:
    """What autovacuum and the checkpointer would do a minute later, in the middle of a measurement."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(command)
        connection.execute("CHECKPOINT")
