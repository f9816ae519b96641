"""The retriever for programs without an event loop: the same methods, without ``await``."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self, TypeVar

from semlex.errors import ConfigurationError
from semlex.retriever import PostgreSQLRetriever

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from pathlib import Path

    from semlex.chunks import ChunkMetadata
    from semlex.progress import IndexReport
    from semlex.store.lexical.rebuilding import Rebuilt
    from semlex.types import Document, SearchResults, StoredChunk

T = TypeVar("T")


class SyncRetriever:
    """`PostgreSQLRetriever` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `PostgreSQLRetriever` itself: waiting here would block that loop.

    Args:
        *arguments: As for `PostgreSQLRetriever`.
        **options: As for `PostgreSQLRetriever`, except `pool` and `connection`, which belong to a loop of their own.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if options.get("pool") is not None or options.get("connection") is not None:
            raise ConfigurationError(
                "an async pool or connection belongs to its own event loop: use PostgreSQLRetriever"
            )
        self._retriever = PostgreSQLRetriever(*arguments, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def retriever(self) -> PostgreSQLRetriever:
        """The retriever behind this face, for its properties."""
        return self._retriever

    def initialize(self) -> None:
        """As `PostgreSQLRetriever.initialize`."""
        if self._loop is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="semlex-loop", daemon=True)
        self._thread.start()
        try:
            self._run(self._retriever.initialize())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """As `PostgreSQLRetriever.close`."""
        if self._loop is None:
            return
        try:
            self._run(self._retriever.close())
        finally:
            self._stop()

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise ConfigurationError("not open: use 'with', or call initialize() first")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C while waiting: stop the work, too.
            future.cancel()
            raise

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_documents(
        self, documents: Iterable[Document | ChunkMetadata], embeddings: Any = None, **options: Any
    ) -> list[str]:
        """As `PostgreSQLRetriever.add_documents`."""
        return self._run(self._retriever.add_documents(documents, embeddings, **options))

    def upsert(self, documents: Iterable[Document | ChunkMetadata], embeddings: Any = None) -> list[str]:
        """As `PostgreSQLRetriever.upsert`."""
        return self._run(self._retriever.upsert(documents, embeddings))

    def add_texts(self, texts: Iterable[str], **options: Any) -> list[str]:
        """As `PostgreSQLRetriever.add_texts`."""
        return self._run(self._retriever.add_texts(texts, **options))

    def index(self, *paths: str | Path, **options: Any) -> IndexReport:
        """As `PostgreSQLRetriever.index`."""
        return self._run(self._retriever.index(*paths, **options))

    def embed_missing(self, **options: Any) -> int:
        """As `PostgreSQLRetriever.embed_missing`."""
        return self._run(self._retriever.embed_missing(**options))

    def create_index(self, hnsw: Any = None) -> list[str]:
        """As `PostgreSQLRetriever.create_index`."""
        return self._run(self._retriever.create_index(hnsw))

    def optimize(self, **options: Any) -> int:
        """As `PostgreSQLRetriever.optimize`."""
        return self._run(self._retriever.optimize(**options))

    def reindex_lexical(self, **options: Any) -> Rebuilt:
        """As `PostgreSQLRetriever.reindex_lexical`."""
        return self._run(self._retriever.reindex_lexical(**options))

    def search(self, query: str | None = None, top_k: int = 5, filters: Any = None, **options: Any) -> SearchResults:
        """As `PostgreSQLRetriever.search`."""
        return self._run(self._retriever.search(query, top_k, filters, **options))

    def get(self, ids: Sequence[str]) -> list[StoredChunk]:
        """As `PostgreSQLRetriever.get`."""
        return self._run(self._retriever.get(ids))

    def count(self, filters: Any = None) -> int:
        """As `PostgreSQLRetriever.count`."""
        return self._run(self._retriever.count(filters))

    def status(self) -> dict[str, Any]:
        """As `PostgreSQLRetriever.status`."""
        return self._run(self._retriever.status())

    def collections(self) -> list[dict[str, Any]]:
        """As `PostgreSQLRetriever.collections`."""
        return self._run(self._retriever.collections())

    def delete_documents(self, ids: Sequence[str]) -> int:
        """As `PostgreSQLRetriever.delete_documents`."""
        return self._run(self._retriever.delete_documents(ids))

    def drop_collection(self) -> bool:
        """As `PostgreSQLRetriever.drop_collection`; this face is closed afterwards."""
        dropped = self._run(self._retriever.drop_collection())
        self._stop()
        return dropped

    def health_check(self) -> dict[str, Any]:
        """As `PostgreSQLRetriever.health_check`."""
        return self._run(self._retriever.health_check())
