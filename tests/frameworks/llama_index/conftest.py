"""Vector stores on a database of their own."""

import pytest

from semlex import connect_sync
from semlex.integrations.llama_index import SemlexVectorStore


@pytest.fixture
def client(database_url):
    with connect_sync(database_url, "none") as client:
        yield client


@pytest.fixture
def store(client):
    return SemlexVectorStore(client.collection("nodes"))
