"""Run transactions in few round trips: reads in one snapshot, and writes sent as a whole."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, LiteralString

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from semlex.store.postgres.pool import is_prepared
from semlex.store.postgres.rows import cursor_with_times
from semlex.store.postgres.settings import (
    READ_SETTINGS,
    asking_calls,
    begin_writing,
    knows_settings,
    of_role,
    set_local,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from psycopg import sql

    from semlex.store.postgres.connection import Connection
    from semlex.types.results import ReadServer

    Query = sql.Composed | bytes
    FixSettings = Callable[[], Awaitable[psycopg.AsyncCursor[Any] | None]]

NO_SETTINGS: Mapping[str, str | int] = MappingProxyType({})


class SnapshotEndedError(Exception):
    """A statement was sent in a snapshot that has ended; the caller must begin again in a longer snapshot."""


class SnapshotDiffersError(SnapshotEndedError):
    """The keyword index was not in the expected state; its state is known now, so the caller can try again at once."""


Lasting = Literal["statement", "last question", "whole"]
"""The minimum life of a snapshot: one statement; up to the statement marked as the last; until its reader returns."""


@dataclass(slots=True)
class Snapshot:
    """A REPEATABLE READ, READ ONLY transaction, in which all statements see one state of the database."""

    _connection: Connection
    # Of the whole transaction; None if its beginning was not pipelined.
    pipeline: psycopg.AsyncPipeline | None = None
    # Ends the transaction's pipeline; None if the transaction must not end before its reader has returned.
    ending: AsyncExitStack | None = None
    has_ended: bool = False
    is_asked: bool = False  # whether a question was sent
    # Of the transaction, as far as they are known.
    settings: Mapping[str, str | int] = field(default_factory=dict)
    # With other readers that go on when their answers arrive.
    turns: Turns | None = None
    # To the question that travelled with the settings; None if it has not been asked.
    answer: psycopg.AsyncCursor[Any] | None = None
    # Where it is, if reads may be on a standby.
    read_from: ReadServer | None = None

    # Whether a single statement is all that it answers.
    is_single: ClassVar[bool] = False

    @property
    def connection(self) -> Connection:
        """The transaction's connection, as long as the transaction has not ended."""
        if self.has_ended:
            raise SnapshotEndedError
        return self._connection

    async def set_up(self, settings: Mapping[str, str | int]) -> None:
        """Set server settings for the rest of the transaction, except those that have these values already."""
        different = {name: value for name, value in settings.items() if self.settings.get(name) != value}
        if different:
            await set_local(self.connection, **different)
            self.settings = {**self.settings, **different}

    async def limit(self, seconds: float | None) -> None:
        """Limit the time of each statement from now on; None changes nothing."""
        if seconds is not None and not self.has_ended:
            await set_local(self._connection, statement_timeout=math.ceil(seconds * 1000))

    async def execute(
        self, text: Query, parameters: Mapping[str, Any], *, is_qualified: bool = False
    ) -> psycopg.AsyncCursor[Any]:
        """Send a statement and return its cursor, which reads binary values and times as UTC."""
        # `is_qualified` means that all its names, operators included, are found whatever the search path is.
        del is_qualified  # the transaction has set the path
        self.is_asked = True
        prepare = is_prepared(self.connection, text)
        return await cursor_with_times(self.connection).execute(text, parameters, prepare=prepare)

    @asynccontextmanager
    async def in_one_go(self, *, is_last: bool = False) -> AsyncIterator[None]:
        """Send the statements of the block at once; at its end, wait for all answers or raise the first failure."""
        # Afterwards the connection is usable as far as its transaction allows. If `is_last`, nothing is asked
        # afterwards, so the transaction may end in the same round trip.
        if self.pipeline is None:
            async with ended_pipeline(self.connection):
                yield
            await self._take_turn()
            return
        # A pipeline inside a pipeline would first wait for all that was sent before: one round trip more.
        try:
            yield
            if is_last and self.ending is not None:
                await self.connection.execute("COMMIT")
                self.has_ended = True
                await self.ending.aclose()
            else:
                await self.pipeline.sync()
        except psycopg.Error:
            if not self._connection.closed and not self.has_ended:
                with suppress(psycopg.Error):  # the rest of the answers
                    await self.pipeline.sync()
            raise
        await self._take_turn()

    async def _take_turn(self) -> None:
        if self.turns is not None:
            await self.turns.take()

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Leave the block without an error if a statement in it exceeds the time limit."""
        # The transaction continues either way, with the settings that it had.
        with suppress(psycopg.errors.QueryCanceled):
            async with self.savepoint():
                yield

    @asynccontextmanager
    async def savepoint(self, *, force_rollback: bool = False) -> AsyncIterator[None]:
        """Undo the block if it fails; the transaction continues with its previous settings and role."""
        connection, pipeline = self.connection, self.pipeline
        if pipeline is None:
            async with connection.transaction(force_rollback=force_rollback):
                yield
            return
        # The driver's own block waits for the server at both ends. These statements travel with others.
        await connection.execute("SAVEPOINT semlex")
        try:
            yield
            if pipeline.result_queue and not self.has_ended:
                await pipeline.sync()  # what was sent and not read may have failed
        except Exception:
            with suppress(psycopg.Error):  # the first error is the one to report
                await pipeline.sync()
                await connection.execute("ROLLBACK TO SAVEPOINT semlex")
                await connection.execute("RELEASE SAVEPOINT semlex")
            raise
        if not self.has_ended:
            if force_rollback:
                await connection.execute("ROLLBACK TO SAVEPOINT semlex")
            await connection.execute("RELEASE SAVEPOINT semlex")


@dataclass(slots=True)
class SingleSnapshot(Snapshot):
    """A snapshot for one statement only, sent without BEGIN and COMMIT in one round trip."""

    # Whatever else is asked, before or afterwards, is refused.

    is_single: ClassVar[bool] = True
    has_ended: bool = True  # for all questions but that of `execute`
    _seconds: float | None = None

    @classmethod
    def possible(cls, connection: Connection) -> bool:
        """Return whether a connection allows such a snapshot: idle, in autocommit mode, with semlex's encodings."""
        return (
            connection.autocommit
            and connection.info.transaction_status == TransactionStatus.IDLE
            and connection.pgconn.pipeline_status == PipelineStatus.OFF
            and knows_settings(connection)
        )

    async def limit(self, seconds: float | None) -> None:
        """Limit the time of the statement."""
        self._seconds = seconds

    async def execute(
        self, text: Query, parameters: Mapping[str, Any], *, is_qualified: bool = False
    ) -> psycopg.AsyncCursor[Any]:
        """Send the only statement, with the settings that it needs, and wait for the answer."""
        if self.is_asked:
            raise SnapshotEndedError
        self.is_asked = True
        settings: dict[str, str | int] = {} if is_qualified else {**READ_SETTINGS}
        if self._seconds is not None:
            settings["statement_timeout"] = math.ceil(self._seconds * 1000)
        cursor, prepare = cursor_with_times(self._connection), is_prepared(self._connection, text)
        # What is sent before a pipeline's end is one transaction, in which settings are local. Even one statement is
        # sent in a pipeline: otherwise the driver releases the interpreter while it wakes the server, and a busy thread
        # takes it before the statement is awaited.
        async with ended_pipeline(self._connection):
            if settings:
                await set_local(self._connection, **settings)
            await cursor.execute(text, parameters, prepare=prepare)
        await self._take_turn()
        return cursor

    @asynccontextmanager
    async def in_one_go(self, *, is_last: bool = False) -> AsyncIterator[None]:
        """Run the block, which sends the only statement; raise `SnapshotEndedError` if `is_last` is false."""
        if not is_last:
            raise SnapshotEndedError
        yield


@asynccontextmanager
async def open_snapshot(
    connection: Connection,
    *,
    role: str | None = None,
    settings: Mapping[str, str | int] = NO_SETTINGS,
    pipelined: bool = True,
    may_end: bool = False,
    turns: Turns | None = None,
    question: tuple[bytes, list[Any]] | None = None,
) -> AsyncIterator[Snapshot]:
    """Open a snapshot in its own transaction; the connection must be outside a transaction."""
    # If pipelined, the server gets BEGIN together with the first statement whose rows are waited for. (The driver's own
    # block of a transaction waits three times, which is longer than a search of words takes.) If `may_end`, the
    # transaction ends with the question that the caller marks as the last. `question` is of one value, and travels with
    # the settings; but not before the driver knows how to encode its values, nor with the rights of another role.
    fixed = {**READ_SETTINGS, **of_role(role), **settings}
    if not (connection.autocommit and pipelined):
        # On a caller's connection the driver begins a transaction automatically before any statement.
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await set_local(connection, **fixed)
            yield Snapshot(connection, settings=settings, turns=turns)
        return
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
    fix_settings: FixSettings = partial(set_local, connection, **fixed)
    if question is not None and role is None and knows_settings(connection):
        fix_settings = partial(_set_and_ask, connection, question, tuple(fixed.items()))
    async with _pipelined(connection, begin, fix_settings) as (pipeline, ending, answer):
        yield Snapshot(connection, pipeline, ending if may_end else None, settings=settings, turns=turns, answer=answer)


async def _set_and_ask(
    connection: Connection, question: tuple[bytes, list[Any]], settings: tuple[tuple[str, str | int], ...]
) -> psycopg.AsyncCursor[Any]:
    text, values = question
    text = asking_calls(text, settings)
    return await connection.execute(text, values, prepare=is_prepared(connection, text))


async def send_transaction(
    send: Callable[[Connection], Awaitable[None]], connection: Connection, *, role: str | None = None
) -> None:
    """Send all statements of a write transaction in one go, on a connection outside a transaction; wait for its end."""
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
    connection: Connection, begin: LiteralString, fix_settings: FixSettings
) -> AsyncIterator[tuple[psycopg.AsyncPipeline, AsyncExitStack, psycopg.AsyncCursor[Any] | None]]:
    """Open a transaction in a pipeline, so that BEGIN is sent together with the first statements."""
    try:
        async with AsyncExitStack() as ending:
            pipeline = await ending.enter_async_context(ended_pipeline(connection))
            await connection.execute(begin)
            answer = await fix_settings()
            if not knows_settings(connection):
                # The driver encodes parameters by what the server reports, which comes with its next answer.
                await pipeline.sync()
            yield pipeline, ending, answer
            if connection.pgconn.pipeline_status != PipelineStatus.OFF:
                await connection.execute("COMMIT")
            elif connection.info.transaction_status != TransactionStatus.IDLE:
                await connection.rollback()  # the last question has failed, and the COMMIT behind it was ignored
    except BaseException:
        if not connection.closed:
            with suppress(psycopg.Error):  # the first error is the one to report
                await connection.rollback()
        raise


@asynccontextmanager
async def ended_pipeline(connection: Connection) -> AsyncIterator[psycopg.AsyncPipeline]:
    """Open a pipeline of the driver; if the block fails, end the pipeline without the driver's log message."""
    # If the pipeline could not be ended, close the connection.
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


class Turns:
    """Lets readers that are ready at the same time continue one by one, in the order in which they became ready."""

    # Without turns, the answers to eight searches that arrive together hold the event loop for eight times as long as
    # one does.

    def __init__(self) -> None:
        self._readers = 0
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Count a reader inside the block; a single one never waits."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    async def take(self) -> None:
        """Wait for this reader's turn, so that only one reader runs in each iteration of the event loop."""
        if self._readers <= 1:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what an earlier loop was to call may never have been called
            self._loop, self._is_taken, self._waiting = loop, False, deque()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._pass_on, loop)
            return
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next reader continue in the next iteration."""
        if loop is not self._loop:
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else it was cancelled
                following.set_result(None)
                loop.call_soon(self._pass_on, loop)
                return
        self._is_taken = False
