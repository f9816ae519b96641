"""The retriever for programs without an event loop: the same methods, without ``await``."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from semlex.errors import ConfigurationError, WorkAbandonedError
from semlex.forks import drop, renew_after_fork
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.types.queries import DEFAULT_TOP_K

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from pathlib import Path

    from semlex.ingest.progress import DeleteReport, IndexReport
    from semlex.store.keyword.bm25.rebuild import Rebuilt
    from semlex.store.schema.indexes import IndexesBuilt
    from semlex.types.chunks import ChunkMetadata
    from semlex.types.documents import Document, StoredChunk
    from semlex.types.queries import SearchQuery
    from semlex.types.results import SearchResults

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, to which other threads hand calls and wait for them."""

    def __init__(self) -> None:
        # Made by a factory, it does not become the current loop of the thread that makes it.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._closing = False
        # Held while a call is handed over: none arrives after the last that is answered.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="semlex-loop", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where waiting for a call would be waiting for itself."""
        return threading.current_thread() is self._thread

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls an asynchronous method and waits for it.

        Raises:
            WorkAbandonedError: `close` was called meanwhile.
        """

        async def call() -> T:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine that runs has a task
            self._calls.add(task)
            try:
                return await method(*arguments, **options)
            finally:
                self._calls.discard(task)

        with self._lock:
            if self._closing:
                raise WorkAbandonedError("the retriever was closed meanwhile, by another thread: open it again")
            future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise WorkAbandonedError(
                "another thread closed the retriever while this call was running; what a batch had committed is stored"
            ) from None
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: stop the work, too
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Ends all calls, runs a last one, and stops the thread with everything that the loop still has."""
        with self._lock:
            closing, self._closing = self._closing, True
            future = None if closing else asyncio.run_coroutine_threadsafe(self._finish(last), self._loop)
        try:
            if future is not None:
                future.result()
        finally:
            if future is not None:
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if last is not None:
            await last()

    def _serve(self) -> None:
        # Its end cancels what is left, closes asynchronous generators and waits for the loop's own threads.
        with self._runner:
            self._runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        await self._end.wait()


class SyncRetriever:
    """`PostgreSQLRetriever` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `PostgreSQLRetriever` itself: waiting here would block that loop. `close` ends the calls of other threads with a
    `WorkAbandonedError`. A forked child opens everything anew at its first call.

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
        self._loop: LoopThread | None = None
        self._is_open = False
        self._was_open = False  # in the process that this one was forked from
        self._changing = threading.Lock()  # held while it is opened or closed
        renew_after_fork(self)

    @property
    def retriever(self) -> PostgreSQLRetriever:
        """The retriever behind this face, for its properties."""
        return self._retriever

    def initialize(self) -> None:
        """As `PostgreSQLRetriever.initialize`."""
        self._refuse_own_thread()
        with self._changing:
            if self._is_open:
                return
            self._loop = loop = LoopThread()
            try:
                loop.run(self._retriever.initialize)
            except BaseException:
                self._loop = None
                loop.close()
                raise
            self._is_open, self._was_open = True, False
            _open.add(self)

    def close(self) -> None:
        """As `PostgreSQLRetriever.close`; calls of other threads end with a `WorkAbandonedError`."""
        self._refuse_own_thread()
        loop = self._loop
        try:
            if loop is not None:
                loop.close(self._retriever.close)
        finally:
            with self._changing:
                self._is_open = self._was_open = False
                if self._loop is loop:
                    self._loop = None
                _open.discard(self)

    def _refuse_own_thread(self) -> None:
        if self._loop is not None and self._loop.is_current:
            raise ConfigurationError(
                "a call inside a call of the same SyncRetriever (in a progress callback?) would wait for itself: note "
                "what it needs, and make it when the outer call has returned, or use a second SyncRetriever"
            )

    def _run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        self._refuse_own_thread()
        if self._was_open:
            self.initialize()
        loop = self._loop
        if loop is None or not self._is_open:
            raise ConfigurationError("not open: use 'with', or call initialize() first")
        return loop.run(method, *arguments, **options)

    def _after_fork(self) -> None:
        drop(self._loop)
        self._was_open |= self._is_open
        self._loop, self._is_open = None, False
        self._changing = threading.Lock()
        _open.discard(self)

    def __reduce__(self) -> str:
        raise ConfigurationError(
            "a retriever cannot be sent to another process: make it there, with the same arguments (a process that is "
            "forked after it was made can use it as it is)"
        )

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_documents(
        self, documents: Iterable[Document | ChunkMetadata], embeddings: Any = None, **options: Any
    ) -> list[str]:
        """As `PostgreSQLRetriever.add_documents`."""
        return self._run(self._retriever.add_documents, documents, embeddings, **options)

    def upsert(self, documents: Iterable[Document | ChunkMetadata], embeddings: Any = None) -> list[str]:
        """As `PostgreSQLRetriever.upsert`."""
        return self._run(self._retriever.upsert, documents, embeddings)

    def add_texts(self, texts: Iterable[str], **options: Any) -> list[str]:
        """As `PostgreSQLRetriever.add_texts`."""
        return self._run(self._retriever.add_texts, texts, **options)

    def index(self, *paths: str | Path, **options: Any) -> IndexReport:
        """As `PostgreSQLRetriever.index`."""
        return self._run(self._retriever.index, *paths, **options)

    def embed_missing(self, **options: Any) -> int:
        """As `PostgreSQLRetriever.embed_missing`."""
        return self._run(self._retriever.embed_missing, **options)

    def create_index(self, hnsw: Any = None) -> IndexesBuilt:
        """As `PostgreSQLRetriever.create_index`."""
        return self._run(self._retriever.create_index, hnsw)

    def optimize(self, **options: Any) -> int:
        """As `PostgreSQLRetriever.optimize`."""
        return self._run(self._retriever.optimize, **options)

    def reindex_lexical(self, **options: Any) -> Rebuilt:
        """As `PostgreSQLRetriever.reindex_lexical`."""
        return self._run(self._retriever.reindex_lexical, **options)

    def search(
        self, query: str | SearchQuery | None = None, top_k: int = DEFAULT_TOP_K, filters: Any = None, **options: Any
    ) -> SearchResults:
        """As `PostgreSQLRetriever.search`."""
        return self._run(self._retriever.search, query, top_k, filters, **options)

    def get(self, ids: Sequence[str]) -> list[StoredChunk]:
        """As `PostgreSQLRetriever.get`."""
        return self._run(self._retriever.get, ids)

    def count(self, filters: Any = None) -> int:
        """As `PostgreSQLRetriever.count`."""
        return self._run(self._retriever.count, filters)

    def status(self, *, exact: bool = False) -> dict[str, Any]:
        """As `PostgreSQLRetriever.status`."""
        return self._run(self._retriever.status, exact=exact)

    def collections(self) -> list[dict[str, Any]]:
        """As `PostgreSQLRetriever.collections`."""
        return self._run(self._retriever.collections)

    def delete(self, ids: Sequence[str] | None = None, **options: Any) -> DeleteReport:
        """As `PostgreSQLRetriever.delete`."""
        return self._run(self._retriever.delete, ids, **options)

    def sources(self) -> list[dict[str, Any]]:
        """As `PostgreSQLRetriever.sources`."""
        return self._run(self._retriever.sources)

    def move_source(self, name: str, root: str | Path) -> None:
        """As `PostgreSQLRetriever.move_source`."""
        self._run(self._retriever.move_source, name, root)

    def rechunk(self, **options: Any) -> IndexReport:
        """As `PostgreSQLRetriever.rechunk`."""
        return self._run(self._retriever.rechunk, **options)

    def drop_collection(self) -> bool:
        """As `PostgreSQLRetriever.drop_collection`; this face is closed afterwards."""
        dropped = self._run(self._retriever.drop_collection)
        self.close()
        return dropped

    def health_check(self) -> dict[str, Any]:
        """As `PostgreSQLRetriever.health_check`."""
        return self._run(self._retriever.health_check)


# What is open lives until it is closed: collected earlier, it would end under the hands of its loop.
_open: set[SyncRetriever] = set()


@atexit.register
def _stop_all() -> None:
    """Ends the loops of what was left open, so that their tasks do not end in the middle of something."""
    for retriever in list(_open):
        if retriever._loop is not None:  # noqa: SLF001 - of this module
            retriever._loop.close()  # noqa: SLF001
