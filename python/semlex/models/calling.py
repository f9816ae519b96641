"""Calls blocking models from an event loop: on threads of their own, and not for longer than somebody waits."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from semlex.models.interruption import abandoned_by, check

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class ModelCaller:
    """Runs blocking functions of models, never on the event loop.

    Queries and documents have one thread each: a model uses every core by itself, and takes turns between the batches
    of both, so that a search does not wait for a load to end. A call whose caller is cancelled ends before its next
    batch (or request to a server), and one that has not begun never begins.
    """

    def __init__(self) -> None:
        self._queries = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-queries")
        self._documents = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semlex-documents")
        self._running: set[threading.Event] = set()

    async def query(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function that a search waits for.

        Args:
            function: Blocking.
            *arguments: Its arguments.

        Returns:
            What it returns.
        """
        return await self._run(self._queries, function, *arguments)

    async def documents(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a function of a load; the arguments are those of `query`."""
        return await self._run(self._documents, function, *arguments)

    def close(self) -> None:
        """Ends what runs before its next step, and takes no further calls; does not wait."""
        for flag in list(self._running):
            flag.set()
        for executor in (self._queries, self._documents):
            executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self, executor: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
        flag = threading.Event()

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
