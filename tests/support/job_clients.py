"""What tests of jobs share: clients, a look into the table, a model that stands still."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import psycopg

from semlex import Client
from semlex.clock import SYSTEM, Clock
from semlex.embedding import probe
from semlex.testing import HashEmbedder
from tests.support.waiting import LIMIT


def client(url: str, embedder: Any = None, clock: Clock = SYSTEM) -> Client:
    made = Client(url, embedder or HashEmbedder(8), use_reranking=False)
    made._resources.clock = clock
    return made


def sql(url: str, statement: str, *given: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), given)
        return cursor.fetchall() if cursor.description else []


class Blocking(HashEmbedder):
    """Waits in the model, with a text of the collection, until it may go on, and says when it does."""

    def __init__(self, dimensions: int = 8) -> None:
        super().__init__(dimensions)
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def embed_documents(self, texts: Any) -> Any:
        if list(texts) != [probe.TEXT]:
            self.reached.set()
            assert self.may_go_on.wait(LIMIT)
        return super().embed_documents(texts)


async def reached(model: Blocking) -> None:
    assert await asyncio.to_thread(model.reached.wait, LIMIT)
