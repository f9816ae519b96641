"""What tests of assistants share: a collection that was read from files."""

import pytest

from semlex import Client, SyncClient
from tests.support.shell import Shell, two_documents


@pytest.fixture
def docs(tmp_path):
    return two_documents(tmp_path)


@pytest.fixture
async def client(database_url, docs):
    """A client with the collection ``handbook`` of that folder, and an empty ``other``."""
    async with Client(database_url, "none") as opened:
        await opened.collection("handbook").index(docs)
        await opened.collection("other").open()
        yield opened


@pytest.fixture(scope="module")
def handbook(new_database, tmp_path_factory):
    """The command line beside two such collections, which all tests of a module leave as they are."""
    folder = tmp_path_factory.mktemp("handbook")
    shell = Shell(new_database(), folder)
    with SyncClient(shell.environment["DATABASE_URL"], "none") as opened:
        opened.collection("handbook").index(two_documents(folder))
        opened.collection("other").open()
    return shell


@pytest.fixture
async def asking(handbook):
    """A client of theirs."""
    async with Client(handbook.environment["DATABASE_URL"], "none") as opened:
        yield opened
