"""What the server holds: an open client, the tokens, the figures; and how they are replaced while it runs."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from starlette.routing import Match

from semlex.clock import SYSTEM, Clock
from semlex.errors import (
    CollectionNotFoundError,
    EmbeddingsMissingError,
    ModelServerError,
    SemlexError,
    StoreError,
)
from semlex.retriever.client import Client
from semlex.retriever.configured.search_defaults import SearchDefaults
from semlex.retriever.curve_file import read_curve
from semlex.retriever.models.served import open_with_models
from semlex.server.observability import Metrics
from semlex.server.options import client_options
from semlex.server.tokens import Token, TokenFile, WatchedTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path
    from typing import Any

    from starlette.routing import BaseRoute
    from starlette.types import Scope

    from semlex.retriever.collection import Collection
    from semlex.server.options import ServeOptions
    from semlex.settings.table import Settings

logger = logging.getLogger("semlex.server")

LOOK_SECONDS = 1.0
# Before settings are opened again that could not be because a server was away.
REOPEN_SECONDS = 10.0
# Before jobs are begun again after an error.
JOBS_PAUSE_SECONDS = 5.0
# Paths whose work goes on for as long as a language model writes.
ANSWER_PATHS = frozenset({"/v1/answer", "/query"})
WARM_QUESTION = "warm"


class Reloaded(Protocol):
    """What became of reading the settings again."""

    @property
    def settings(self) -> Settings:
        """Those that hold now."""
        ...

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the new ones; empty when they hold."""
        ...


class SettingsSource(Protocol):
    """Settings that can be read again, as `semlex.settings.load.WatchedSettings`."""

    @property
    def settings(self) -> Settings:
        """Those that hold."""
        ...

    def has_changed(self) -> bool:
        """Whether a file has appeared, gone or been written since."""
        ...

    def reload(self) -> Reloaded:
        """Reads them again; what is wrong leaves the old ones in force."""
        ...


class Lease:
    """An open client with its settings, for as long as requests use it."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client, self.settings = client, settings
        self.users = 0
        self.readiness = "not asked yet"
        self.problem: SemlexError | None = None
        self._known: set[str] = set()
        self._retired: asyncio.Event | None = None

    async def collection(self, name: str, *, create: bool = False) -> Collection:
        """A collection by its name. Names that nobody has given to a collection leave no trace in memory."""
        if name not in self._known:
            self._known = {listed.name for listed in await self.client.collections()}
            if name not in self._known and not create:
                raise CollectionNotFoundError(f"there is no collection {name!r}")
        return self._opened(name, create=create)

    def _opened(self, name: str, *, create: bool = False) -> Collection:
        return self.client.collection(name, create=create, calibration=self.settings.calibration_of(name))

    def forget(self, name: str) -> None:
        """Notes that a collection is gone."""
        self._known.discard(name)

    async def warm(self) -> None:
        """Opens what the settings name: the collection, where it is there, the models, the calibration.

        `problem` says then what cannot be opened.
        """
        try:
            if self.settings.calibration is not None:
                await asyncio.to_thread(read_curve, self.settings.calibration)
            collection = self._opened(self.settings.collection)
            await open_with_models(collection)
            # It embeds and asks as a search does, and stands in no query log.
            await collection.facets(["@source"], query=WARM_QUESTION, candidates=1, limit=1)
            self.readiness = "ok"
        except CollectionNotFoundError:
            self.readiness = "no collection to open yet"
        except SemlexError as error:
            self.readiness = "something that searches or answers use cannot be opened; see the log"
            # That there are no vectors yet is the collection's state, and no fault of settings.
            self.problem = None if isinstance(error, EmbeddingsMissingError) else error
            logger.warning("collection %r is not ready: %s", self.settings.collection, error)

    def check_beside(self, serving: Lease) -> None:
        """Refuses to take over where something cannot be opened, unless that is so with what serves now."""
        if self.problem is not None and str(self.problem) != str(serving.problem):
            raise self.problem

    def release(self) -> None:
        """Ends one use."""
        self.users -= 1
        if not self.users and self._retired is not None:
            self._retired.set()

    async def retire(self) -> None:
        """Closes the client when nobody uses it any more."""
        self._retired = asyncio.Event()
        try:
            if self.users:
                await self._retired.wait()
        finally:
            await self.client.close()


class ServerState:
    """What all routes share."""

    def __init__(
        self, options: ServeOptions, source: SettingsSource, client: Client | None = None, clock: Clock = SYSTEM
    ) -> None:
        self.clock = clock
        self.options, self._source, self._given = options, source, client
        self.metrics = Metrics()
        self._tokens: WatchedTokens | None = None
        self.problems: tuple[str, ...] = ()
        self._opens_again = math.inf  # when settings are opened that could not be before
        self.is_stopping = False
        # The files of judgements are written by one request at a time. It is held by the thread that writes: a request
        # whose client leaves ends before its thread.
        self.judging = threading.Lock()
        self.jobs_readiness = "ok"
        self.admitted = 0  # requests that have a place
        self.routes: list[BaseRoute] = []
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []  # work from start to stop
        self._lease: Lease | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs: asyncio.Task[None] | None = None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Those that hold now."""
        return () if self._tokens is None else self._tokens.current()

    @property
    def lease(self) -> Lease:
        """The client that serves now."""
        if self._lease is None:
            raise RuntimeError("the server is not started: run the application with its lifespan")
        return self._lease

    def take(self) -> Lease:
        """The client that serves now, in use from now on; `Lease.release` ends that."""
        lease = self.lease
        lease.users += 1
        return lease

    @contextmanager
    def lent(self) -> Iterator[Client]:
        """The client that serves now, for as long as somebody uses it."""
        lease = self.take()
        try:
            yield lease.client
        finally:
            lease.release()

    def calibration_of(self, name: str) -> Path | None:
        """The file of a collection's calibration, as the settings that hold now say."""
        return self.lease.settings.calibration_of(name)

    async def gauges(self) -> dict[str, float]:
        """What is measured now, by name."""
        pool = await self.lease.client.pool_figures()
        return {f"pool_{name}": float(value) for name, value in pool.items()}

    def route_of(self, scope: Scope) -> BaseRoute | None:
        """The route of a request that was refused before it was looked for; None if the path is none."""
        return next((route for route in self.routes if route.matches(scope)[0] is not Match.NONE), None)

    def seconds_of(self, path: str) -> float:
        """Time for a request on a path."""
        return self.options.answer_seconds if path in ANSWER_PATHS else self.options.seconds

    async def start(self) -> None:
        """Opens the client, and begins to look for changes."""
        if self.options.token_file is not None:
            file = TokenFile(self.options.token_file)
            self._tokens = WatchedTokens(file, lambda: self.metrics.reloads.update({"refused": 1}))
        if self._given is None:
            self._lease = await self._opened(self._source.settings)
        else:
            self._lease = Lease(self._given, self._source.settings)
            await self._lease.warm()
        for work in self.beside:
            self._begin(work())
        self._begin(self._keep_looking())
        self._begin_jobs()

    async def stop(self) -> None:
        """Hands back jobs, waits for what is in use, and closes the client."""
        self.is_stopping = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        lease, self._lease = self._lease, None
        if lease is not None and self._given is None:
            await lease.client.close()

    async def reload(self, *, is_again: bool = False) -> bool:
        """Reads the settings again; returns whether the new ones serve. Requests in progress end with the old ones."""
        read = await asyncio.to_thread(self._source.reload)
        problems, self._opens_again = read.problems, math.inf
        if not problems and self._given is None:
            try:
                lease = await self._opened(read.settings)
            except SemlexError as error:
                problems = (str(error),)
                if isinstance(error, (StoreError, ModelServerError)):
                    self._opens_again = self.clock.monotonic() + REOPEN_SECONDS
            except Exception:
                logger.exception("the changed settings cannot be used")
                problems = ("an error that is none of semlex's own; see above",)
            else:
                old, self._lease = self._lease, lease
                if old is not None:
                    self._begin(old.retire())
                self._begin_jobs()
        is_told = is_again and problems == self.problems
        self.problems = problems
        if is_told:
            return False
        self.metrics.reloads["refused" if problems else "ok"] += 1
        for problem in problems:
            logger.error("the changed settings are not used: %s", problem)
        if not problems:
            logger.info("the settings were read again")
        return not problems

    async def _opened(self, settings: Settings) -> Lease:
        """A client of the settings, which can do no less than the one that serves."""
        given = client_options(settings.retriever_options, self.options)
        client = Client(**given, search_defaults=SearchDefaults(**settings.search_options))
        try:
            await client.initialize()
            lease = Lease(client, settings)
            await lease.warm()
            if self._lease is not None:
                lease.check_beside(self._lease)
        except BaseException:
            await client.close()
            raise
        return lease

    async def look_at_settings(self) -> None:
        """Reads the settings again where a file of theirs has changed, or a server was away when they were opened."""
        if await asyncio.to_thread(self._source.has_changed):
            await self.reload()
        elif self.clock.monotonic() >= self._opens_again:
            await self.reload(is_again=True)

    async def _keep_looking(self) -> None:
        """Look at the settings every second; log an error, and look again."""
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            try:
                await self.look_at_settings()
            except Exception:
                logger.exception("changed files could not be looked at; they are looked at again")

    def _begin_jobs(self) -> None:
        """Does jobs with the client that serves now, where this process does any."""
        if self._jobs is not None:
            self._jobs.cancel()
        if self.options.jobs:
            self._jobs = self._begin(self._work())

    async def _work(self) -> None:
        """Does jobs. What ends that is told, and they are begun again after a pause."""
        lease, task = self.take(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        try:
            while True:
                settled = self.clock.call_later(JOBS_PAUSE_SECONDS, setattr, self, "jobs_readiness", "ok")
                try:
                    await lease.client.work(
                        concurrency=self.options.jobs,
                        allow=self.options.allow,
                        tell=lambda line: logger.info("%s", line),
                    )
                except Exception:
                    if task.cancelling():
                        raise
                    self.jobs_readiness = "an error has ended them, and they are begun again; see the log"
                    logger.exception("no jobs are done; they are begun again in %g s", JOBS_PAUSE_SECONDS)
                finally:
                    settled.cancel()
                await self.clock.sleep(JOBS_PAUSE_SECONDS)
        finally:
            lease.release()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
