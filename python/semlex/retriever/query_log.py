"""Writes the questions of a client into its collections' query logs, without delaying answers."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from semlex.clock import SYSTEM, Clock
from semlex.errors import CollectionNotFoundError, PrivilegeError, ReadOnlyError, SemlexError, StoreError
from semlex.store.query_log import PRUNED_ROWS, Question, hash_of, write_questions
from semlex.types.documents import utc_now
from semlex.types.query_log import QueryLogFigures, QueryLogOptions

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator, Sequence

    from semlex.search.request import Request
    from semlex.store.postgres.connection import Connection
    from semlex.store.postgres.database import Database
    from semlex.store.schema.collection import CollectionInfo
    from semlex.types.results import SearchResults

    _Key = tuple[uuid.UUID, str | None]

logger = logging.getLogger("semlex")

# Questions that wait in memory, of all collections of a client; more are dropped and counted.
MAX_WAITING = 1_000
# Questions are written together, so long after the first of them was asked.
PAUSE_SECONDS = 1.0
# Closing waits no longer for the last ones.
CLOSE_SECONDS = 5.0
# Between two attempts while another process writes into the same log.
TURN_SECONDS, TURNS = 0.05, 40

_is_logged: ContextVar[bool] = ContextVar("semlex_query_log", default=True)


@contextmanager
def without_query_log() -> Iterator[None]:
    """Do not log the questions of searches inside this context, for example of measurements."""
    token = _is_logged.set(False)
    try:
        yield
    finally:
        _is_logged.reset(token)


@dataclass(slots=True)
class _Log:
    """The state of one collection's log for one role.

    Attributes:
        under_way: How many questions are being written; they count as waiting.
        logged: As `QueryLogFigures`.
        dropped: As `QueryLogFigures`.
        lost: As `QueryLogFigures`.
        problem: As `QueryLogFigures`.
        is_off: Whether logging stopped because this role may not write or the collection is gone.
        is_told: Whether a warning has been given.
    """

    under_way: int = 0
    logged: int = 0
    dropped: int = 0
    lost: int = 0
    problem: str | None = None
    is_off: bool = False
    is_told: bool = False


class _Place(NamedTuple):
    """The collection that was searched, and the database with the rights of the role that searched."""

    database: Database
    info: CollectionInfo

    @property
    def key(self) -> _Key:
        return self.info.collection_id, self.database.role


# A task writes and not the search: on a standby, in a caller's transaction or within a deadline no search may write.
class QueryLog:
    """Collects questions in memory, and writes them from a separate task.

    A search never waits for the log and never fails because of it. Questions beyond the limit in memory are dropped,
    and those that cannot be written are lost; both are counted, and the first loss logs a warning.
    """

    def __init__(self, options: QueryLogOptions, clock: Clock = SYSTEM) -> None:
        self.options = options
        self.clock = clock
        self._waiting: deque[tuple[_Place, Question]] = deque()
        self._logs: defaultdict[_Key, _Log] = defaultdict(_Log)
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(
        self, database: Database, info: CollectionInfo, requests: Sequence[Request], found: Sequence[SearchResults]
    ) -> None:
        """Note questions and how many hits each had; a query that is only a vector has no text to note."""
        if self.options.keep == "off" or not _is_logged.get():
            return
        place = _Place(database, info)
        log = self._logs[place.key]
        if log.is_off:
            return
        if info.server.read_only or database.joins_transaction:
            joined = "the connection is the caller's, and the log would become part of the caller's transaction"
            self._warn(place, "the server accepts no writes" if info.server.read_only else joined, stop=True)
            return
        now = utc_now()
        for request, results in zip(requests, found, strict=True):
            if request.text is None:
                continue
            if len(self._waiting) >= MAX_WAITING:
                log.dropped += 1
                self._warn(place, f"{MAX_WAITING:,} questions already wait to be written; further ones are dropped")
                continue
            text = request.text if self.options.keep == "text" else None
            filtered = not request.condition.is_empty
            now += timedelta(microseconds=1)  # in the order in which they were asked
            question = Question(now, hash_of(info, request.text), text, results.mode, filtered, len(results))
            self._waiting.append((place, question))
        self._running()

    def _running(self) -> asyncio.Task[None] | None:
        """Return the task that writes questions, and start it if needed; None if no questions wait."""
        loop, task = asyncio.get_running_loop(), self._task
        if task is not None and (task.done() or task.get_loop() is not loop):
            task = None  # ended with its loop, perhaps
        if task is None and self._waiting:
            self._hurry = asyncio.Event()
            # Nothing of the search is inherited: neither what cancels it nor what guards its writes.
            task = loop.create_task(self._drain(), context=Context())
        self._task = task
        return task

    def figures(self, role: str | None, info: CollectionInfo) -> QueryLogFigures | None:
        """Return this process's counts of a collection's logged, waiting and lost questions; None if logging is off."""
        if self.options.keep == "off":
            return None
        key = info.collection_id, role
        log = self._logs.get(key, _Log())
        waiting = log.under_way + sum(place.key == key for place, _ in self._waiting)
        return QueryLogFigures(self.options.keep, log.logged, waiting, log.dropped, log.lost, log.problem)

    async def flush(self) -> None:
        """Write the waiting questions; those that are not written within a few seconds are lost."""
        task, self._task = self._running(), None
        if task is None:
            return
        self._hurry.set()
        await self.clock.wait_for_tasks({task}, CLOSE_SECONDS)
        if not task.done():
            task.cancel()
            await self.clock.wait_for_tasks({task}, CLOSE_SECONDS)
        while self._waiting:
            place, _ = self._waiting.popleft()
            self._warn(place, f"they could not be written within {CLOSE_SECONDS:g} s of closing", lost=1)

    def forget(self) -> None:
        """Forget the waiting questions in a forked child; its parent writes them."""
        self._waiting.clear()
        self._task = None

    async def _drain(self) -> None:
        while self._waiting:
            try:
                async with self.clock.timeout(PAUSE_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            await self._write()

    async def _write(self) -> None:
        """Write the questions that wait now, one collection after the other."""
        for place in {place.key: place for place, _ in self._waiting}.values():
            questions = self._taken(place)
            log = self._logs[place.key]
            log.under_way = len(questions)
            try:
                await self._write_one(place, questions)
            except (PrivilegeError, ReadOnlyError, CollectionNotFoundError) as error:
                self._warn(place, str(error), lost=len(questions), stop=True)
            except asyncio.CancelledError:
                self._waiting.extendleft((place, question) for question in reversed(questions))  # `flush` counts them
                raise
            except SemlexError as error:
                self._warn(place, str(error), lost=len(questions))
            except Exception as error:  # noqa: BLE001 (no search and no closing fails by its log)
                self._warn(place, f"{type(error).__name__}, which is a defect of semlex", lost=len(questions))
            else:
                log.logged += len(questions)
                log.problem = None
            finally:
                log.under_way = 0

    def _taken(self, place: _Place) -> list[Question]:
        """Take the waiting questions of a collection and role out of the queue."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._waiting.extend(one for one in waiting if one[0].key != place.key)
        return [question for other, question in waiting if other.key == place.key]

    async def _write_one(self, place: _Place, questions: Sequence[Question]) -> None:
        options, left = self.options, questions
        oldest = utc_now() - timedelta(days=options.max_days)

        async def work(connection: Connection) -> int | None:
            return await write_questions(connection, place.info, left, max_rows=options.max_rows, oldest=oldest)

        for _ in range(TURNS):
            deleted = await place.database.write("log questions", work)
            if deleted is None:
                await self.clock.sleep(TURN_SECONDS)
                continue
            left = ()
            if deleted < PRUNED_ROWS:
                return
        if left:
            raise StoreError("other processes held the log during every attempt to write")

    def _warn(self, place: _Place, why: str, *, lost: int = 0, stop: bool = False) -> None:
        """Count lost questions and say why they are not logged: as a warning the first time; `stop` ends logging."""
        log = self._logs[place.key]
        log.lost += lost
        log.is_off |= stop
        level, log.is_told, log.problem = logging.INFO if log.is_told else logging.WARNING, True, why
        logger.log(level, "questions to collection %r are not logged: %s", place.info.names.collection, why)
