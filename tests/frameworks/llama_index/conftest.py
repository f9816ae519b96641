"""Vector stores on a database of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from semlex import connect_sync
from semlex.integrations.llama_index import SemlexVectorStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex import SyncClient


@pytest.fixture
def client(database_url: str) -> Iterator[SyncClient]:
    with connect_sync(database_url, "none") as client:
        yield client


@pytest.fixture
def store(client: SyncClient) -> SemlexVectorStore:
    return SemlexVectorStore(client.collection("nodes"))
