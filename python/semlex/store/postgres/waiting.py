"""Wait for the server's answers in an event loop, with few releases of the interpreter."""

# Each system call that releases the interpreter lets a busy thread take it, for 5 ms. The driver releases it when it
# looks whether it can write, when it writes, when it reads, and in the second round of the event loop before the task
# goes on. Here only the read is left, and where reading ahead is allowed, not even that: the answer is read before the
# driver reads, which then finds nothing to do. Only what can be repeated may read ahead, because the driver's own read
# finds the end of a connection that the server has closed behind its answer, and gives up that answer.

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.abc import RV
from psycopg.waiting import READY_R, READY_W, WAIT_R, WAIT_W

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn

# A task that never has to wait lets others run after this time.
BUSY_SECONDS = 0.01
_others_ran = 0.0


async def waited(gen: PQGen[RV], pgconn: PGconn, *, reads_ahead: bool = False) -> RV:
    """Return what a generator of the driver returns, for a connection in non-blocking mode."""
    global _others_ran  # noqa: PLW0603 - of the process, like the driver's own
    try:
        wanted = next(gen)
        if wanted & WAIT_W:
            wanted = gen.send(READY_W)
    except StopIteration as ended:
        if time.monotonic() - _others_ran >= BUSY_SECONDS:
            await asyncio.sleep(0)
            _others_ran = time.monotonic()
        value: RV = ended.value
        return value
    answer = Answer(gen, pgconn, wanted, reads_ahead=reads_ahead)
    try:
        return await answer
    finally:
        answer.stop_listening()
        _others_ran = time.monotonic()


class Answer(asyncio.Future[RV]):
    """The result of one of the driver's generators. The awaiting task continues in the callback that receives it."""

    def __init__(self, gen: PQGen[RV], pgconn: PGconn, wanted: int, *, reads_ahead: bool) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._gen, self._pgconn = gen, pgconn
        self._reads_ahead = reads_ahead
        self._socket = pgconn.socket
        self._reads = self._writes = False
        self._go_on: Callable[[], object] | None = None
        self._listen(wanted)

    def _listen(self, wanted: int) -> None:
        """Call `_ready` when the socket is ready, also while a part of the sent data is still unsent."""
        loop, reads = self.get_loop(), bool(wanted & WAIT_R)
        writes = bool(wanted & WAIT_W or self._pgconn.flush())
        try:
            if reads and not self._reads:
                loop.add_reader(self._socket, self._ready, READY_R)
            elif self._reads and not reads:
                loop.remove_reader(self._socket)
            if writes and not self._writes:
                loop.add_writer(self._socket, self._ready, READY_W)
            elif self._writes and not writes:
                loop.remove_writer(self._socket)
        except OSError as error:
            raise psycopg.OperationalError("connection socket closed") from error
        self._reads, self._writes = reads, writes
        self._wanted = wanted

    def stop_listening(self) -> None:
        """Forget the socket."""
        if self._reads:
            self.get_loop().remove_reader(self._socket)
        if self._writes:
            self.get_loop().remove_writer(self._socket)
        self._reads = self._writes = False

    def _ready(self, ready: int) -> None:
        """Resume the generator, and its task when it has ended."""
        if self.done():
            return
        if self._reads_ahead and ready == READY_R:
            with suppress(psycopg.OperationalError):  # which the driver meets as well
                self._pgconn.consume_input()
        try:
            # A socket that can be written although nobody wants it takes the rest of what was sent.
            self._listen(self._gen.send(ready) if ready & self._wanted else self._wanted)
        except StopIteration as ended:
            self.set_result(ended.value)
        except BaseException as error:  # noqa: BLE001 - raised where the answer is awaited
            self.set_exception(error)
        else:
            return
        self.stop_listening()
        # Without what refers back to it, an answer is freed with its rows as soon as they were taken.
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    def add_done_callback(self, go_on: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Keep the callback that resumes the awaiting task."""
        self._go_on = partial((context or copy_context()).run, go_on, self)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel; the awaiting task continues in the next iteration of the event loop."""
        if not super().cancel(msg):
            return False
        self.stop_listening()
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            self.get_loop().call_soon(go_on)
        return True


class Interrupted:
    """A generator that raises an interruption first, so that the driver's own `wait` handles it, and then continues."""

    def __init__(self, gen: PQGen[Any], reason: BaseException) -> None:
        self._gen = gen
        self._reason: BaseException | None = reason

    def __next__(self) -> int:
        """Raise the interruption; when resumed, continue."""
        if self._reason is not None:
            reason, self._reason = self._reason, None
            raise reason
        return next(self._gen)

    def send(self, ready: int) -> int:
        """Continue."""
        return self._gen.send(ready)


class Pipeline(psycopg.AsyncPipeline):
    """A pipeline of the driver that sends each statement at once; its answers are read when they are wanted."""

    # If a later driver has no such method, it sends as it is made.

    def _communicate_gen(self) -> PQGen[None]:
        is_wanted = bool(self.command_queue) and self.command_queue[-1] == self.pgconn.pipeline_sync
        while self.command_queue:
            self.command_queue.popleft()()
        self.pgconn.flush()  # the rest, if the server does not take all of it, while waiting
        if is_wanted:
            yield from super()._communicate_gen()
