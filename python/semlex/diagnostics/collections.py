"""The collections of a server, without opening one."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from semlex.store.postgres.database import Database
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.query.statistics import collection_counts
from semlex.store.schema.collection import ListedCollection
from semlex.store.schema.dropping import drop_collection
from semlex.store.schema.migrating import migrate, pending_steps
from semlex.store.schema.names import Names
from semlex.store.schema.presence import no_such_collection
from semlex.store.schema.registry import list_collections

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from semlex.store.schema.migrating import Step

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CountedCollection(ListedCollection):
    """A collection of a server, with its counts.

    Attributes:
        documents: None where this role may not read them, or the tables are gone.
        chunks: None likewise.
        estimated: Whether a large table was estimated, not counted.
    """

    documents: int | None
    chunks: int | None
    estimated: bool


def list_all(
    db_url: str | None, schema: str, data_folder: Path | None = None, keep_alive: float = 0
) -> list[ListedCollection]:
    """Every collection of a schema, by name.

    Args:
        db_url: libpq connection string, or None for the embedded Postgres.
        schema: Schema that holds semlex's tables.
        data_folder: Folder of the embedded Postgres.
        keep_alive: Seconds for which it stays after its last user.
    """
    return _with_database(db_url, data_folder, keep_alive, lambda database: list_collections(database, schema))


def list_counted(
    db_url: str | None, schema: str, data_folder: Path | None = None, keep_alive: float = 0
) -> list[CountedCollection]:
    """Every collection of a schema, by name, with its counts.

    Args:
        db_url: libpq connection string, or None for the embedded Postgres.
        schema: Schema that holds semlex's tables.
        data_folder: Folder of the embedded Postgres.
        keep_alive: Seconds for which it stays after its last user.
    """

    async def work(database: Database) -> list[CountedCollection]:
        async def counted(listed: ListedCollection) -> CountedCollection:
            counts = await database.read("count", lambda c: collection_counts(c, schema, listed.name))
            return CountedCollection(**asdict(listed), **counts)

        return [await counted(listed) for listed in await list_collections(database, schema)]

    return _with_database(db_url, data_folder, keep_alive, work)


def drop_one(
    db_url: str | None, schema: str, collection: str, data_folder: Path | None = None, keep_alive: float = 0
) -> None:
    """Drops a collection, whatever its version.

    Args:
        db_url: libpq connection string, or None for the embedded Postgres.
        schema: Schema that holds semlex's tables.
        collection: Its name.
        data_folder: Folder of the embedded Postgres.
        keep_alive: Seconds for which it stays after its last user.

    Raises:
        CollectionNotFoundError: There is none of that name.
    """
    names = Names(schema, collection)

    async def drop(database: Database) -> None:
        if not await drop_collection(database, names):
            known = [listed.name for listed in await list_collections(database, names.schema)]
            raise no_such_collection(names.collection, known)

    _with_database(db_url, data_folder, keep_alive, drop)


def migrate_all(
    db_url: str | None, schema: str, data_folder: Path | None = None, keep_alive: float = 0, *, dry_run: bool = False
) -> list[Step]:
    """Migrates every collection of a schema; with `dry_run` it only says what there is to do.

    Args:
        db_url: libpq connection string, or None for the embedded Postgres.
        schema: Schema that holds semlex's tables.
        data_folder: Folder of the embedded Postgres.
        keep_alive: Seconds for which it stays after its last user.
        dry_run: Whether nothing is done.
    """
    work = pending_steps if dry_run else migrate
    return _with_database(db_url, data_folder, keep_alive, lambda database: work(database, schema))


def _with_database(
    db_url: str | None, data_folder: Path | None, keep_alive: float, work: Callable[[Database], Awaitable[T]]
) -> T:
    async def run(url: str) -> T:
        async with Database(url) as database:
            return await work(database)

    if db_url is not None:
        return asyncio.run(run(db_url))
    with EmbeddedServer(data_folder, keep_alive=keep_alive) as server:
        return asyncio.run(run(server.url))
