"""Folders, models and clients for jobs."""

import pytest

from tests.support.folders import folder_with
from tests.support.job_clients import Blocking, client
from tests.support.manual_clock import ManualClock


@pytest.fixture
def docs(tmp_path):
    return folder_with(tmp_path / "docs", {f"{n}.md": f"# Page {n}\n\nWords of page {n}.\n" for n in range(3)})


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def blocking():
    model = Blocking()
    yield model
    model.may_go_on.set()


@pytest.fixture
async def opened(database_url):
    async with client(database_url) as opened:
        yield opened


@pytest.fixture
def book(opened):
    return opened.collection("book")


@pytest.fixture
async def slow(database_url, blocking, clock):
    """A client whose model waits until it may go on."""
    async with client(database_url, blocking, clock) as slow:
        yield slow
