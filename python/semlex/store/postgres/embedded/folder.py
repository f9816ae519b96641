"""The embedded server's folder: whose it is, and the two locks in it.

::

    <folder>/data         the database (mode 0700); data.new while it is made
    <folder>/socket       the server's socket (mode 0700); elsewhere when the path is too long for one
    <folder>/log          what the server says
    <folder>/start.lock   held while someone starts or stops the server
    <folder>/users.lock   held, shared, by everyone who uses it
    <folder>/keeper       a named pipe, on which who keeps the server for a while is spoken to
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from semlex.errors import EmbeddedServerError
from semlex.store.postgres.embedded.binaries import ROOT_STATE, is_root, require_traversable, server_account

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUR_NAMES = frozenset({"data", "data.new", "socket", "log", "start.lock", "users.lock", "keeper"})
POLL_SECONDS = 0.05


def default_folder() -> Path:
    """The folder of the embedded server when none is named."""
    named = os.environ.get("SEMLEX_DATA_DIR")
    if named:
        # As the command line reads it; pathlib's expanduser raises for a user that does not exist.
        return Path(os.path.expanduser(named)).absolute() / "postgres"  # noqa: PTH111
    if sys.platform != "win32" and is_root():
        return ROOT_STATE / "postgres"
    return Path(platformdirs.user_data_dir("semlex", appauthor=False)) / "postgres"


def resolved_folder(folder: Path) -> Path:
    """The absolute path without links."""
    given = os.fspath(folder)
    # The system's calls refuse a NUL with an error of their own, so the given path is looked at first.
    resolved = given if "\0" in given else os.path.realpath(given)
    if any(ord(character) < ord(" ") for character in resolved):
        raise EmbeddedServerError(f"control characters in the folder's name {resolved!r}: choose another")
    return Path(resolved)


def make_folder(folder: Path) -> None:
    """Makes the folder if it is missing."""
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    if not existing.is_dir():
        raise EmbeddedServerError(f"{existing} is not a folder: choose another (SEMLEX_DATA_DIR)")
    if existing == folder:
        if folder.stat().st_uid != os.geteuid():
            raise EmbeddedServerError(f"{folder} belongs to another user: choose another folder (SEMLEX_DATA_DIR)")
        if not _is_ours(folder):
            raise EmbeddedServerError(
                f"{folder} is not empty and not a folder of the embedded server: choose another (SEMLEX_DATA_DIR)"
            )
    if is_root():
        require_traversable(existing, server_account(folder / "data"))
    missing = [path for path in [folder, *folder.parents] if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        # New, hence ours. Root's server runs as another account, which must get through to its data.
        path.chmod(0o711 if is_root() else 0o700)


def _is_ours(folder: Path) -> bool:
    """Whether the folder is empty or one that we made: the first file in it is ``start.lock``, which stays empty."""
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if "start.lock" not in names:
        return False
    lock = (folder / "start.lock").lstat()
    if not stat.S_ISREG(lock.st_mode) or lock.st_size:
        return False
    # Others' files beside semlex's database do no harm; beside nothing but a lock they make it their folder.
    return (folder / "data" / "PG_VERSION").is_file() if "data" in names else names <= OUR_NAMES


def database_major(folder: Path) -> int:
    """The Postgres version that the folder's database was made with."""
    path = folder / "data" / "PG_VERSION"
    text = path.read_bytes().strip()
    if not text.isdigit():
        raise EmbeddedServerError(
            f"{path} holds no version of Postgres: the database is damaged; restore the folder from a backup, or "
            "choose another (SEMLEX_DATA_DIR)"
        )
    return int(text)


@contextlib.contextmanager
def start_lock(folder: Path, timeout: float, abandoned: Callable[[], bool] = lambda: False) -> Iterator[int]:
    """Holds the lock under which the server is started and stopped.

    Args:
        timeout: Seconds to wait for another process.

    Yields:
        The lock's file descriptor.
    """
    deadline = time.monotonic() + timeout
    lock = os.open(folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if abandoned() or time.monotonic() > deadline:
                    raise EmbeddedServerError(
                        f"another process has been starting or stopping the server of {folder} for "
                        f"{timeout:g} s: find and end it (lsof {folder / 'start.lock'})"
                    ) from None
                time.sleep(POLL_SECONDS)
        yield lock
    finally:
        os.close(lock)


def is_in_use(folder: Path) -> bool:
    """Whether anyone holds the lock of users. Call it with the start lock held, else it may hinder who comes."""
    # A descriptor of its own: a failed upgrade of a shared lock would drop that one.
    users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(users)
