"""A clock that stands still until a test advances it, so that no limit of the product depends on the machine."""

import asyncio
import inspect
import threading
import time
from contextlib import asynccontextmanager, contextmanager

from semlex.clock import Clock
from tests.support.waiting import LIMIT, PAUSE, eventually, until


class Timer:
    """A call that is due at a time; it can be cancelled as an `asyncio.TimerHandle`."""

    def __init__(self, when, timers, call):
        self.when, self.timers, self.call = when, timers, call
        self.loop, self.is_cancelled = asyncio.get_running_loop(), False

    def cancel(self):
        self.is_cancelled = True
        self.timers.discard(self)

    def ring(self):
        if not self.is_cancelled:
            self.call()


class ManualClock(Clock):
    """Time passes only by `advance`, from any thread. Whatever has waited long enough then goes on."""

    def __init__(self):
        self._now, self._timers, self._ends_of_threads = 1_000.0, set(), []

    def advance(self, seconds):
        self._now += seconds
        for timer in sorted(self._timers.copy(), key=lambda timer: timer.when):
            if timer.when <= self._now:
                self._timers.discard(timer)
                if not timer.loop.is_closed():
                    timer.loop.call_soon_threadsafe(timer.ring)

    @contextmanager
    def passing(self, seconds):
        """Lets time pass again and again, by so many seconds, until the block ends: something in it must expire."""
        ended = threading.Event()

        def pass_on():
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
    def waits(self):
        """For how many seconds each of those that wait goes on waiting, the shortest first."""
        ends = [*(timer.when for timer in self._timers.copy()), *self._ends_of_threads]
        return sorted(round(end - self._now, 6) for end in ends)

    def until_waited(self, seconds):
        """Waits until somebody waits for so many seconds."""
        until(lambda: seconds in self.waits, f"a wait for {seconds:g} s")

    async def eventually_waited(self, seconds):
        """As `until_waited`, on an event loop."""
        await eventually(lambda: seconds in self.waits, f"a wait for {seconds:g} s")

    async def passes_until(self, condition, seconds=1):
        """Lets so many seconds pass again and again, until a condition is true."""
        what = inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)
        await eventually(lambda: condition() or self.advance(seconds), what)

    async def expire(self, seconds, work):
        """Begins some work, and lets so many seconds pass as soon as something in it waits for so long."""
        task = asyncio.create_task(work)
        await self.eventually_waited(seconds)
        self.advance(seconds)
        return await task

    # --- as any clock -------------------------------------------------------------------------------------------------

    def monotonic(self):
        return self._now

    async def sleep(self, seconds):
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def wait(self, event, seconds):
        end, machine_end = self._now + seconds, time.monotonic() + LIMIT
        self._ends_of_threads.append(end)
        try:
            while not (is_set := event.wait(PAUSE)) and self._now < end:
                assert time.monotonic() < machine_end, f"nobody has let {seconds:g} s pass"
        finally:
            self._ends_of_threads.remove(end)
        return is_set

    @asynccontextmanager
    async def timeout(self, seconds):
        async with asyncio.timeout(None) as timeout:
            if seconds is None:
                yield timeout
                return
            timer = self.call_later(seconds, lambda: timeout.reschedule(timer.loop.time()))
            try:
                yield timeout
            finally:
                timer.cancel()

    def call_later(self, seconds, call, *arguments):
        timer = Timer(self._now + seconds, self._timers, lambda: call(*arguments))
        if seconds > 0:
            self._timers.add(timer)
        else:
            timer.loop.call_soon(timer.ring)
        return timer
