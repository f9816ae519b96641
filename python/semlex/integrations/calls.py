"""Calls of a collection by callers with and without an event loop; frameworks have both."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from semlex.errors import ConfigurationError, EmbeddingsMissingError
from semlex.retriever.collection import Collection
from semlex.retriever.synchronous import SyncCollection
from semlex.types.results import SearchResults
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

AnyCollection = Collection | SyncCollection
P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("semlex")


def checked_collection(collection: object) -> AnyCollection:
    """A collection, with or without ``await``; a retriever is one.

    Raises:
        ConfigurationError: It is something else.
    """
    check_parameters(kind_errors("collection", collection, Collection, SyncCollection))
    assert isinstance(collection, (Collection, SyncCollection))  # noqa: S101 - checked
    return collection


class TwoWays:
    """Runs asynchronous functions where a collection lives, so that what has both ways is written once.

    Args:
        collection: With or without ``await``.

    Attributes:
        given: That collection.
        collection: The asynchronous one behind it.

    Raises:
        ConfigurationError: It is no collection.
    """

    def __init__(self, collection: object) -> None:
        self.given = checked_collection(collection)
        self.collection = self.given if isinstance(self.given, Collection) else self.given.asynchronous

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls an asynchronous function and waits for it.

        Raises:
            ConfigurationError: The collection belongs to an event loop.
        """
        if isinstance(self.given, Collection):
            raise ConfigurationError(
                f"{function.__name__.strip('_')}: this collection belongs to an event loop, where a call without "
                "await would wait for itself; use the asynchronous methods, or a collection of connect_sync, which "
                "serves both"
            )
        return self.given.run(function, *arguments, **options)

    async def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Calls an asynchronous function; the caller's loop goes on meanwhile."""
        if isinstance(self.given, Collection):
            return await function(*arguments, **options)
        return await self.given.awaited(function, *arguments, **options)


def call(collection: AnyCollection, method: str, *arguments: Any, **options: Any) -> Any:
    """What a method returns, for a caller without an event loop.

    Raises:
        ConfigurationError: The collection belongs to an event loop.
    """
    ways = TwoWays(collection)
    return ways.run(getattr(ways.collection, method), *arguments, **options)


async def acall(collection: AnyCollection, method: str, *arguments: Any, **options: Any) -> Any:
    """The same for a caller in an event loop, which goes on meanwhile."""
    ways = TwoWays(collection)
    return await ways.run_async(getattr(ways.collection, method), *arguments, **options)


def search(collection: AnyCollection, *arguments: Any, **options: Any) -> SearchResults:
    """A search, for a caller without an event loop; frameworks want nothing of an empty collection, whatever the mode.

    What did not go as asked (`SearchResults.warnings`) is logged: frameworks have no place for it.
    """
    ways = TwoWays(collection)
    return ways.run(_search, ways.collection, *arguments, **options)


async def asearch(collection: AnyCollection, *arguments: Any, **options: Any) -> SearchResults:
    """The same for a caller in an event loop."""
    ways = TwoWays(collection)
    return await ways.run_async(_search, ways.collection, *arguments, **options)


async def _search(collection: Collection, *arguments: Any, **options: Any) -> SearchResults:
    try:
        results = await collection.search(*arguments, **options)
    except EmbeddingsMissingError:
        if await collection.count():
            raise
        return SearchResults()
    for warning in results.warnings:
        logger.warning("search: %s", warning)
    return results
