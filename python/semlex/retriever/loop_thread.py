"""An event loop in its own thread, for synchronous objects: opening, closing, forks, exit."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from semlex.errors import ConfigurationError, SemlexError, WorkAbandonedError
from semlex.forks import drop, renew_after_fork
from semlex.retriever.base import CLOSED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

P = ParamSpec("P")
T = TypeVar("T")
CLOSED_MEANWHILE = (
    "another thread closed the retriever while this call was running; what a batch had committed is stored"
)


class LoopThread:
    """An event loop in its own thread; other threads submit calls and wait for them."""

    def __init__(self) -> None:
        # Made by a factory, it does not become the current loop of the thread that makes it.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._closing = False
        # Held while a call is handed over: none arrives after the last that is answered.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="semlex-loop", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where waiting for a call would be waiting for itself."""
        return threading.current_thread() is self._thread

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls an asynchronous method and waits for it."""
        future = self._submit(method, *arguments, **options)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise WorkAbandonedError(CLOSED_MEANWHILE) from None
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: stop the work, too
            raise

    async def awaited(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """The same for a caller in another event loop, which goes on meanwhile."""
        future = asyncio.wrap_future(self._submit(method, *arguments, **options))
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the caller was cancelled, and with it the call
            raise WorkAbandonedError(CLOSED_MEANWHILE) from None

    def _submit(
        self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> concurrent.futures.Future[T]:
        async def call() -> T:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine that runs has a task
            self._calls.add(task)
            try:
                return await method(*arguments, **options)
            finally:
                self._calls.discard(task)

        with self._lock:
            if self._closing:
                raise WorkAbandonedError("the retriever was closed meanwhile, by another thread: open it again")
            return asyncio.run_coroutine_threadsafe(call(), self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Ends all calls, runs a last one, and stops the thread with everything that the loop still has."""
        with self._lock:
            closing, self._closing = self._closing, True
            future = None if closing else asyncio.run_coroutine_threadsafe(self._finish(last), self._loop)
        try:
            if future is not None:
                future.result()
        finally:
            if future is not None:
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if last is not None:
            await last()

    def _serve(self) -> None:
        # Its end cancels what is left, closes asynchronous generators and waits for the loop's own threads.
        with self._runner:
            self._runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        await self._end.wait()


class Opened(Protocol):
    """What is opened and closed on the loop."""

    async def initialize(self) -> None:
        """Opens it; does nothing when it is open."""

    async def close(self) -> None:
        """Closes it."""


class LoopRunner:
    """Runs the calls of one asynchronous client or retriever, from any thread."""

    def __init__(self, inner: Opened) -> None:
        self._inner = inner
        self._loop: LoopThread | None = None
        self._is_open = self._is_closed = False
        self._failure: BaseException | None = None  # of the last attempt to open
        self._changing = threading.Lock()  # held while it is opened or closed
        renew_after_fork(self)

    def initialize(self) -> None:
        """Opens the loop and what runs on it; does nothing when that has been done. After `close` it opens again.

        Who waits for another thread's attempt has its failure, too: many that ask a server which is away wait once.
        """
        self._refuse_own_thread()
        known = self._failure
        with self._changing:
            if self._is_open:
                return
            if self._failure is not None and self._failure is not known:
                raise self._failure
            self._loop = loop = LoopThread()
            try:
                loop.run(self._inner.initialize)
            except BaseException as error:
                self._failure = error if isinstance(error, SemlexError) else None
                self._loop = None
                loop.close()
                raise
            self._is_open, self._is_closed, self._failure = True, False, None
            _open.add(self)

    def close(self) -> None:
        """Closes what runs on the loop, and the loop; calls of other threads end with a `WorkAbandonedError`."""
        self._refuse_own_thread()
        loop = self._loop
        try:
            if loop is not None:
                loop.close(self._inner.close)
        finally:
            with self._changing:
                self._is_open, self._is_closed, self._failure = False, True, None
                if self._loop is loop:
                    self._loop = None
                _open.discard(self)

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Calls an asynchronous method and waits for it; the first call opens it."""
        return self._running().run(method, *arguments, **options)

    async def awaited(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """The same for a caller in another event loop, which goes on meanwhile; the errors are those of `run`."""
        return await self._running().awaited(method, *arguments, **options)

    def _running(self) -> LoopThread:
        self._refuse_own_thread()
        if not self._is_open and not self._is_closed:
            self.initialize()
        loop = self._loop
        if loop is None or not self._is_open:
            raise ConfigurationError(CLOSED)
        return loop

    def iterate(
        self, method: Callable[P, AsyncGenerator[T, None]], *arguments: P.args, **options: P.kwargs
    ) -> Generator[T, None, None]:
        """What an asynchronous iteration gives, one after another; ending this one ends that one."""
        stream = method(*arguments, **options)
        ended = object()
        turn = asyncio.Lock()  # a call that is interrupted may take a moment to end

        async def following() -> T | object:
            async with turn:
                return await anext(stream, ended)

        async def end() -> None:
            async with turn:
                await stream.aclose()

        try:
            while (one := self.run(following)) is not ended:
                yield cast("T", one)
        finally:
            if self._is_open:
                self.run(end)

    def _refuse_own_thread(self) -> None:
        if self._loop is not None and self._loop.is_current:
            raise ConfigurationError(
                "a call inside a call of the same object (in a progress callback?) would wait for itself: note what it "
                "needs, and make it when the outer call has returned, or use a second one"
            )

    def _after_fork(self) -> None:
        drop(self._loop)
        self._loop, self._is_open, self._failure = None, False, None
        self._changing = threading.Lock()
        _open.discard(self)

    def __reduce__(self) -> str:
        raise ConfigurationError(
            "a retriever or client cannot be sent to another process: make it there, with the same arguments (a "
            "process that is forked after it was made can use it as it is)"
        )


# What is open lives until it is closed: collected earlier, it would end under the hands of its loop.
_open: set[LoopRunner] = set()


@atexit.register
def _stop_all() -> None:
    """Ends the loops of what was left open, so that their tasks do not end in the middle of something."""
    for runner in list(_open):
        if runner._loop is not None:  # noqa: SLF001 - of this module
            runner._loop.close()  # noqa: SLF001
