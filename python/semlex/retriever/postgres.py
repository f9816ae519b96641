"""A retriever: one collection with its own server connection, pool and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from semlex.options.collection import CollectionOptions, WantedOptions
from semlex.options.declare import check_options, picked
from semlex.options.search import SearchOptions
from semlex.retriever.base import DocumentRetriever
from semlex.retriever.collection import Collection
from semlex.retriever.handle import Handle
from semlex.retriever.model_selection import ModelOptions
from semlex.retriever.options import CollectionKeys, RetrieverOptions
from semlex.retriever.resources import ResourceOwner, Resources
from semlex.search.request import NO_DEFAULTS
from semlex.store.schema.registry import list_collections
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from semlex.diagnostics.status import ServerHealth
    from semlex.embedding.base import Embedder
    from semlex.reranking.base import Reranker
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import ListedCollection

HANDLE_OPTIONS = ("create", "bm25", "bulk", "role", "calibration", "fallback")


class PostgreSQLRetriever(Collection, ResourceOwner, DocumentRetriever):
    """Hybrid search over one collection in Postgres.

    The first call opens it. Close it with `close`, or use it as an async context manager, which opens it at once. One
    instance serves any number of concurrent searches. Programs without an event loop use `semlex.SyncRetriever`.

    Args:
        db_url: libpq connection string; None (and no `pool` or `connection`) starts the embedded Postgres.
        embedding_model: An `Embedder`; a model's name or folder; ``"static"``; ``"none"`` for keywords only; or None:
            the model that the collection was made with, else the best available one (`embedding_choice` says which and
            why).
        reranker_model: A `Reranker`, a model's name or folder, ``"none"`` or None.
        use_reranking: True, False, or ``"auto"``: only if a reranker is named, or one is cached and a GPU exists.
        collection: Name: lower-case letters, digits and underscores, up to 48.
        pool: An open pool; you close it.
        connection: An open connection; you close it. Reads and writes join its transaction, as with `using`.
        **options: See `RetrieverOptions`.
    """

    def __init__(
        self,
        db_url: str | None = None,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        collection: str = "default_collection",
        pool: AsyncConnectionPool[Any] | None = None,
        connection: Connection | None = None,
        **options: Unpack[RetrieverOptions],
    ) -> None:
        check_options(RetrieverOptions, options, "PostgreSQLRetriever")
        check_parameters(kind_errors("fallback", options.get("fallback"), DocumentRetriever, NoneType))
        self._resources = Resources.of(
            db_url,
            ModelOptions.of(embedding_model, reranker_model, use_reranking, options),
            options,
            pool=pool,
            connection=connection,
        )
        wanted = WantedOptions.of(CollectionOptions(**picked(CollectionKeys, options)), options.get("defaults"))
        given: Mapping[str, Any] = options
        own = {name: given[name] for name in HANDLE_OPTIONS if name in given}
        searches = options.get("search_defaults", NO_DEFAULTS)
        super().__init__(Handle(self._resources, collection, wanted, defaults=searches, **own))

    async def initialize(self) -> None:
        """Connect to the server (or start it), open (or make) the collection, choose the embedding model.

        Raises:
            ConnectionFailedError: The server cannot be reached.
            CollectionNotFoundError: The collection does not exist and `create` is False.
            ModelNotFoundError: The named model cannot be loaded.
            ModelMismatchError: The collection was made with another model.
            CollectionSettingsError: An option differs from what the collection was made with.
        """
        await self._resources.initialize()
        try:
            await self._handle.ready()
        except BaseException:
            await self._resources.release()
            raise

    @property
    def embedder(self) -> Embedder | None:
        """The model that embeds, or None in keyword-only mode."""
        return self._handle.opened.models.embedder

    @property
    def reranker(self) -> Reranker | None:
        """The reranker, or None; it is chosen by the first search that reranks."""
        chosen = self._resources.open_reranker
        return None if chosen is None else chosen.reranker

    @property
    def reranking_choice(self) -> str:
        """One line that says which reranker was chosen, and why."""
        chosen = self._resources.open_reranker
        return "not chosen yet" if chosen is None else chosen.choice

    async def open_reranker(self) -> Reranker | None:
        """Return the reranker, or None; the first call chooses it, unless a search that reranks has done so."""
        return (await (await self._resources.ready()).reranker()).reranker

    async def drop_collection(self) -> bool:
        """Drop the collection with everything in it and close this retriever; return whether it existed."""
        dropped = await self.drop()
        await self.close()
        return dropped

    async def collections(self) -> list[ListedCollection]:
        """Return every collection of the schema, sorted by name."""
        return await list_collections(await self._handle.database(), self.names.schema)

    async def health_check(self, *, deadline: float | None = None) -> ServerHealth:
        """Return whether the database answers; a database that does not answer raises no error.

        Args:
            deadline: Seconds to wait for its answer; by default the retriever's ``timeout``. The first call also opens
                the retriever, and the deadline does not limit that.
        """
        from semlex.diagnostics.status import server_health

        check_options(SearchOptions, {"deadline": deadline}, "health_check")

        async def reach() -> Database:
            if self._handle.current() is None:
                await self._handle.readable()
            return await self._handle.database()

        health = await server_health(reach, deadline=deadline)
        if health.error is not None:
            return health
        version = self._handle.opened.models.version
        return replace(
            health,
            embedding_model=version.model if version else None,
            reranker_model=self.reranker.identity if self.reranker else None,
        )
