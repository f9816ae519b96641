"""Whole tables of a collection into the server, in the transaction of a restore."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from psycopg import sql

from semlex import _core
from semlex.store.tables.columns import TABLES, table_of
from semlex.store.write.copy import copy_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo


async def copy_in(
    connection: Connection, collection: CollectionInfo, table: str, columns: Mapping[str, Sequence[Any]]
) -> int:
    """Writes rows of a table other than that of the chunks; returns how many.

    Args:
        connection: In a transaction.
    """
    wires = TABLES[table]
    values = [(name, wire, _uuids(columns[name]) if wire == "uuid" else columns[name]) for name, wire in wires.items()]
    target = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        table_of(collection.names, table), sql.SQL(", ").join(map(sql.Identifier, wires))
    )
    return await copy_rows(connection, target, [_core.CopyEncoder(values)])


def _uuids(values: Sequence[str | None]) -> list[bytes | None]:
    return [None if value is None else uuid.UUID(value).bytes for value in values]


async def count_rows(connection: Connection, collection: CollectionInfo) -> dict[str, int]:
    """How many rows the tables hold, and how many vectors there are, by their names in a dump."""
    counted = {table: table_of(collection.names, table) for table in TABLES}
    if collection.embedding is not None:
        counted["vectors"] = collection.names.embedding(collection.embedding.version)
    selected = [sql.SQL("(SELECT count(*) FROM {})").format(table) for table in counted.values()]
    cursor = await connection.execute(sql.SQL("SELECT {}").format(sql.SQL(", ").join(selected)))
    row = await cursor.fetchone()
    return dict(zip(counted, row or (), strict=True)) | ({} if "vectors" in counted else {"vectors": 0})
