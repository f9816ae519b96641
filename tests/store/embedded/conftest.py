"""What tests of the embedded server share."""

from __future__ import annotations

import pytest

from tests.support.embedded_servers import server_processes


@pytest.fixture
def folder(open_folder):
    """Where a server may be made; whatever runs there ends with the test."""
    folder = open_folder / "server"
    yield folder
    for process in server_processes(folder):
        process.kill()


@pytest.fixture
def made(folder, make_server_folder):
    """The folder has its database already."""
    make_server_folder(folder)
