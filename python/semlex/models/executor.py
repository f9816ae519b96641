"""Runs blocking model calls on dedicated threads, and cancels them when their caller is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from semlex.models.cancellation import Flag, abandoned_by, check

T = TypeVar("T")


class ModelExecutor:
    """Runs blocking functions of models on threads, never on the event loop."""

    def __init__(self) -> None:
        # A local model uses every core and alternates between the batches of both threads, so that a search does not
        # wait for a load.
        self._queries = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-queries")
        self._documents = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-documents")
        # By the model's id(); the model is kept beside, so that no other one gets its id.
        self._of_models: dict[int, tuple[object, ThreadPoolExecutor]] = {}
        self._running: set[Flag] = set()
        self._closed = False

    async def query(self, function: Callable[..., T], *arguments: object, model: object = None) -> T:
        """Run a function on the threads for searches and return its result; if cancelled, stop the function's work."""
        return await self._run(self._executor_of(model), function, *arguments)

    async def documents(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function as `query` does, but on the thread for loads of documents."""
        return await self._run(self._documents, function, *arguments)

    @contextmanager
    def several(self, threads: int) -> Iterator[Callable[..., Coroutine[Any, Any, T]]]:
        """Provide a runner with its own threads, for functions that mostly wait for a server."""
        executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="semlex-several")
        try:
            yield partial(self._run, executor)
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End running work before its next step, without waiting for it, and refuse further calls."""
        for flag in list(self._running):
            flag.set()
        self._closed = True
        for executor in (self._queries, self._documents, *(executor for _, executor in self._of_models.values())):
            executor.shutdown(wait=False, cancel_futures=True)

    # A model on a server has more threads for queries.
    def _executor_of(self, model: object) -> ThreadPoolExecutor:
        threads = getattr(model, "calls_at_once", 1)
        if threads == 1 or self._closed:
            return self._queries
        if id(model) not in self._of_models:
            executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="semlex-queries")
            self._of_models[id(model)] = (model, executor)
        return self._of_models[id(model)][1]

    # If the caller is cancelled, its call ends before the next batch or request.
    async def _run(self, executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
        flag = Flag()

        def work() -> T:
            with abandoned_by(flag):
                check()
                return function(*arguments)

        # Tracing and the like travel in context variables.
        context = contextvars.copy_context()
        self._running.add(flag)
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, context.run, work)
        except asyncio.CancelledError:
            flag.set()
            raise
        finally:
            self._running.discard(flag)
