"""Generations of the keyword index: one answers, another may be in the making; and the locks around them."""

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
    """What the registry says of a collection's index.

    Attributes:
        generation: The one that answers.
        version: Version of the analyzer that makes it.
        building: The one in the making, or None.
        building_version: Version of the analyzer that makes that one, or None.
    """

    generation: int
    version: int | None
    building: int | None
    building_version: int | None

    @property
    def live(self) -> list[int]:
        """The generations that writers feed."""
        return [self.generation] if self.building is None else [self.generation, self.building]

    @property
    def versions(self) -> list[int | None]:
        """The analyzer's version of each of these."""
        return [self.version] if self.building is None else [self.version, self.building_version]


def merging_lock(collection: CollectionIdentity) -> int:
    """Key of the advisory lock of those who merge or remove segments."""
    return int.from_bytes(collection.collection_id.bytes[:8], signed=True)


RowLock = Literal["", "FOR SHARE"]
_ROW_LOCKS: dict[RowLock, sql.SQL] = {
    "": sql.SQL(""),
    "FOR SHARE": sql.SQL("FOR SHARE"),
}


async def ask_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> Cursor:
    """Asks for the state of a collection's index; `state_told` reads the answer.

    Args:
        connection: In a transaction.
        lock: Taken on the registry's row.
    """
    names = collection.names
    return await connection.execute(
        sql.SQL(
            "SELECT keyword_generation, analyzer_version, building_generation, building_analyzer_version FROM {} "
            "WHERE name = %s AND collection_id = %s {}"
        ).format(names.registry, _ROW_LOCKS[lock]),
        [names.collection, collection.collection_id],
    )


async def state_told(answer: Cursor, collection: CollectionIdentity) -> IndexState:
    """The state that was asked for."""
    row = await answer.fetchone()
    if row is None:
        raise gone(collection)
    return IndexState(*row)


async def read_state(connection: Connection, collection: CollectionIdentity, lock: RowLock = "") -> IndexState:
    """Both at once."""
    return await state_told(await ask_state(connection, collection, lock), collection)
