"""The state of a server: open client, tokens, metrics, jobs; replaces the client when settings change."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Match

from semlex.clock import SYSTEM, Clock
from semlex.errors import ModelServerError, SemlexError, StoreError
from semlex.retriever.client import Client
from semlex.server.observability import Metrics
from semlex.server.open_client import OpenClient
from semlex.server.tokens import Token, TokenFile, WatchedTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from starlette.types import Scope

    from semlex.server.options import ServeOptions
    from semlex.settings.sources import WatchedSettings
    from semlex.settings.table import Settings

logger = logging.getLogger("semlex.server")

LOOK_SECONDS = 1.0
# If changed settings failed because a server was down, they are tried again after this pause.
REOPEN_SECONDS = 10.0
# Pause before jobs start again after an error.
JOBS_PAUSE_SECONDS = 5.0
# Paths that take as long as a language model writes.
ANSWER_PATHS = frozenset({"/v1/answer", "/query"})


class ServerState:
    """The state that all routes share."""

    def __init__(
        self, options: ServeOptions, source: WatchedSettings, client: Client | None = None, clock: Clock = SYSTEM
    ) -> None:
        self.clock = clock
        self.options, self._source, self._given = options, source, client
        self.metrics = Metrics()
        self._tokens: WatchedTokens | None = None
        self.problems: tuple[str, ...] = ()
        self._opens_again = math.inf  # when settings are opened that could not be before
        self.is_stopping = False
        # Whether each answer is the last one of its connection, whose client then meets another process.
        self.is_retiring = False
        # The files of judgements are written by one request at a time. It is held by the thread that writes: a request
        # whose client leaves ends before its thread.
        self.judging = threading.Lock()
        self.jobs_readiness = "ok"
        self.admitted = 0  # requests that have a place
        self.routes: list[BaseRoute] = []
        self.beside: list[Callable[[], Coroutine[Any, Any, None]]] = []  # work from start to stop
        self._open_client: OpenClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._jobs: asyncio.Task[None] | None = None

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens that are valid now."""
        return () if self._tokens is None else self._tokens.current()

    @property
    def open_client(self) -> OpenClient:
        """The client that serves now; it raises `RuntimeError` before the start."""
        if self._open_client is None:
            raise RuntimeError("the server is not started: run the application with its lifespan")
        return self._open_client

    def take(self) -> OpenClient:
        """Return the client that serves now, counted as in use until `OpenClient.release`."""
        open_client = self.open_client
        open_client.users += 1
        return open_client

    @contextmanager
    def lent(self) -> Iterator[OpenClient]:
        """Lend the client that serves now; it stays open while it is lent."""
        open_client = self.take()
        try:
            yield open_client
        finally:
            open_client.release()

    def route_of(self, scope: Scope) -> BaseRoute | None:
        """Return the route of a request that was refused before routing; None for an unknown path."""
        return next((route for route in self.routes if route.matches(scope)[0] is not Match.NONE), None)

    def seconds_of(self, path: str) -> float:
        """Return the seconds that a request on a path may take."""
        return self.options.answer_seconds if path in ANSWER_PATHS else self.options.seconds

    async def start(self) -> None:
        """Open the client, and start to watch the settings' files."""
        if self.options.token_file is not None:
            file = TokenFile(self.options.token_file)
            self._tokens = WatchedTokens(file, lambda: self.metrics.reloads.update({"refused": 1}))
        if self._given is None:
            self._open_client = await self._opened(self._source.settings)
        else:
            self._open_client = OpenClient(self._given, self._source.settings)
            await self._open_client.warm()
        for work in self.beside:
            self._begin(work())
        self._begin(self._keep_looking())
        self._begin_jobs()

    async def stop(self) -> None:
        """Give jobs back to the queue, wait for requests, and close the client."""
        self.is_stopping = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        open_client, self._open_client = self._open_client, None
        if open_client is not None and self._given is None:
            await open_client.client.stop_builds()
            await open_client.client.close()

    async def reload(self, *, is_again: bool = False) -> bool:
        """Read the settings again; return whether the new ones are used. Requests in progress end with the old ones."""
        read = await asyncio.to_thread(self._source.reload)
        problems, self._opens_again = read.problems, math.inf
        if not problems and self._given is None:
            try:
                open_client = await self._opened(read.settings)
            except SemlexError as error:
                problems = (str(error),)
                if isinstance(error, (StoreError, ModelServerError)):
                    self._opens_again = self.clock.monotonic() + REOPEN_SECONDS
            except Exception:
                logger.exception("the changed settings cannot be used")
                problems = ("an unexpected error; see above",)
            else:
                old, self._open_client = self._open_client, open_client
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

    async def _opened(self, settings: Settings) -> OpenClient:
        """Open a client with the settings; raise its problem if the client in use does not have it."""
        client = Client(
            **settings.client_options,
            max_connections=self.options.database_connections,
            role=self.options.role,
            search_defaults=settings.search_options,
        )
        try:
            await client.initialize()
            open_client = OpenClient(client, settings)
            await open_client.warm()
            if self._open_client is not None:
                open_client.check_beside(self._open_client)
        except BaseException:
            await client.close()
            raise
        return open_client

    async def look_at_settings(self) -> None:
        """Read the settings again if one of their files has changed, or if the database or a model server was down."""
        if await asyncio.to_thread(self._source.has_changed):
            await self.reload()
        elif self.clock.monotonic() >= self._opens_again:
            await self.reload(is_again=True)

    async def _keep_looking(self) -> None:
        """Check the settings every second; log an error and continue."""
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            try:
                await self.look_at_settings()
            except Exception:
                logger.exception("the settings files could not be checked for changes; semlex tries again")

    def _begin_jobs(self) -> None:
        if self._jobs is not None:
            self._jobs.cancel()
        if self.options.jobs:
            self._jobs = self._begin(self._work())

    async def _work(self) -> None:
        """Run jobs; if an error ends that, log it and start again after a pause."""
        open_client, task = self.take(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs has a task
        try:
            while True:
                settled = self.clock.call_later(JOBS_PAUSE_SECONDS, setattr, self, "jobs_readiness", "ok")
                try:
                    await open_client.client.work(
                        concurrency=self.options.jobs,
                        allow=self.options.allow,
                        tell=lambda line: logger.info("%s", line),
                    )
                except Exception:
                    if task.cancelling():
                        raise
                    self.jobs_readiness = "stopped by an error and started again after a pause; see the log"
                    logger.exception("jobs stopped by an error; they start again in %g s", JOBS_PAUSE_SECONDS)
                finally:
                    settled.cancel()
                await self.clock.sleep(JOBS_PAUSE_SECONDS)
        finally:
            open_client.release()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
