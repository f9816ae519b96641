"""What a retriever opens, closes, and must not share with a process that is forked from its own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from semlex.errors import ConfigurationError
from semlex.forks import drop, renew_after_fork
from semlex.models.local.forked import torch_process
from semlex.open_collection import OpenModels
from semlex.retriever.model_selection import runs_on_torch

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from semlex.ingest.indexer import Indexer
    from semlex.models.executor import ModelCaller
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.postgres.embedded.server import EmbeddedServer


class Lifetime(ABC):
    """The part of a retriever that holds what is open: models and their threads, the pool, the embedded server."""

    _pool: AsyncConnectionPool[Any] | None
    _connection: Connection | None

    def __init__(self) -> None:
        self._models = OpenModels()
        self._caller: ModelCaller | None = None
        self._server: EmbeddedServer | None = None
        self._database: Database | None = None
        self._indexer: Indexer | None = None
        self._was_open = self._ran_on_torch = False  # in the process that this one was forked from
        self._make_locks()
        renew_after_fork(self)

    @abstractmethod
    async def initialize(self) -> None:
        """Opens it; does nothing when it is open."""

    async def close(self) -> None:
        """Closes what this instance opened: the pool, the models it loaded by name, the embedded server's handle."""
        self._indexer, self._was_open = None, False
        self._make_locks()  # the next event loop may be another one
        models, database, server, caller = self._models, self._database, self._server, self._caller
        self._models = OpenModels(embedding_choice=models.embedding_choice)
        self._database = self._server = self._caller = None
        # Whatever one of them raises, the others are closed. The last one first.
        async with AsyncExitStack() as closing:
            if server is not None:
                closing.push_async_callback(asyncio.to_thread, server.close)
            if database is not None:
                closing.push_async_callback(database.close)
            # A model may first finish the batch that it computes.
            closing.push_async_callback(asyncio.to_thread, models.close)
            if caller is not None:
                closing.callback(caller.close)

    async def _ready(self) -> Indexer:
        """The open collection; a forked child opens it for itself."""
        if self._was_open:
            if self._pool is not None or self._connection is not None:
                raise ConfigurationError(
                    "this process was forked with a pool or connection that belongs to its parent: make both, and the "
                    "retriever, in the child"
                )
            if self._ran_on_torch:
                torch_process.check()
            await self.initialize()
        indexer = self._opened
        await indexer.renew()
        return indexer

    def _after_fork(self) -> None:
        drop(self._indexer, self._models, self._database, self._server, self._caller)
        self._was_open |= self._indexer is not None
        self._ran_on_torch |= runs_on_torch(self._models)
        self._indexer = self._database = self._server = self._caller = None
        self._models = OpenModels(embedding_choice=self._models.embedding_choice)
        self._make_locks()

    def _make_locks(self) -> None:
        self._opening = asyncio.Lock()
        self._choosing_reranker = asyncio.Lock()

    def __reduce__(self) -> str:
        raise ConfigurationError(
            "a retriever cannot be sent to another process: make it there, with the same arguments (a process that is "
            "forked after it was made can use it as it is)"
        )

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _opened(self) -> Indexer:
        if self._indexer is None:
            raise ConfigurationError("not open: use 'async with', or call initialize() first")
        return self._indexer
