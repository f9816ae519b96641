"""An open client and its collections, shared by routes and assistants."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from semlex.errors import CollectionNotFoundError, EmbeddingsMissingError, SemlexError
from semlex.retriever.handle import read_curve
from semlex.retriever.served_models import open_with_models

if TYPE_CHECKING:
    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection
    from semlex.settings.table import Settings

logger = logging.getLogger("semlex.server")

WARM_QUESTION = "warm"


class OpenClient:
    """An open client with its settings; it is closed when the last request that uses it has ended."""

    def __init__(self, client: Client, settings: Settings | None = None) -> None:
        self.client, self.settings = client, settings
        self.users = 0
        self.readiness = "not checked yet"
        self.problem: SemlexError | None = None
        self._known: set[str] = set()
        self._retired: asyncio.Event | None = None

    @property
    def default(self) -> str | None:
        """The collection of requests that name none."""
        return None if self.settings is None else self.settings.collection

    async def names(self) -> list[str]:
        """Return the names of the collections that exist, sorted."""
        names = [listed.name for listed in await self.client.collections()]
        self._known = set(names)
        return names

    async def collection(self, name: str, *, create: bool = False) -> Collection:
        """Return a collection by its name; one that does not exist is an error unless `create` is given."""
        if name not in self._known and name not in await self.names() and not create:
            raise CollectionNotFoundError(f"collection {name!r} does not exist")
        return self._opened(name, create=create)

    def known(self, name: str) -> Collection | None:
        """Return a collection that is known to exist, without asking the database; None if it is not known."""
        return self._opened(name) if name in self._known else None

    def _opened(self, name: str, *, create: bool = False) -> Collection:
        calibration = None if self.settings is None else self.settings.calibration_of(name)
        return self.client.collection(name, create=create, calibration=calibration)

    def forget(self, name: str | None = None) -> None:
        """Forget that a collection exists; without a name, forget all."""
        self._known = set() if name is None else self._known - {name}

    async def warm(self) -> None:
        """Open everything that the settings name: the collection if it exists, the models, the calibration."""
        settings = self.settings
        if settings is None:
            return
        try:
            if settings.calibration is not None:
                await asyncio.to_thread(read_curve, settings.calibration)
            collection = self._opened(settings.collection)
            await open_with_models(collection)
            # It embeds and searches as a search does, and is not in the query log.
            await collection.fields.facets(["@source"], query=WARM_QUESTION, candidates=1, limit=1)
            self.readiness = "ok"
        except CollectionNotFoundError:
            self.readiness = "no collection to open yet"
        except SemlexError as error:
            self.readiness = "the collection, a model or the calibration cannot be opened; see the log"
            # A collection without vectors yet is not a fault of the settings.
            self.problem = None if isinstance(error, EmbeddingsMissingError) else error
            logger.warning("collection %r is not ready: %s", settings.collection, error)

    def check_beside(self, serving: OpenClient) -> None:
        """Raise this client's problem, unless `serving`, the client that it would replace, has the same problem."""
        if self.problem is not None and str(self.problem) != str(serving.problem):
            raise self.problem

    def release(self) -> None:
        """Note that a request no longer uses this client."""
        self.users -= 1
        if not self.users and self._retired is not None:
            self._retired.set()

    async def retire(self) -> None:
        """Close the client when no request uses it any more."""
        self._retired = asyncio.Event()
        try:
            if self.users:
                await self._retired.wait()
        finally:
            await self.client.stop_builds()
            await self.client.close()
