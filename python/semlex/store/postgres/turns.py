"""Turns of readers in an event loop: only one computes in a round of the loop, and other tasks run in between."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Turns:
    """Lets readers that are ready at the same time continue one by one, in the order in which they became ready."""

    # Without turns, the answers to eight searches that arrive together hold the event loop for eight times as long as
    # one does.

    def __init__(self) -> None:
        self._readers = 0
        self._is_taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def reader(self) -> Iterator[None]:
        """Count a reader inside the block; a single one never waits."""
        self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1

    async def take(self) -> None:
        """Wait until no other reader runs in this iteration of the event loop."""
        if self._readers <= 1:
            return
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what an earlier loop was to call may never have been called
            self._loop, self._is_taken, self._waiting = loop, False, deque()
        if not self._is_taken:
            self._is_taken = True
            loop.call_soon(self._pass_on, loop)
            return
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next reader continue in the next iteration."""
        if loop is not self._loop:
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else it was cancelled
                following.set_result(None)
                loop.call_soon(self._pass_on, loop)
                return
        self._is_taken = False
