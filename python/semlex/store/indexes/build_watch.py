"""How far the build of an index has come, as the server tells on another connection."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import psycopg

from semlex.errors import StoreError
from semlex.store.postgres.direct import own_connection
from semlex.store.schema.locks import TELL_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database

    # Name of the index, units done, units in all (None while unknown), unit.
    TellBuild = Callable[[str, int, int | None, str], None]

logger = logging.getLogger("semlex")

SECONDS_BETWEEN_LOOKS = 0.5


@asynccontextmanager
async def watched(
    database: Database, connection: Connection, name: str, tell: TellBuild | None, *, concurrently: bool
) -> AsyncIterator[None]:
    """Tells how far the build that runs in the block has come; never fails for that.

    A concurrent build waits for transactions that began before it; the log names the process of one.

    A pool or connection of the user's is not used for it, so that with one nothing is told.
    """
    if database.url is None or (tell is None and not concurrently):
        yield
        return
    cursor = await connection.execute("SELECT pg_backend_pid()")
    row = await cursor.fetchone()
    looks = asyncio.create_task(_look(database, row[0] if row else 0, name, tell))
    try:
        yield
    finally:
        looks.cancel()
        await asyncio.gather(looks, return_exceptions=True)


async def _look(database: Database, backend: int, name: str, tell: TellBuild | None) -> None:
    assert database.url is not None  # noqa: S101 - `watched` has looked
    phase, since, told = "", 0.0, False
    try:
        async with own_connection(database.url, database.timeout) as connection:
            while True:
                # HNSW counts blocks of the table, IVFFlat the rows that it puts into lists.
                cursor = await connection.execute(
                    "SELECT phase, blocks_done, blocks_total, tuples_done, tuples_total, "
                    "current_locker_pid "
                    "FROM pg_catalog.pg_stat_progress_create_index WHERE pid = %s",
                    [backend],
                )
                row = await cursor.fetchone()
                if row is not None:
                    now = database.clock.monotonic()
                    if row[0] != phase:
                        phase, since, told = row[0], now, False
                        logger.info("index %s: %s", name, phase)
                    blocks, all_blocks, rows, all_rows, holder = (number or 0 for number in row[1:])
                    if holder and not told and now - since >= TELL_SECONDS:
                        told = True
                        logger.warning("index %s: waits for the transaction of process %s to end", name, holder)
                    if tell is not None and all_blocks:
                        tell(name, blocks, all_blocks, "blocks")
                    elif tell is not None and all_rows:
                        tell(name, rows, all_rows, "rows")
                await database.clock.sleep(SECONDS_BETWEEN_LOOKS)
    except (psycopg.Error, StoreError) as error:
        logger.debug("index %s: the progress of its build is not known: %s", name, type(error).__name__)
