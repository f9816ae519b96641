"""The stop of a process: requests in progress end in order, within their time, or at once when it is told once more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn

from semlex.clock import SYSTEM, Clock

if TYPE_CHECKING:
    import socket
    from types import FrameType

LOOK_SECONDS = 0.05
# Beyond the time of requests in progress: what does not end though its client is gone is cancelled then.
MORE_SECONDS = 5
# In the state of each request: the event that it stops, for what would wait for ever.
STOPPING = "stopping"


class StoppingServer(uvicorn.Server):
    """Uvicorn, which ends what goes on for too long as if the clients had left.

    Uvicorn itself would cancel it: an answer with status 500 and a trace in the log, of a stop that was wanted.

    Args:
        seconds: Time for requests in progress.
    """

    def __init__(self, config: uvicorn.Config, seconds: float, clock: Clock = SYSTEM) -> None:
        config.timeout_graceful_shutdown = int(seconds) + MORE_SECONDS
        super().__init__(config)
        self._seconds, self._clock, self._is_urged = seconds, clock, False
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        self.lifespan.state[STOPPING] = self._stopping
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops at the first signal, and ends what is in progress at the second."""
        if self.should_exit:
            self._is_urged = True
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets requests in progress end."""
        self._stopping.set()
        ending = asyncio.ensure_future(self._end())
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    async def _end(self) -> None:
        """Closes the connections of what goes on when the time is over."""
        end = self._clock.monotonic() + self._seconds
        while self._clock.monotonic() < end and not self._is_urged:  # a signal's handler sets no event
            await self._clock.sleep(LOOK_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
