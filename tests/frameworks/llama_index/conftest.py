"""Vector stores on a database of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from semlex import SyncClient, connect_sync
from semlex.integrations.llama_index import SemlexVectorStore


@pytest.fixture
def client(database_url: str) -> Iterator[SyncClient]:
    with connect_sync(database_url, "none") as client:
        yield client


@pytest.fixture
def store(client: SyncClient) -> SemlexVectorStore:
    return SemlexVectorStore(client.collection("nodes"))
