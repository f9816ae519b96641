"""The collections of a server, without opening one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from semlex.store.connection import Database
from semlex.store.embedded import EmbeddedServer
from semlex.store.schema import LISTED, list_collections

if TYPE_CHECKING:
    from pathlib import Path


def list_all(db_url: str | None, schema: str, data_folder: Path | None = None) -> list[dict[str, Any]]:
    """Every collection of a schema, by name.

    Args:
        db_url: libpq connection string, or None for the embedded Postgres.
        schema: Schema that holds semlex's tables.
        data_folder: Folder of the embedded Postgres.
    """

    async def read(url: str) -> list[dict[str, Any]]:
        database = Database(url)
        await database.open()
        try:
            return [dict(zip(LISTED, row, strict=True)) for row in await list_collections(database, schema)]
        finally:
            await database.close()

    if db_url is not None:
        return asyncio.run(read(db_url))
    with EmbeddedServer(data_folder) as server:
        return asyncio.run(read(server.url))
