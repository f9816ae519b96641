"""A collection that a server serves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from semlex import Client, Document
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION

TEXTS = [
    "A key is rotated every 90 days.",
    "Keys lie in the vault, and nobody reads them twice.",
    "A banana is a yellow fruit.",
    "The vault is opened with two keys.",
    "Fruit is delivered on Mondays.",
]


@pytest.fixture
async def filled(database_url: str) -> AsyncIterator[Client]:
    """A client with a collection of five documents."""
    async with Client(database_url, embedding_model=HashEmbedder(), use_reranking=False) as client:
        documents = [
            Document(text, id=f"d{number}", metadata={"year": 2020 + number, "lang": "en"})
            for number, text in enumerate(TEXTS)
        ]
        await client.collection(COLLECTION).add_documents(documents)
        yield client
