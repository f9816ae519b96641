"""Calls of a collection from code with or without an event loop; frameworks have both."""

from __future__ import annotations

import json
import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from semlex.errors import ConfigurationError, EmbeddingsMissingError
from semlex.filters.fields import refusal
from semlex.filters.tree import MAX_DEPTH, F, FilterTree, joined
from semlex.retriever.collection import Collection
from semlex.retriever.synchronous import SyncCollection
from semlex.types.results import SearchResults
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence

    from semlex.types.documents import StoredChunk


AnyCollection = Collection | SyncCollection
P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("semlex")


def checked_collection(collection: object) -> AnyCollection:
    """Check that an object is a `Collection` or `SyncCollection` (a retriever is one), and return it."""
    check_parameters(kind_errors("collection", collection, Collection, SyncCollection))
    assert isinstance(collection, (Collection, SyncCollection))  # noqa: S101 - checked
    return collection


def both_ways(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> tuple[Callable[P, T], Callable[P, Coroutine[Any, Any, T]]]:
    """Make a synchronous and an asynchronous method from a coroutine function; the object's `_runner` runs both."""

    @wraps(function)
    def waiting(*arguments: P.args, **options: P.kwargs) -> T:
        owner: Any = arguments[0]
        found: T = owner._runner.run(function, *arguments, **options)  # noqa: SLF001 - of a method's own object
        return found

    @wraps(function)
    async def awaited(*arguments: P.args, **options: P.kwargs) -> T:
        owner: Any = arguments[0]
        found: T = await owner._runner.run_async(function, *arguments, **options)  # noqa: SLF001
        return found

    waiting.__name__ = awaited.__name__ = function.__name__.strip("_")
    return waiting, awaited


class CollectionRunner:
    """Runs coroutines on the event loop of a collection; `collection` is always the asynchronous collection."""

    def __init__(self, collection: object) -> None:
        self.given = checked_collection(collection)
        self.collection = self.given if isinstance(self.given, Collection) else self.given.asynchronous

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Run a coroutine, and wait for its result."""
        if isinstance(self.given, Collection):
            raise ConfigurationError(
                f"{function.__name__.strip('_')}: this collection belongs to an event loop, where a call without "
                "await would block forever; use the asynchronous methods, or a collection of connect_sync, which "
                "serves both"
            )
        return self.given.run(function, *arguments, **options)

    async def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run a coroutine while the caller's event loop keeps running."""
        if isinstance(self.given, Collection):
            return await function(*arguments, **options)
        return await self.given.awaited(function, *arguments, **options)


async def searched(collection: Collection, *arguments: Any, **options: Any) -> SearchResults:
    """Search a collection, and log the warnings; an empty collection gives no hits in any mode."""
    try:
        results = await collection.search(*arguments, **options)
    except EmbeddingsMissingError:
        if await collection.count():
            raise
        return SearchResults()
    for warning in results.warnings:
        logger.warning("search: %s", warning)
    return results


EVERYTHING: FilterTree = F("@source_document").exists() | ~F("@source_document").exists()
NOTHING: FilterTree = F("@source_document").exists() & ~F("@source_document").exists()
PAGE = 1_000


def key_field(*parts: str) -> F:
    """Return the field at a path of keys, which are taken literally, whatever characters they contain."""
    return F(".".join(json.dumps(part) for part in parts))


def all_of(parts: Iterable[FilterTree]) -> FilterTree:
    """Return a filter that holds if all given ones do; without any it always holds."""
    trees = list(parts)
    return joined("and", trees) if trees else EVERYTHING


def any_of(parts: Iterable[FilterTree]) -> FilterTree:
    """Return a filter that holds if one of the given ones does; without any it never holds."""
    trees = list(parts)
    return joined("or", trees) if trees else NOTHING


def check_depth(place: str, depth: int) -> None:
    """Refuse a filter that is nested too deep, before Python's recursion limit is reached."""
    if depth > MAX_DEPTH:
        raise refusal(place, "too_deep", str(MAX_DEPTH))


def has_id(ids: Sequence[str]) -> FilterTree:
    """Return a filter for chunks with one of these ids; without ids it never holds."""
    named = [one for one in ids if one]
    return F("@id").in_(named) if named else NOTHING


async def pages(collection: Collection, filters: FilterTree | None) -> AsyncIterator[list[StoredChunk]]:
    """Yield pages of all chunks that pass a filter, in the order of their keys."""
    after = None
    while page := await collection.list_chunks(filters, limit=PAGE, after=after):
        yield page
        after = page[-1].id


def metadata_with_place(chunk: StoredChunk) -> dict[str, object]:
    """Return the metadata of a chunk and, if it was read from a file, its place; the user's keys take precedence."""
    if not chunk.source:
        return dict(chunk.metadata)
    place = {
        "source": chunk.source,
        "source_document": chunk.source_document,
        "heading_path": list(chunk.heading_path),
        **{name: getattr(chunk, name) for name in ("line", "page", "row", "cell", "sheet", "place")},
    }
    return {name: value for name, value in place.items() if value} | chunk.metadata
