"""Several processes behind one address: they share the listening socket, and are replaced one after another."""

# Each process is `semlex serve` with the same arguments; it accepts connections from the same queue. So none is lost
# while one process stops: the others take what waits. The processes share nothing else but the database.

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from semlex.errors import ConfigurationError
from semlex.server.addresses import bound_socket, places

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from semlex.server.connections import StoppingServer
    from semlex.server.options import ServeOptions

# What a process reads on its standard input, whose end means that the first process is gone; and what it writes.
RETIRE: Final = b"retire\n"
READY: Final = b"ready\n"
# Pause before a process that has ended unexpectedly is replaced.
PAUSE_SECONDS = 1.0
# Beyond the time that requests in progress have.
MORE_SECONDS = 10.0


class FailedStartError(Exception):
    """A process ended with a code before it was ready; the user has been told why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def serve_together(options: ServeOptions, tell: Callable[[str], None], arguments: Sequence[str]) -> int:
    """Run the processes until a signal stops them; return the code to exit with.

    Args:
        options: Address, limits and number of processes.
        tell: Called with lines for the user.
        arguments: The command line's arguments that started this process.
    """
    if sys.platform == "win32":
        raise ConfigurationError("processes cannot share an address on Windows: start each on its own port")
    listening = bound_socket(options.host, options.port)
    try:
        return asyncio.run(_Processes(options, tell, arguments, listening).run())
    finally:
        listening.close()


class _Processes:
    def __init__(
        self, options: ServeOptions, tell: Callable[[str], None], arguments: Sequence[str], listening: socket.socket
    ) -> None:
        self._options, self._tell, self._listening = options, tell, listening
        # -P: a folder of the name in the working directory is not the package.
        self._command = [sys.executable, "-P", "-m", "semlex", *arguments, "--listening", str(listening.fileno())]
        self._running: list[asyncio.subprocess.Process] = []
        self._starting: asyncio.Task[int | None] | None = None
        self._signal: int | None = None
        self._stops = asyncio.Event()
        self._rolling: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # the processes are new
        keepers: list[asyncio.Task[None]] = []
        try:
            self._starting = asyncio.create_task(self._start_all())
            code = None
            with suppress(asyncio.CancelledError):  # by `_stop`
                code = await self._starting
            if self._signal is not None:
                return -self._signal
            if code is not None:
                return code
            many = f"{len(self._running)} processes; SIGHUP replaces them in turn"
            self._tell(f"semlex serves on {places(self._listening)} with {many}")
            keepers = [asyncio.create_task(self._keep(place)) for place in range(len(self._running))]
            loop.add_signal_handler(signal.SIGHUP, self._roll)
            await self._stops.wait()
            self._tell("stopping: requests in progress end first; a second Ctrl-C ends them immediately")
        finally:
            self._stops.set()
            for task in (*keepers, *(() if self._rolling is None else (self._rolling,))):
                task.cancel()
            self._listening.close()
            await self._end()
        return -(self._signal or 0)

    async def _start_all(self) -> int | None:
        """Start the processes; return the code to exit with if one of them could not be started."""
        # The first one alone: what is wrong is said once.
        for number in (1, self._options.processes - 1):
            for error in await asyncio.gather(*(self._add() for _ in range(number)), return_exceptions=True):
                if isinstance(error, FailedStartError):
                    return error.code
                if error is not None:
                    raise error
        return None

    async def _add(self) -> None:
        self._running.append(await self._started())

    def _stop(self, number: int) -> None:
        self._signal = number
        if self._starting is not None:
            self._starting.cancel()
        if self._stops.is_set():
            self._send(signal.SIGTERM)  # the second one ends what is in progress
        self._stops.set()

    def _roll(self) -> None:
        if self._rolling is None or self._rolling.done():
            self._rolling = asyncio.create_task(self._replace_all())

    async def _started(self) -> asyncio.subprocess.Process:
        """Start a process; return it when it takes requests."""
        # Ctrl-C in a terminal reaches this process alone, which passes it on.
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=[self._listening.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            self._tell(f"{sys.executable} cannot be started: {error.strerror}")
            raise FailedStartError(1) from None
        assert process.stdout is not None  # noqa: S101 - a pipe
        try:
            if await process.stdout.readline() != READY:
                raise FailedStartError(await process.wait())
        except asyncio.CancelledError:
            process.kill()
            raise
        return process

    async def _keep(self, place: int) -> None:
        """Start another process whenever process number `place` has ended unexpectedly."""
        while True:
            process = self._running[place]
            code = await process.wait()
            while self._running[place] is process:
                self._tell(f"a process ended unexpectedly (code {code}); another one takes its place")
                await asyncio.sleep(PAUSE_SECONDS)
                with suppress(FailedStartError):
                    new = await self._started()
                    if self._running[place] is process:
                        self._running[place] = new
                    else:  # `_replace_all` was faster
                        await self._retire(new)

    async def _replace_all(self) -> None:
        """Replace one process after another; the new one is ready before the old one stops."""
        for place in range(len(self._running)):
            try:
                new = await self._started()
            except FailedStartError:
                self._tell("the new process did not start; the old ones keep running")
                return
            old, self._running[place] = self._running[place], new
            await self._retire(old)
        self._tell("all processes were replaced")

    async def _retire(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - a pipe
        with suppress(ConnectionError):
            process.stdin.write(RETIRE)
            await process.stdin.drain()
        await self._wait_for(process)

    async def _end(self) -> None:
        self._send(signal.SIGTERM)
        await asyncio.gather(*(self._wait_for(process) for process in self._running))

    def _send(self, number: int) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _wait_for(self, process: asyncio.subprocess.Process) -> None:
        try:
            await asyncio.wait_for(process.wait(), self._options.stop_seconds + MORE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def follow(server: StoppingServer) -> None:
    """Make this process retire when the first process asks for that, and stop when the first process is gone."""
    loop = asyncio.get_running_loop()

    def heard() -> None:
        said = os.read(sys.stdin.fileno(), len(RETIRE))
        if said:
            server.retire()
        else:
            loop.remove_reader(sys.stdin.fileno())
            server.should_exit = True

    loop.add_reader(sys.stdin.fileno(), heard)


def report_ready() -> None:
    """Report, from one of the processes, that it accepts requests."""
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
