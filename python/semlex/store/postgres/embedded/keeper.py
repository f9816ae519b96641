"""The keeper process: it stops the embedded server some time after the server's last user has ended."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

from semlex.errors import EmbeddedServerError
from semlex.store.postgres.embedded.folder import is_in_use, minimal_environment, start_lock
from semlex.store.postgres.embedded.process import program_of, read_postmaster, stop_server

LOOK_SECONDS = 5.0
MIN_LOOK_SECONDS = 0.2  # between two looks; a message makes for one at once
STOP_SECONDS = 60.0
READY_SECONDS = 10.0  # within which a new keeper reports that it listens
# The shell ends at once, so that no process has to wait for the keeper.
DETACH = '"$@" &'
PROGRAM = "from semlex.store.postgres.embedded.keeper import main; main()"


def keep_server(folder: Path, seconds: float) -> bool:
    """Have a keeper process stop the server after `seconds` without users; the caller must hold the start lock."""
    now = time.monotonic()
    return tell_keeper(folder, seconds, now) or _start_keeper(folder, seconds, now)


def tell_keeper(folder: Path, seconds: float, since: float | None = None) -> bool:
    """Send the keeper how many seconds the server may stay without users, and make it check; False without a keeper."""
    pipe = _open_pipe(folder, os.O_WRONLY)
    if pipe is None:
        return False
    try:
        with contextlib.suppress(BlockingIOError):  # full of messages that say the same
            os.write(pipe, f"{time.monotonic() if since is None else since} {seconds}\n".encode())
    finally:
        os.close(pipe)
    return True


def has_keeper(folder: Path) -> bool:
    """Return whether a keeper process runs for the folder: then it reads the pipe."""
    pipe = _open_pipe(folder, os.O_WRONLY)
    if pipe is not None:
        os.close(pipe)
    return pipe is not None


def _open_pipe(folder: Path, mode: int) -> int | None:
    try:
        pipe = os.open(folder / "keeper", mode | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:  # no such file, or nobody reads
        return None
    if stat.S_ISFIFO(os.fstat(pipe).st_mode):
        return pipe
    os.close(pipe)
    return None


def _start_keeper(folder: Path, seconds: float, since: float) -> bool:
    # A program that Python is embedded in would not understand what it is to run.
    if not Path(sys.executable or "").name.lower().startswith(("python", "pypy")):
        return False
    ready, tell = os.pipe()
    try:
        is_launched = _launch(folder, seconds, since, tell)
        # At its end the pipe is readable, too: a keeper that could not start writes nothing.
        return bool(is_launched and select.select([ready], [], [], READY_SECONDS)[0] and os.read(ready, 1))
    finally:
        os.close(ready)


def _launch(folder: Path, seconds: float, since: float, tell: int) -> bool:
    """Start a keeper, which writes to the pipe `tell` once it listens; close `tell` in this process."""
    # Neither the user's secrets nor settings of Python for another program.
    environment = minimal_environment() | {"PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))}
    command = ["/bin/sh", "-c", DETACH, "sh", sys.executable, "-P", "-c", PROGRAM]
    command += map(str, (folder, seconds, since, tell))
    try:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            # Whatever it inherited would keep a reader of our output waiting.
            subprocess.run(
                command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(tell,),
                check=True,
            )
        finally:
            os.close(log)
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        os.close(tell)
    return True


def main() -> None:
    """Run a keeper, the process that stops an unused server.

    Arguments of the program: the server's folder, the seconds that the server must be unused before it stops, the time
    when these begin, and the pipe to which the keeper writes once it listens.
    """
    tell = int(sys.argv[4])
    with contextlib.suppress(FileNotFoundError):  # the folder is gone
        keeper = _Keeper(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
        # Its starter holds the start lock meanwhile, so that the next client finds it.
        pipe = keeper.listen()
        with contextlib.suppress(BrokenPipeError):
            os.write(tell, b".")
        os.close(tell)
        if pipe is not None:
            keeper.run(pipe)


# A keeper is a process of its own that outlives the command which started it. It reads from a named pipe, ``keeper`` in
# the server's folder. Others know of a keeper only because the pipe has a reader, which the kernel forgets when it
# dies. Between checks a keeper holds no lock. A check takes the start lock, as every start or stop of the server does,
# and then asks whether any process holds the lock of users.
class _Keeper:
    def __init__(self, folder: Path, seconds: float, since: float) -> None:
        self._folder = folder
        self._order = (since, seconds)
        self._since = since  # the order, or a user, whichever was later
        self._versions = self._found_versions()

    def run(self, pipe: int) -> None:
        while self._wait(pipe):
            try:
                with start_lock(self._folder, LOOK_SECONDS):
                    if self._is_over():
                        # Before the lock is released: the next client must find that no keeper listens.
                        (self._folder / "keeper").unlink(missing_ok=True)
                        os.close(pipe)
                        return
            except EmbeddedServerError as error:  # someone starts or stops it; or it does not stop
                sys.stderr.write(f"semlex keeper: {error}\n")
                self._since = time.monotonic()

    def listen(self) -> int | None:
        if tell_keeper(self._folder, self._order[1], self._order[0]):
            return None  # one is enough
        path = self._folder / "keeper"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        # For writing, too: else the pipe would be at its end whenever nobody else has it open.
        return _open_pipe(self._folder, os.O_RDWR)

    def _wait(self, pipe: int) -> bool:
        """Wait for a message or until the next check is due; return False if the folder has been replaced."""
        rest = self._since + self._order[1] - time.monotonic()
        if select.select([pipe], [], [], min(LOOK_SECONDS, max(rest, MIN_LOOK_SECONDS)))[0]:
            words = [float(word) for word in os.read(pipe, 65536).split()]
            self._order = max([self._order, *zip(words[::2], words[1::2], strict=True)])
            self._since = max(self._since, self._order[0])
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(pipe), (self._folder / "keeper").stat())
        return False

    def _is_over(self) -> bool:
        """Stop the server if its time without users is over; return whether the keeper can end."""
        if read_postmaster(self._folder) is None:
            return True
        changed = self._found_versions() != self._versions
        now = time.monotonic()
        if is_in_use(self._folder):
            self._since = now
            # The last user sees to it, with the programs of today. After no time at all there is nothing to keep.
            return changed or self._order[1] == 0
        if changed or now - self._since >= self._order[1]:
            stop_server(self._folder, STOP_SECONDS)
            return True
        return False

    def _found_versions(self) -> list[tuple[int, int] | None]:
        """Return the identities of the server's program and of this module, which change when a file is replaced."""
        found: list[tuple[int, int] | None] = []
        for path in (program_of(self._folder), __file__):
            try:
                status = Path(path or "").stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_ino, status.st_mtime_ns))
        return found
