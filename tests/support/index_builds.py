"""Builds of indexes that are held in the middle, by somebody who has written and not committed."""

import psycopg

from tests.support.waiting import eventually


async def held_build(url, table="semlex.built_embedding_1"):
    """The backend that builds an index of a table concurrently, once it waits for somebody."""
    statement = "SELECT pid FROM pg_stat_progress_create_index WHERE phase ~ 'waiting' AND relid = %s::regclass"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def backend():
            return await (await connection.execute(statement, [table])).fetchone()

        (found,) = await eventually(backend, f"a build of an index of {table}")
    return int(found)
