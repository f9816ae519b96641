"""What tests of the embedded server share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.embedded_servers import server_processes


@pytest.fixture
def folder(open_folder: Path) -> Iterator[Path]:
    """Where a server may be made; whatever runs there ends with the test."""
    folder = open_folder / "server"
    yield folder
    for process in server_processes(folder):
        process.kill()


@pytest.fixture
def made(folder: Path, make_server_folder: Callable[[Path], Path]) -> None:
    """The folder has its database already."""
    make_server_folder(folder)
