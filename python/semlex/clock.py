"""The clock of all code that has time limits, waits or polls; tests replace it by one that they advance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol


class Waitable(Protocol):
    """A `threading.Event` or `threading.Condition`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, at most for `timeout` seconds; return whether it was set or notified."""
        ...


class Clock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)

    def wait(self, event: Waitable, seconds: float) -> bool:
        """Wait in a thread until an event is set, at most for `seconds`; return whether it was set."""
        return event.wait(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """End the block with a `TimeoutError` after `seconds`, as `asyncio.timeout` does."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """Call a function after `seconds`, as the running event loop does."""
        return asyncio.get_running_loop().call_later(seconds, call, *arguments)

    async def wait_for_tasks(
        self, tasks: Iterable[asyncio.Task[Any]], seconds: float | None, return_when: str = asyncio.ALL_COMPLETED
    ) -> None:
        """Wait until tasks are done, at most for `seconds`; cancel none of them."""
        with suppress(TimeoutError):
            async with self.timeout(seconds):
                await asyncio.wait([*tasks], return_when=return_when)


SYSTEM = Clock()
