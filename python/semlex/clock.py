"""Time: whatever has deadlines, leases, retries, idle limits or watches takes a `Clock`; tests advance their own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager


class Waitable(Protocol):
    """A `threading.Event` or `threading.Condition`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits, up to so many seconds; returns whether it was set or notified."""
        ...


class Clock:
    """The time of this machine."""

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits on an event loop."""
        await asyncio.sleep(seconds)

    def wait(self, event: Waitable, seconds: float) -> bool:
        """Waits in a thread for an event, up to so many seconds; returns whether it was set."""
        return event.wait(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """As `asyncio.timeout`."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        """As the method of the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, call, *arguments)

    async def wait_for_tasks(
        self, tasks: Iterable[asyncio.Task[Any]], seconds: float | None, return_when: str = asyncio.ALL_COMPLETED
    ) -> None:
        """Waits until tasks are done, up to so many seconds; cancels none of them."""
        with suppress(TimeoutError):
            async with self.timeout(seconds):
                await asyncio.wait([*tasks], return_when=return_when)


SYSTEM = Clock()
