"""Rows out of the server in parts: all of them in order, errors as the server tells them, a connection that lives."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex.store import tables
from tests.support.properties import OWN_ROWS, examples

NUMBERS = "COPY (SELECT n::int8, repeat('x', {}) FROM generate_series(1, {}) AS n) TO STDOUT (FORMAT binary)"
DIVISION = "COPY (SELECT 1 / (9000 - n)::int8, repeat('x', 2000) FROM generate_series(1, 10000) AS n) TO STDOUT BINARY"
SLOW = "COPY (SELECT n::int8, repeat('x', 3000) || pg_sleep({}) FROM generate_series(1, 1000000) AS n) TO STDOUT BINARY"
TYPES = ["int8", "text"]


async def read(connection, statement):
    """The numbers of every part."""
    async with aclosing(tables.copy_parts(connection, statement, TYPES)) as parts:
        return [part.decoded()[0] async for part in parts]


@pytest.mark.slow
@settings(OWN_ROWS, deadline=None, max_examples=examples(20))
@given(count=st.integers(0, 300), width=st.sampled_from([0, 10, 20_000]), size=st.sampled_from([1, 500, 100_000]))
def test_every_row_once_and_in_order(database_url, monkeypatch, count, width, size):
    monkeypatch.setattr(tables, "PART_BYTES", size)

    async def run():
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            parts = await read(connection, sql.SQL(NUMBERS).format(width, count))
            assert [number for part in parts for number in part] == list(range(1, count + 1))
            assert size > 1 or len(parts) >= count
            cursor = await connection.execute("SELECT 1")
            assert await cursor.fetchone() == (1,)

    asyncio.run(run())


def test_an_error_in_the_middle(database_url):
    async def run():
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await read(connection, sql.SQL(DIVISION).format())
            await connection.rollback()
            assert await read(connection, sql.SQL(NUMBERS).format(1, 2)) == [[1, 2]]

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0.01, 0])
def test_whoever_stops_leaves_a_usable_connection(database_url, monkeypatch, seconds):
    monkeypatch.setattr(tables, "PART_BYTES", 20_000)  # several rows: the server is waited for in the thread

    async def run():
        begun = asyncio.Event()

        async def reading(connection):
            statement = sql.SQL(SLOW).format(seconds)
            async with aclosing(tables.copy_parts(connection, statement, TYPES)) as parts:
                async for _ in parts:
                    begun.set()

        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            task = asyncio.create_task(reading(connection))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await connection.rollback()
            assert await read(connection, sql.SQL(NUMBERS).format(1, 2)) == [[1, 2]]

    asyncio.run(run())


@pytest.mark.slow
def test_a_server_that_is_gone(database_url):
    async def run():
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            statement = sql.SQL(NUMBERS).format(3000, 10_000_000)
            async with aclosing(tables.copy_parts(connection, statement, TYPES)) as parts:
                await anext(parts)
                async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
                    await other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
                with pytest.raises(psycopg.OperationalError):
                    async for _ in parts:
                        pass

    asyncio.run(run())
