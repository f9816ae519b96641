"""The part of the document store that is made, opened, closed, and written into pipelines."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from haystack import default_from_dict, default_to_dict
from haystack.utils import Secret, deserialize_secrets_inplace

from semlex.errors import ConfigurationError
from semlex.integrations.calls import TwoWays
from semlex.parameters import CollectionOptions
from semlex.retriever.synchronous import SyncClient

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from semlex.parameters import DistanceName, StorageName
    from semlex.retriever.collection import Collection

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_DATABASE = Secret.from_env_var("DATABASE_URL", strict=False)


class ConnectedStore:
    """A collection as a document store of Haystack.

    It opens its client with its first call. `close` closes it; the next call opens it again.

    Args:
        db_url: Address of the database; by default what the environment has as ``DATABASE_URL``. None, or a variable
            that is not set, starts the embedded Postgres.
        collection: Lower-case letters, digits and underscores, at most 48.
        schema: Schema that holds semlex's tables.
        embedding_model: ``none``: embeddings are those of the documents. A name: documents without one get their vector
            from this model, and the hybrid retriever needs no embedding of the query.
        reranker_model: Name of a model for the hybrid retriever with ``rerank=True``.
        language: Language of the texts, for a new collection; so are the next ones.
        keyword: Keyword engine.
        distance: ``cosine``, ``l2`` or ``inner_product``.
        vector_storage: ``vector`` or ``halfvec``.
        data_folder: Folder of the embedded Postgres.
        max_connections: Size of the pool.
    """

    def __init__(
        self,
        db_url: Secret | None = DEFAULT_DATABASE,
        collection: str = "haystack",
        *,
        schema: str = "semlex",
        embedding_model: str = "none",
        reranker_model: str | None = None,
        language: str | None = None,
        keyword: str | None = None,
        distance: DistanceName | None = None,
        vector_storage: StorageName | None = None,
        data_folder: str | None = None,
        max_connections: int = 8,
    ) -> None:
        self.db_url = db_url
        self.collection = collection
        self.schema = schema
        self.embedding_model = embedding_model
        self.reranker_model = reranker_model
        self.language = language
        self.keyword = keyword
        self.distance = distance
        self.vector_storage = vector_storage
        self.data_folder = data_folder
        self.max_connections = max_connections
        self._options = CollectionOptions(
            language=language, keyword=keyword, distance=distance, vector_storage=vector_storage
        )
        self._opening = threading.Lock()  # several threads may make the first call
        self._opened: tuple[SyncClient, TwoWays] | None = None

    def to_dict(self) -> dict[str, Any]:
        """What makes the same store again; of the address only which variable of the environment holds it."""
        made: dict[str, Any] = default_to_dict(
            self,
            db_url=None if self.db_url is None else self.db_url.to_dict(),
            collection=self.collection,
            schema=self.schema,
            embedding_model=self.embedding_model,
            reranker_model=self.reranker_model,
            language=self.language,
            keyword=self.keyword,
            distance=self.distance,
            vector_storage=self.vector_storage,
            data_folder=self.data_folder,
            max_connections=self.max_connections,
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The store that `to_dict` describes."""
        deserialize_secrets_inplace(data.get("init_parameters", {}), ["db_url"])
        made: Self = default_from_dict(cls, data)
        return made

    def _ready(self) -> TwoWays:
        """Where functions run; the client is opened if need be."""
        with self._opening:
            client, ways = self._opened = self._opened or self._made()
        client.initialize()
        return ways

    def _made(self) -> tuple[SyncClient, TwoWays]:
        client = SyncClient(
            None if self.db_url is None else self.db_url.resolve_value(),
            self.embedding_model,
            self.reranker_model,
            use_reranking=self.reranker_model is not None,
            schema=self.schema,
            data_folder=self.data_folder,
            max_connections=self.max_connections,
        )
        return client, TwoWays(client.collection(self.collection, self._options))

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls an asynchronous function where the collection lives, and waits for it."""
        return self._ready().run(function, *arguments, **options)

    async def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Calls an asynchronous function where the collection lives; the caller's loop goes on, also while it opens."""
        ways = await asyncio.to_thread(self._ready)
        return await ways.run_async(function, *arguments, **options)

    @property
    def opened(self) -> Collection:
        """The collection, for functions that `run` calls.

        Raises:
            ConfigurationError: Another thread has closed the store meanwhile.
        """
        if self._opened is None:
            raise ConfigurationError("the store was closed meanwhile")
        return self._opened[1].collection

    def close(self) -> None:
        """Closes the client: its pool, and the handle of an embedded server."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[0].close()

    async def close_async(self) -> None:
        """As `close`."""
        await asyncio.to_thread(self.close)
