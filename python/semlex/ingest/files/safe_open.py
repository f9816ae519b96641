"""Open folders and files below a root, and nowhere else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# An open descriptor, or a checked path on systems that cannot open relative to one (Windows).
Folder: TypeAlias = int | str

BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.listdir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a FIFO would wait for a writer. On regular files it changes nothing.
_FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_allowed: ContextVar[tuple[Path, ...] | None] = ContextVar("semlex_allowed_folders", default=None)


# For work on behalf of others: the walk begins at one of these folders.
@contextlib.contextmanager
def only_below(folders: Sequence[Path]) -> Iterator[None]:
    """Refuse to open anything outside these folders, in the block and in threads it starts."""
    token = _allowed.set(tuple(folders))
    try:
        yield
    finally:
        _allowed.reset(token)


def is_allowed(path: Path) -> bool:
    """Return whether a path, with its links resolved, is in a folder that may be read."""
    allowed = _allowed.get()
    return allowed is None or any(path.is_relative_to(folder) for folder in allowed)


# Between seeing a name and opening it, anybody may put a link in its place. So every step is opened relative to the one
# before, and none follows a link.
@contextlib.contextmanager
def open_folder(root: Path, parts: Sequence[str], *, is_above: bool = False) -> Iterator[Folder]:
    """Open a folder below a root."""
    root, parts = _first_step(root, parts, is_above=is_above)
    if not BY_DESCRIPTOR:
        yield _checked_path(root, parts)
        return
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for part in parts:
            below = os.open(part, _FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def names(folder: Folder) -> list[str]:
    """Return the names in a folder, sorted."""
    return sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor


def status(folder: Folder, name: str) -> os.stat_result:
    """Return the status (as `lstat`) of a name in a folder; a link is not followed."""
    if isinstance(folder, int):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return os.lstat(os.path.join(folder, name))  # noqa: PTH118 - as the other branch


def open_file(root: Path, parts: Sequence[str], *, is_above: bool = False) -> int:
    """Open a regular file below a root for reading."""
    with open_folder(root, parts[:-1], is_above=is_above) as folder:
        if isinstance(folder, int):
            file = os.open(parts[-1], _FILE_FLAGS, dir_fd=folder)
        else:
            file = os.open(_checked_path(root, parts), _FILE_FLAGS)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotRegularError


class NotRegularError(OSError):
    """A folder, FIFO, socket or device instead of a file."""


class OutsideError(OSError):
    """A path outside the allowed folders."""


def _first_step(root: Path, parts: Sequence[str], *, is_above: bool) -> tuple[Path, Sequence[str]]:
    """Return the folder to open first, and the names of the path below it."""
    allowed = _allowed.get()
    if allowed is None:
        return root, parts
    path = root.joinpath(*parts)
    if ".." not in parts:
        for folder in allowed:
            if path.is_relative_to(folder):
                return folder, path.relative_to(folder).parts
        if is_above and any(folder.is_relative_to(path) for folder in allowed):
            return root, parts
    raise OutsideError(errno.EACCES, "in none of the folders that may be read")


def _checked_path(root: Path, parts: Sequence[str]) -> str:
    path = os.path.join(root, *parts)  # noqa: PTH118 - compared as text
    if os.path.realpath(path) != path:
        raise NotRegularError
    return path
