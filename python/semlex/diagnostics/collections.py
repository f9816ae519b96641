"""The collections of a server with their counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from semlex.store.query.statistics import collection_counts
from semlex.store.schema.collection import ListedCollection
from semlex.store.schema.registry import list_collections

if TYPE_CHECKING:
    from semlex.store.postgres.database import Database


@dataclass(frozen=True, slots=True)
class CountedCollection(ListedCollection):
    """A collection of a server, with its counts.

    Attributes:
        documents: Files that were read, and documents that were added; None where this role may not read
            them, or the tables are gone.
        chunks: None likewise.
        estimated: Whether a large table was estimated, not counted.
    """

    documents: int | None
    chunks: int | None
    estimated: bool


async def count_collections(database: Database, schema: str) -> list[CountedCollection]:
    """Every collection of a schema, by name, with its counts."""

    async def counted(listed: ListedCollection) -> CountedCollection:
        counts = await database.read("count", lambda c: collection_counts(c, schema, listed.name))
        return CountedCollection(**asdict(listed), **counts)

    return [await counted(listed) for listed in await list_collections(database, schema)]
