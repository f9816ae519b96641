"""The generations of an index: which one answers, which one is under construction, and the lock of a merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from psycopg import sql

from semlex.store.schema.locks import gone

if TYPE_CHECKING:
    from psycopg import AsyncCursor

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.names import CollectionIdentity

    Cursor = AsyncCursor[Any]


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of a collection's index in the registry."""

    generation: int  # the one that answers
    version: int | None  # of the analyzer that makes it
    building: int | None  # the one being made
    building_version: int | None  # of the analyzer that makes that one

    @property
    def live(self) -> list[int]:
        """The generations that writers add to."""
        return [self.generation] if self.building is None else [self.generation, self.building]

    @property
    def versions(self) -> list[int | None]:
        """The analyzer version of each generation in `live`."""
        return [self.version] if self.building is None else [self.version, self.building_version]


def merging_lock(collection: CollectionIdentity) -> int:
    """Return the key of the advisory lock for merging or removing segments."""
    return int.from_bytes(collection.collection_id.bytes[:8], signed=True)


RowLock = Literal["", "FOR SHARE"]
_ROW_LOCKS: dict[RowLock, sql.SQL] = {
    "": sql.SQL(""),
    "FOR SHARE": sql.SQL("FOR SHARE"),
}


async def ask_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> Cursor:
    """Request the state of a collection's index and lock the registry's row; `state_told` reads the answer."""
    names = collection.names
    return await connection.execute(
        sql.SQL(
            "SELECT keyword_generation, analyzer_version, building_generation, building_analyzer_version FROM {} "
            "WHERE name = %s AND collection_id = %s {}"
        ).format(names.registry, _ROW_LOCKS[lock]),
        [names.collection, collection.collection_id],
    )


async def state_told(answer: Cursor, collection: CollectionIdentity) -> IndexState:
    """Read the answer to `ask_state`."""
    row = await answer.fetchone()
    if row is None:
        raise gone(collection)
    return IndexState(*row)


async def read_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> IndexState:
    """Request and read the state."""
    return await state_told(await ask_state(connection, collection, lock), collection)
