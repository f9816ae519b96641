"""Transactions that are sent in few round trips: of one state of the database for reading, and of a whole write."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, LiteralString

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex.store.postgres.settings import READ_SETTINGS, begin_writing, knows_settings, of_role, set_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from semlex.store.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A REPEATABLE READ, READ ONLY transaction."""

    connection: Connection
    # Of the whole transaction; None if its beginning was not pipelined.
    pipeline: psycopg.AsyncPipeline | None = None

    @asynccontextmanager
    async def in_one_go(self) -> AsyncIterator[None]:
        """Send the statements of the block at once; at its end, wait for all answers or raise the first failure.

        Afterwards the connection is usable as far as its transaction allows.
        """
        if self.pipeline is None:
            async with ended_pipeline(self.connection):
                yield
            return
        # A pipeline inside a pipeline would first wait for all that was sent before: one round trip more.
        try:
            yield
            await self.pipeline.sync()
        except psycopg.Error:
            if not self.connection.closed:
                with suppress(psycopg.Error):  # the rest of the answers
                    await self.pipeline.sync()
            raise

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """End the block if one of its statements exceeds its time limit.

        The transaction continues either way, with the settings that it had.
        """
        with suppress(psycopg.errors.QueryCanceled):
            async with self.savepoint():
                yield

    @asynccontextmanager
    async def savepoint(self, *, force_rollback: bool = False) -> AsyncIterator[None]:
        """Undoe the block where it fails; the transaction goes on, with the settings and the role that it had."""
        if self.pipeline is not None and self.connection.info.transaction_status == TransactionStatus.IDLE:
            # The driver does not know yet that the transaction has begun. It would take the block for all of it and end
            # it there: later statements would be outside the snapshot and have the rights of the login.
            await self.pipeline.sync()
        async with self.connection.transaction(force_rollback=force_rollback):
            yield


@asynccontextmanager
async def open_snapshot(
    connection: Connection, *, role: str | None = None, pipelined: bool = True
) -> AsyncIterator[Snapshot]:
    """A snapshot in its own transaction.

    Pipelined: the server gets the beginning together with the first statement whose rows are waited for. (The driver's
    own block of a transaction waits three times, which is longer than a search of words takes.)

    Args:
        connection: In no transaction.
    """
    settings = READ_SETTINGS | of_role(role)
    if not (connection.autocommit and pipelined):
        # On a caller's connection the driver begins a transaction automatically before any statement.
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await set_local(connection, **settings)
            yield Snapshot(connection)
        return
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    async with _pipelined(connection, begin, partial(set_local, connection, **settings)) as pipeline:
        yield Snapshot(connection, pipeline)


async def send_transaction(
    send: Callable[[Connection], Awaitable[None]], connection: Connection, *, role: str | None = None
) -> None:
    """Send a write transaction at once; return when all of it is answered.

    Args:
        connection: In no transaction.
    """
    if not connection.autocommit:  # the driver begins a transaction automatically before any statement
        async with connection.transaction():
            await begin_writing(connection, role)
            await send(connection)
        return
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
    async with _pipelined(connection, begin, partial(begin_writing, connection, role)):
        await send(connection)


@asynccontextmanager
async def _pipelined(
    connection: Connection, begin: LiteralString, fix_settings: Callable[[], Awaitable[None]]
) -> AsyncIterator[psycopg.AsyncPipeline]:
    """A transaction in a pipeline, whose beginning travels with its first statements."""
    try:
        async with ended_pipeline(connection) as pipeline:
            await connection.execute(begin)
            await fix_settings()
            if not knows_settings(connection):
                # The driver encodes parameters by what the server reports, which comes with its next answer.
                await pipeline.sync()
            yield pipeline
            await connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            with suppress(psycopg.Error):  # the first error is the one to report
                await connection.rollback()
        raise


@asynccontextmanager
async def ended_pipeline(connection: Connection) -> AsyncIterator[psycopg.AsyncPipeline]:
    """Open the driver's pipeline without its log message about an end after an error.

    If the pipeline could not be ended, close the connection.
    """
    before = connection.pgconn.pipeline_status  # a caller's connection may be in a pipeline already
    try:
        async with AsyncExitStack() as block:
            pipeline = await block.enter_async_context(connection.pipeline())
            try:
                yield pipeline
            except BaseException:
                with suppress(psycopg.Error):
                    await block.aclose()
                raise
    finally:
        if before == PipelineStatus.OFF and connection.pgconn.pipeline_status != PipelineStatus.OFF:
            # The driver gave up on outstanding answers, as after a badly timed cancellation. The next user of the
            # connection would send statements that nobody ends.
            connection.pgconn.finish()
