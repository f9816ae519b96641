"""A collection that a server serves."""

import asyncio

import pytest

from semlex import Client, Document
from semlex.server.tokens import TokenFile
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, in_process

TEXTS = [
    "A key is rotated every 90 days.",
    "Keys lie in the vault, and nobody reads them twice.",
    "A banana is a yellow fruit.",
    "The vault is opened with two keys.",
    "Fruit is delivered on Mondays.",
]


async def fill(client):
    documents = [
        Document(text, id=f"d{number}", metadata={"year": 2020 + number, "lang": "en"})
        for number, text in enumerate(TEXTS)
    ]
    await client.collection(COLLECTION).add_documents(documents)


def client_of(url):
    return Client(url, embedding_model=HashEmbedder(), use_reranking=False)


@pytest.fixture(scope="module")
def filled_url(new_database):
    """A database with a collection of five documents, which all tests of a module leave as it is."""

    async def fill_it(url):
        async with client_of(url) as client:
            await fill(client)
        return url

    return asyncio.run(fill_it(new_database()))


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
        await fill(client)
        yield client
