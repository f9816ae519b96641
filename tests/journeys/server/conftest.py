"""Collections that a server serves."""

import pytest

from semlex import Document, SyncClient
from semlex.server.tokens import TokenFile
from tests.support.http_server import COLLECTION, client_of, in_process, sync_client_of

TEXTS = [
    "A key is rotated every 90 days.",
    "Keys lie in the vault, and nobody reads them twice.",
    "A banana is a yellow fruit.",
    "The vault is opened with two keys.",
    "Fruit is delivered on Mondays.",
]
DOCUMENTS = [Document(text, {"year": 2020 + n, "lang": "en"}, id=f"d{n}") for n, text in enumerate(TEXTS)]
HIDDEN = "vault"


@pytest.fixture(scope="module")
def filled_url(new_database):
    """A database with a collection of five documents, which all tests of a module leave as it is."""
    url = new_database()
    with sync_client_of(url) as client:
        client.collection(COLLECTION).add_documents(DOCUMENTS)
    return url


@pytest.fixture
async def filled(filled_url):
    """A client of that database."""
    async with client_of(filled_url) as client:
        yield client


@pytest.fixture
async def served(filled):
    """A server of that client with default options."""
    async with in_process(filled) as served:
        yield served


@pytest.fixture
def tokens(tmp_path):
    """A token file that does not exist yet."""
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
async def changing(database_url):
    """A client with such a collection for the test alone."""
    async with client_of(database_url) as client:
        await client.collection(COLLECTION).add_documents(DOCUMENTS)
        yield client


def with_two(url):
    """The address of a database in which two collections of one document each were made, without vectors."""
    with SyncClient(url, "none") as client:
        for name in (COLLECTION, HIDDEN):
            client.collection(name).add_texts([f"The key of the {name} is rotated."], ids=[f"{name}-id"])
    return url


@pytest.fixture(scope="module")
def two_url(new_database):
    """Such a database, which all tests of a module leave as it is."""
    return with_two(new_database())
