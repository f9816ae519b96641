"""A clock that stands still until a test advances it, so that no limit of the product depends on the machine."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from semlex.clock import Clock, Waitable
from tests.support.waiting import LIMIT, PAUSE, eventually, until

T = TypeVar("T")


@dataclass(eq=False)
class Timer:
    """A call that is due at a time; it can be cancelled as an `asyncio.TimerHandle`."""

    when: float
    timers: set[Timer]
    loop: asyncio.AbstractEventLoop
    call: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self.timers.discard(self)

    def ring(self) -> None:
        if not self.is_cancelled:
            self.call()


class ManualClock(Clock):
    """Time passes only by `advance`, from any thread. Whatever has waited long enough then goes on."""

    def __init__(self) -> None:
        self._now = 1_000.0
        self._timers: set[Timer] = set()
        self._ends_of_threads: list[float] = []

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        self._now += seconds
        for timer in sorted(self._timers.copy(), key=lambda timer: timer.when):
            if timer.when <= self._now:
                self._timers.discard(timer)
                if not timer.loop.is_closed():
                    timer.loop.call_soon_threadsafe(timer.ring)

    @contextmanager
    def passing(self, seconds: float) -> Iterator[None]:
        """Lets time pass again and again, by so many seconds, until the block ends: something in it must expire."""
        ended = threading.Event()

        def pass_on() -> None:
            while not ended.wait(PAUSE):
                self.advance(seconds)

        thread = threading.Thread(target=pass_on)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @property
    def waits(self) -> list[float]:
        """For how many seconds each of those that wait goes on waiting, the shortest first."""
        ends = [*(timer.when for timer in self._timers.copy()), *self._ends_of_threads]
        return sorted(round(end - self._now, 6) for end in ends)

    def until_waited(self, seconds: float) -> None:
        """Waits until somebody waits for so many seconds."""
        until(lambda: seconds in self.waits, f"a wait for {seconds:g} s")

    async def eventually_waited(self, seconds: float) -> None:
        """As `until_waited`, on an event loop."""
        await eventually(lambda: seconds in self.waits, f"a wait for {seconds:g} s")

    async def passes_until(self, condition: Callable[[], Any], seconds: float = 1) -> None:
        """Lets so many seconds pass again and again, until a condition is true."""
        what = inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)
        await eventually(lambda: condition() or self.advance(seconds), what)

    async def expire(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Begins some work, and lets so many seconds pass as soon as something in it waits for so long."""
        task = asyncio.create_task(work)
        await self.eventually_waited(seconds)
        self.advance(seconds)
        return await task

    # --- as any clock -------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def wait(self, event: Waitable, seconds: float) -> bool:
        end, machine_end = self._now + seconds, time.monotonic() + LIMIT
        self._ends_of_threads.append(end)
        try:
            while not (is_set := event.wait(PAUSE)) and self._now < end:
                assert time.monotonic() < machine_end, f"nobody has let {seconds:g} s pass"
        finally:
            self._ends_of_threads.remove(end)
        return is_set

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
        async with asyncio.timeout(None) as timeout:
            if seconds is None:
                yield timeout
                return
            timer = self.call_later(seconds, lambda: timeout.reschedule(timer.loop.time()))
            try:
                yield timeout
            finally:
                timer.cancel()

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Any:
        timer = Timer(self._now + seconds, self._timers, asyncio.get_running_loop(), lambda: call(*arguments))
        if seconds > 0:
            self._timers.add(timer)
        else:
            timer.loop.call_soon(timer.ring)
        return timer
